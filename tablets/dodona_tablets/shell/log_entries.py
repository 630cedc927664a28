"""Put the groups of a cell's log into the entries of a replicated log, and read them back.

Owns: the format of an entry's records. A group is one entry, or several if it is long: replicas and
links have limits for one entry. The first byte of an entry has the flags of its group, and says
whether the group goes on in the next entry. The group's index is the index of its first entry.

Invariants:
- An entry without bytes opens an epoch (R11). It has no group.
- A group counts only if all of its entries are there. If the owner ended between two of them, the
  next entry opens an epoch. What is before it counts for nothing: it was not acknowledged.
- A log that was cut begins with the first entry of a group with a checkpoint.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from dodona_tablets.core.records import Record
from dodona_tablets.shell.log_groups import GroupKey, damaged, encode_group, group_key
from dodona_wire.messages.replicas import Entry

OPENING: Final = b""
"""The records of the entry that opens an epoch."""
PART_BYTES_MAX: Final = 8 << 20
"""Bytes of a group in one entry. So a replica that copies a log can go on in between."""
_GOES_ON: Final = 0x80


def records_of_group(index: int, records: Sequence[Record]) -> tuple[GroupKey, list[bytes]]:
    """Return a group as the records of entries, of which the first one has this index."""
    key, value = encode_group(index, records)
    with memoryview(value) as view:
        parts = [view[at : at + PART_BYTES_MAX] for at in range(0, len(view), PART_BYTES_MAX)]
        heads = [bytes([key.flags | _GOES_ON])] * (len(parts) - 1) + [bytes([key.flags])]
        made = [head + part for head, part in zip(heads, parts, strict=True)]
        for part in parts:
            part.release()
    return key, made


class FoundGroups:
    """The groups in the entries of a log, for `log_reading`."""

    def __init__(self, path: Path, entries: Sequence[Entry]) -> None:
        """`path` is for errors. The entries have no gaps."""
        self.path = path
        self.first_index = entries[0].index if entries else 1
        self.next_index = self.first_index + len(entries)
        self._entries = entries

    def walk(self, is_wanted: Callable[[GroupKey], int]) -> Iterator[tuple[GroupKey, memoryview]]:
        """Yield the groups that are wanted, in order. Raises DataCorrupted."""
        begun: GroupKey | None = None
        parts: list[memoryview] = []
        for entry in self._entries:
            if not entry.records:
                begun, parts = None, []
                continue
            head, part = entry.records[0], memoryview(entry.records)[1:]
            flags = head & ~_GOES_ON
            if begun is None:
                begun = group_key(entry.index, flags)
            if begun.flags != flags:
                raise damaged("goes on as another one", self.path, begun.index)
            parts.append(part)
            if head & _GOES_ON:
                continue
            if is_wanted(begun):
                yield begun, parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
            begun, parts = None, []
