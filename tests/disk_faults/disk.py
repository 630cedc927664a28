"""A disk as a power cut finds it: what is durable, what only may be, and what a draw makes of it.

Owns: which bytes and which names survive. POSIX promises little, and this disk keeps no more: what
was written and not synced since is there or not, each sector by itself, and a file is as long as it
ever was since its last sync. Names are there or not, each by itself, until their folder is synced;
a rename happens wholly or not at all. A failed sync makes nothing durable, and leaves what it was
for to chance for good. What a descriptor that syncs itself wrote is durable when it returns.

An operation is first `issue`d, then `finish`ed: between the two it is under way. Must not import:
anything that runs programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, Protocol, TypeVar

from disk_faults.images import PAGE_BYTES, ZEROS, Content, Image
from disk_faults.operations import (
    ROOT,
    Made,
    Mapped,
    Marked,
    Operation,
    Removed,
    Renamed,
    Resized,
    Synced,
    SyncFailed,
    Written,
)

SECTOR_BYTES: Final = 512
"""What a disk writes wholly or not at all."""

T = TypeVar("T")


class Fate(Protocol):
    """What becomes of what is not durable."""

    def size(self, sizes: Sequence[int]) -> int:
        """Of a file: one of those it had since its last sync, the durable one first."""

    def pieces(self, count: int) -> int:
        """Of a page that was changed so often: how many changes came through, or -1 if each of its
        sectors is to be asked for."""

    def sector(self, count: int) -> int:
        """As `pieces`, of one sector of a page."""

    def is_name_kept(self) -> bool:
        """Of a change of a folder."""

    def mapped(self, size_bytes: int) -> bytes:
        """What a file holds that was written by memory."""


class Dropped:
    """Nothing came through that was not durable."""

    def size(self, sizes: Sequence[int]) -> int:
        return sizes[0]

    def pieces(self, count: int) -> int:
        return 0

    def sector(self, count: int) -> int:
        return 0

    def is_name_kept(self) -> bool:
        return False

    def mapped(self, size_bytes: int) -> bytes:
        return bytes(size_bytes)


class Kept(Dropped):
    """Everything did, as if only the process had ended."""

    def size(self, sizes: Sequence[int]) -> int:
        return sizes[-1]

    def pieces(self, count: int) -> int:
        return count

    def sector(self, count: int) -> int:
        return count

    def is_name_kept(self) -> bool:
        return True


class Drawn:
    """Some did, and of some pages only parts."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._keep_rate = random.choice((0.1, 0.5, 0.9))
        self._torn_rate = random.choice((0.0, 0.2, 0.5))

    def size(self, sizes: Sequence[int]) -> int:
        is_last = self._random.random() < self._keep_rate
        return sizes[-1] if is_last else self._random.choice(sizes)

    def pieces(self, count: int) -> int:
        if self._random.random() < self._torn_rate:
            return -1
        return self.sector(count)

    def sector(self, count: int) -> int:
        is_last = self._random.random() < self._keep_rate
        return count if is_last else self._random.randrange(count)

    def is_name_kept(self) -> bool:
        return self._random.random() < self._keep_rate

    def mapped(self, size_bytes: int) -> bytes:
        return self._random.randbytes(size_bytes)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A change of one page, `begin` bytes into it. A lost one was to be synced, and that failed."""

    begin: int
    data: bytes
    is_lost: bool = False

    def apply(self, page: bytearray, begin: int, end: int) -> None:
        """As far as it lies between these offsets."""
        begin, end = max(begin, self.begin), min(end, self.begin + len(self.data))
        if begin < end:
            page[begin:end] = self.data[begin - self.begin : end - self.begin]


@dataclass(slots=True)
class _File:
    """`pages` and `size_bytes` are durable; `sizes` are those since the last sync, and `pieces`, by
    page, what was changed since then. There are no pages of zeros."""

    pages: dict[int, bytes] = field(default_factory=dict)
    size_bytes: int = 0
    sizes: list[int] = field(default_factory=list)
    pieces: dict[int, list[_Piece]] = field(default_factory=dict)
    is_mapped: bool = False

    @property
    def size_bytes_now(self) -> int:
        return self.sizes[-1] if self.sizes else self.size_bytes

    def change(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        at = offset
        while at < end:
            number = at // PAGE_BYTES
            stop = min(end, (number + 1) * PAGE_BYTES)
            piece = _Piece(at % PAGE_BYTES, data[at - offset : stop - offset])
            at = stop
            if number in self.pages or number in self.pieces or any(piece.data):
                self.pieces.setdefault(number, []).append(piece)
        if end > self.size_bytes_now:
            self.sizes.append(end)

    def resize(self, size_bytes: int) -> None:
        if size_bytes < self.size_bytes_now:
            self.change(size_bytes, bytes(self.size_bytes_now - size_bytes))
        self.sizes.append(size_bytes)

    def sync(self) -> None:
        for number in [*self.pieces]:
            self._sync_page(number)
        self.size_bytes = self.size_bytes_now
        self.sizes.clear()

    def sync_range(self, offset: int, count: int) -> None:
        """And the size, as far as it takes to find that range again."""
        end = offset + count
        for number in range(offset // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1):
            self._sync_page(number)
        if self.size_bytes < end:
            self.size_bytes = end
            self.sizes = [size for size in self.sizes if size > end]

    def fail_sync(self) -> None:
        for number, pieces in self.pieces.items():
            self.pieces[number] = [replace(piece, is_lost=True) for piece in pieces]

    def content(self, fate: Fate) -> Content:
        size_bytes = fate.size([self.size_bytes, *self.sizes])
        if self.is_mapped:
            return Content.of(fate.mapped(size_bytes))
        pages = dict(self.pages)
        for number, pieces in self.pieces.items():
            _put(pages, number, self._draw_page(number, pieces, fate))
        past, rest = -(-size_bytes // PAGE_BYTES), size_bytes % PAGE_BYTES
        pages = {number: page for number, page in pages.items() if number < past}
        if rest and past - 1 in pages:
            _put(pages, past - 1, pages[past - 1][:rest].ljust(PAGE_BYTES, b"\x00"))
        return Content(size_bytes, pages)

    def _sync_page(self, number: int) -> None:
        pieces = self.pieces.get(number, [])
        if all(piece.is_lost for piece in pieces):
            return  # nothing to do, or so the kernel thinks
        page = bytearray(self.pages.get(number, ZEROS))
        for piece in self.pieces.pop(number):
            piece.apply(page, 0, PAGE_BYTES)
        _put(self.pages, number, bytes(page))

    def _draw_page(self, number: int, pieces: list[_Piece], fate: Fate) -> bytes:
        page = bytearray(self.pages.get(number, ZEROS))
        count = fate.pieces(len(pieces))
        if count >= 0:
            for piece in pieces[:count]:
                piece.apply(page, 0, PAGE_BYTES)
            return bytes(page)
        for sector in range(0, PAGE_BYTES, SECTOR_BYTES):
            for piece in pieces[: fate.sector(len(pieces))]:
                piece.apply(page, sector, sector + SECTOR_BYTES)
        return bytes(page)


def _put(pages: dict[int, bytes], number: int, page: bytes) -> None:
    if page == ZEROS:
        pages.pop(number, None)
    else:
        pages[number] = page


@dataclass(slots=True)
class _Folder:
    """Durable names, and the changes since the last sync."""

    durable: dict[str, int] = field(default_factory=dict)
    changes: list[Made | Removed | Renamed] = field(default_factory=list)

    def sync(self) -> None:
        self.durable = self.names(Kept())
        self.changes.clear()

    def names(self, fate: Fate) -> dict[str, int]:
        names = dict(self.durable)
        kept = [fate.is_name_kept() for _ in self.changes]
        needed: set[str] = set()
        for at in reversed(range(len(kept))):  # what a change builds on came through before it
            touched = _names_of(self.changes[at])
            if kept[at] or not needed.isdisjoint(touched):
                kept[at] = True
                needed.update(touched)
        for is_kept, change in zip(kept, self.changes, strict=True):
            if is_kept:
                _apply(change, names)
        return names


def _names_of(change: Made | Removed | Renamed) -> tuple[str, ...]:
    return (change.old, change.new) if isinstance(change, Renamed) else (change.name,)


def _apply(change: Made | Removed | Renamed, names: dict[str, int]) -> None:
    match change:
        case Made(name=name, made=made):
            names[name] = made
        case Removed(name=name):
            del names[name]
        case Renamed(old=old, new=new):
            names[new] = names.pop(old)


class Disk:
    """All of it. Everything is durable that was there before the first operation."""

    def __init__(self) -> None:
        self._folders: dict[int, _Folder] = {ROOT: _Folder()}
        self._files: dict[int, _File] = {}

    def do(self, operations: Sequence[Operation]) -> None:
        """Each from its beginning to its end."""
        for operation in operations:
            self.issue(operation)
            self.finish(operation)

    def issue(self, operation: Operation) -> None:
        """It is under way: what it changes may come through from here on."""
        match operation:
            case Made():
                if operation.is_folder:
                    self._folders[operation.made] = _Folder()
                else:
                    self._files[operation.made] = _File()
                self._folders[operation.folder].changes.append(operation)
            case Removed() | Renamed():
                self._folders[operation.folder].changes.append(operation)
            case Written(file, offset, data):
                self._files[file].change(offset, data)
            case Resized(file, size_bytes):
                self._files[file].resize(size_bytes)
            case Mapped(file):
                self._files[file].is_mapped = True
            case Synced() | SyncFailed() | Marked():
                pass

    def finish(self, operation: Operation) -> None:
        """It came back: what it promises holds."""
        match operation:
            case Synced(number) if number in self._folders:
                self._folders[number].sync()
            case Synced(number):
                self._files[number].sync()
            case SyncFailed(number) if number in self._files:
                self._files[number].fail_sync()
            case Written(file, offset, data, is_synced=True):
                self._files[file].sync_range(offset, len(data))
            case _:
                pass

    def image(self, fate: Fate) -> Image:
        """What is found if the power is cut now."""
        paths = self.paths(fate)
        folders = tuple(path for path, number in paths.items() if number in self._folders)
        files = {
            path: self._files[number].content(fate)
            for path, number in paths.items()
            if number in self._files
        }
        return Image(folders, files)

    def paths(self, fate: Fate) -> dict[str, int]:
        """What names lead to, from the watched folder on, parents first."""
        found: dict[str, int] = {}
        waiting = [("", ROOT)]
        while waiting:
            path, folder = waiting.pop(0)
            for name, number in sorted(self._folders[folder].names(fate).items()):
                found[f"{path}{name}"] = number
                if number in self._folders:
                    waiting.append((f"{path}{name}/", number))
        return found
