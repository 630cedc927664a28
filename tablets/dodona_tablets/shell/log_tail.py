"""Find groups of a log's file that no head names: durable, in pages that LMDB takes for free.

Owns: the search for these groups. A commit syncs the pages that have its group. Only then it writes
the head by which LMDB finds them. To sync the head, too, would cost every commit a second wait for
the disk. So a power cut may take back the last head, and also that of the commit under way. The
pages are still there. Their numbers, and the indexes and checksums of their groups, identify them.

Invariants:
- The next two commits do not touch the pages that a head names. (LMDB uses a page again once no
  head on the disk knows it.) So there are at most `BEHIND_MAX` groups behind a head.
- A group is found whole or not at all. A group that is not whole was never durable, and no caller
  had an answer for it.

This module changes nothing. A process that opens the file to go on begins a new file with these
groups.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dodona_server.address_space import map_to_read
from dodona_tablets.shell.log_groups import KEY_BYTES, GroupKey, damaged, decode_group, decode_key
from dodona_wire.errors import DataCorrupted

BEHIND_MAX: Final = 2
"""The group whose head was not synced yet, and the group under way."""
_HEADS: Final = 2
"""The pages of heads at the beginning of a file."""
_PAGE: Final = struct.Struct("<Q2xHHH")
"""A page's header: its number, its kind, and where its free room begins and ends."""
_RUN: Final = struct.Struct("<I")
"""In the place of the last two of these fields, for a long value: how many pages it has."""
_RUN_AT: Final = 12
_LEAF, _LONG_VALUE = 2, 4
_NODE: Final = struct.Struct("<HHHH")
"""An item of a leaf: the length of its value (low, high), its kind, the length of its key."""
_IS_LONG: Final = 1
_NUMBER: Final = struct.Struct("<Q")

Group = tuple[GroupKey, bytes]


def find_groups_behind(
    path: Path, page_bytes: int, next_index: int, *, has_one: bool = False
) -> list[Group]:
    """Return the groups from this index on, in order. With `has_one`, a head was to name the next
    group, so it must be there. Raises DataCorrupted if a group is missing."""
    found: dict[int, Group] = {}
    complaint = damaged("is missing", path, next_index)
    with path.open("rb") as file, map_to_read(file, path) as pages:
        for key, value in _groups(pages, page_bytes, next_index):
            try:
                decode_group(key, memoryview(value), path)
            except DataCorrupted as error:  # the group was under way
                complaint = error if key.index == next_index else complaint
            else:
                found[key.index] = key, value
    if next_index not in found and (found or has_one):
        raise complaint
    return [found[index] for index in sorted(found)]


def _groups(pages: mmap.mmap, page_bytes: int, next_index: int) -> Iterator[Group]:
    """Yield each item that looks like a group with such an index. The inside of a long value is
    skipped."""
    wanted = range(next_index, next_index + BEHIND_MAX)
    number, count = _HEADS, len(pages) // page_bytes
    while number < count:
        at = number * page_bytes
        own_number, kind, _, _ = _PAGE.unpack_from(pages, at)
        is_known = own_number == number
        if is_known and kind == _LONG_VALUE:
            number += max(1, _RUN.unpack_from(pages, at + _RUN_AT)[0])
            continue
        if is_known and kind == _LEAF:
            page = pages[at : at + page_bytes]
            for key, node_at in _keys(page):
                if key.index in wanted:
                    value = _value(pages, page, node_at, len(key.raw))
                    if value is not None:
                        yield key, value
        number += 1


def _keys(page: bytes) -> Iterator[tuple[GroupKey, int]]:
    """Yield the last keys of a leaf, with their places. Groups come in order."""
    begin = _PAGE.unpack_from(page)[2]
    places = page[_PAGE.size : min(begin, len(page)) // 2 * 2]
    for (at,) in [*struct.iter_unpack("<H", places)][-BEHIND_MAX:]:
        if at + _NODE.size > len(page):
            return
        length = _NODE.unpack_from(page, at)[3]
        raw = page[at + _NODE.size : at + _NODE.size + length]
        if length == len(raw) == KEY_BYTES:
            yield decode_key(raw, Path()), at


def _value(pages: mmap.mmap, page: bytes, at: int, key_length: int) -> bytes | None:
    """Return the value of the item at this place of a leaf, as far as it is there. None if its
    place is beyond the end."""
    low, high, kind, _ = _NODE.unpack_from(page, at)
    length = low | high << 16
    begin = at + _NODE.size + key_length
    if not kind & _IS_LONG:
        return page[begin : begin + length]
    if begin + _NUMBER.size > len(page):
        return None
    first = _NUMBER.unpack_from(page, begin)[0] * len(page) + _PAGE.size
    return pages[first : first + length] if first + length <= len(pages) else None
