"""Check the pages of an LMDB file before the engine reads them.

Owns: what the engine trusts without a check.

- Each page is at the place and of the kind that the page above says.
- The items of a page lie within it.
- No page is beyond the end of the file, or in use and free at the same time.

If a page is wrong, the engine ends the process (an assertion, a bus error), or raises an error that
does not say where. This module does not check what items mean, or that they are the right ones.
Checksums and seals do that.

Knows the format of LMDB 0.9 (`mdb.c`: page, node, meta), in the byte order of this machine. Reads
only; about 50 µs a page. For servers; must not import lmdb.
"""

import mmap
import struct
from pathlib import Path
from typing import Final, NamedTuple

from dodona_server.address_space import map_to_read
from dodona_wire.errors import DataCorrupted

_META: Final = struct.Struct("=16xII16xI36xQ40xQQQ")
"""Magic, version, page size, root of the free pages, root of the data, last page, transaction."""
_PAGE: Final = struct.Struct("=Q2xHHH")
"""Its number, its kind, where its free room begins and ends."""
_RUN: Final = struct.Struct("=Q2xHI")
"""The same for a long value: number, kind, how many pages it has."""
_NODE: Final = struct.Struct("=HHHH")
"""The length of an item's value (low, high), its kind, and the length of its key. For an item that
leads to another page: the page's number (low, middle, high)."""
_NUMBER: Final = struct.Struct("=Q")
_BRANCH, _LEAF, _LONG_VALUE = 1, 2, 4
_IS_LONG: Final = 1
_HEADER_BYTES: Final = 16
_NO_PAGE: Final = (1 << 64) - 1
_MAGIC_AND_VERSION: Final = (0xBEEFC0DE, 1)
_PAGE_BYTES: Final = tuple(1 << it for it in range(9, 17))


class _Meta(NamedTuple):
    page_bytes: int
    free_root: int
    root: int
    last_page: int
    number: int


def check_pages(path: Path, *, may_go_on: bool = False) -> None:
    """Check all pages that are in use. With `may_go_on` a value may lie behind the last page that
    the head counts, because its owner maps all of the file. Raises DataCorrupted, with the number
    of the page."""
    with path.open("rb") as file, map_to_read(file, path) as pages:
        meta = _newest_meta(pages)
        if meta is None:
            return  # the engine itself refuses it
        if may_go_on:
            last_page = len(pages) // meta.page_bytes - 1
            meta = meta._replace(last_page=max(meta.last_page, last_page))
        _Check(path, pages, meta).run()


def _newest_meta(pages: mmap.mmap) -> _Meta | None:
    found = []
    at = 0
    for _ in range(2):
        if at + _META.size > len(pages):
            return None
        magic, version, *rest = _META.unpack_from(pages, at)
        if (magic, version) != _MAGIC_AND_VERSION or rest[0] not in _PAGE_BYTES:
            return None
        found.append(_Meta(*rest))
        at = found[0].page_bytes
    return max(found, key=lambda it: it.number)


class _Check:
    """The check of one file."""

    def __init__(self, path: Path, pages: mmap.mmap, meta: _Meta) -> None:
        self._path = path
        self._pages = pages
        self._meta = meta
        self._used: set[int] = set()

    def run(self) -> None:
        meta = self._meta
        wanted_bytes = (meta.last_page + 1) * meta.page_bytes
        if wanted_bytes > len(self._pages):
            raise DataCorrupted(
                f"the file has {len(self._pages)} bytes, and should have {wanted_bytes}",
                path=str(self._path),
            )
        free: list[int] = []
        for root, lists in ((meta.free_root, free), (meta.root, None)):
            waiting = [] if root == _NO_PAGE else [root]
            while waiting:
                self._look(waiting.pop(), waiting, lists)
        for number in free:
            if number in self._used or not 1 < number <= meta.last_page:
                raise self._damaged(number, "is in use, but the list of free pages has it")

    def _look(self, number: int, waiting: list[int], lists: list[int] | None) -> None:
        """Check one page, and add the pages below it to `waiting`. In the tree of free pages, add
        the numbers of these pages to `lists`."""
        pages, page_bytes = self._pages, self._meta.page_bytes
        self._use(number)
        begin = number * page_bytes
        own, kind, lower, upper = _PAGE.unpack_from(pages, begin)
        if own != number or kind not in (_BRANCH, _LEAF):
            raise self._damaged(number, "has the wrong kind or number")
        if not _HEADER_BYTES <= lower <= upper <= page_bytes or lower % 2:
            raise self._damaged(number, "has items outside of its bounds")
        count = (lower - _HEADER_BYTES) // 2
        for at in struct.unpack_from(f"={count}H", pages, begin + _HEADER_BYTES):
            if not upper <= at <= page_bytes - _NODE.size:
                raise self._damaged(number, "has items outside of its bounds")
            low, high, flags, key_bytes = _NODE.unpack_from(pages, begin + at)
            end = at + _NODE.size + key_bytes
            if kind == _BRANCH:
                waiting.append(low | high << 16 | flags << 32)
                size_bytes = 0
            else:
                size_bytes = low | high << 16
                is_long = flags & _IS_LONG
                if end + (_NUMBER.size if is_long else size_bytes) > page_bytes:
                    raise self._damaged(number, "has items outside of its bounds")
                value_at = self._long(begin + end, size_bytes) if is_long else begin + end
                if lists is not None:
                    lists += self._numbers(number, value_at, size_bytes)
            if end > page_bytes:
                raise self._damaged(number, "has items outside of its bounds")

    def _long(self, at: int, size_bytes: int) -> int:
        """Check the pages of a long value. Return where it begins."""
        page_bytes = self._meta.page_bytes
        first: int = _NUMBER.unpack_from(self._pages, at)[0]
        self._use(first)
        own, kind, count = _RUN.unpack_from(self._pages, first * page_bytes)
        if own != first or kind != _LONG_VALUE:
            raise self._damaged(first, "has the wrong kind or number")
        if count * page_bytes < _HEADER_BYTES + size_bytes:
            raise self._damaged(first, "begins a value that is longer than its pages")
        if first + count - 1 > self._meta.last_page:
            raise self._damaged(first, "begins a value that ends after the last page")
        self._used.update(range(first, first + count))
        return first * page_bytes + _HEADER_BYTES

    def _numbers(self, number: int, at: int, size_bytes: int) -> tuple[int, ...]:
        """Return a list of free pages."""
        count = size_bytes // _NUMBER.size - 1
        if count < 0 or _NUMBER.unpack_from(self._pages, at)[0] > count:
            raise self._damaged(number, "has a list that is too short")
        (count,) = _NUMBER.unpack_from(self._pages, at)
        return struct.unpack_from(f"={count}Q", self._pages, at + _NUMBER.size)

    def _use(self, number: int) -> None:
        if not 1 < number <= self._meta.last_page:
            raise self._damaged(number, "does not exist")
        if number in self._used:
            raise self._damaged(number, "is used twice")
        self._used.add(number)

    def _damaged(self, number: int, words: str) -> DataCorrupted:
        at = number * self._meta.page_bytes
        text = f"a page {words}: the file is damaged"
        return DataCorrupted(text, path=str(self._path), page=number, byte=at)
