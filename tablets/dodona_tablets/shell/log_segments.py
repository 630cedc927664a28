"""One file of a log: an LMDB environment that only grows, named after its first group.

Owns: such files, how one is made so that a crash leaves a whole one or none, how they are opened,
written and walked. A log that had all of its groups in one file which is used again and again was
tried: pages that were freed between others are of no use to a large group, which takes whole runs
of them, so that the engine searched for long and then found none (see the decision).

Invariants: a file is written by one thread, while nobody reads it; hence no table of readers, no
lock file. One with a number for a name was complete, and durable, before it had that name.
"""

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from dodona._io.folder import sync_folder
from dodona.errors import DataCorrupted
from dodona_tablets.shell.log_groups import GroupKey, damaged, decode_key
from dodona_tablets.shell.room import AHEAD_BYTES, Room

FIRST_INDEX: Final = 1
SUFFIX: Final = ".mdb"
FORMAT: Final = 0
"""Of LMDB's own: that of its versions 0.9."""

_FIRST_NAME: Final = "data.mdb"
"""What the first file is called where it comes from a time when it was the only one."""
_BEING_MADE: Final = "next"
_MAP_BYTES: Final = 1 << 34
"""More than ever lies in one. The file itself is only as long as what is in it."""

_COMMIT: Final = struct.Struct("=120xQ16xQ")
"""The page at the beginning of a file that every other commit writes: how many values there are
with it, and its own number."""

Groups = Iterator[tuple[GroupKey, memoryview]]


class Place(NamedTuple):
    """A file of a log, and the index of the group that it begins with."""

    first_index: int
    path: Path


def find_segments(folder: Path) -> list[Place]:
    """The files of the log in this folder, in order. None if there is no folder."""
    found = [Place(FIRST_INDEX, path) for path in folder.glob(_FIRST_NAME)]
    found += [Place(int(it.stem), it) for it in folder.glob(f"*{SUFFIX}") if it.stem.isdecimal()]
    return sorted(found)


class Segment:
    """An open file of a log. `append` is for the last one only."""

    def __init__(self, first_index: int, path: Path, *, is_last: bool) -> None:
        """Raises DataCorrupted."""
        self.path = path
        self.first_index = first_index
        self._room: Room | None = None
        try:
            self._check_size(1)  # of nothing, LMDB would make a new one
            self._environment = lmdb.open(
                str(path),
                map_size=_MAP_BYTES if is_last else 1,  # or what it takes to map all of it
                subdir=False,
                lock=False,
                readonly=not is_last,
                create=False,
                lib_version=FORMAT,
            )
        except lmdb.Error as error:
            raise DataCorrupted(f"the log does not open: {error}", path=str(path)) from error
        try:
            self._page_bytes: int = self._environment.stat()["psize"]
            self.size_bytes = self._used_bytes()
            """What it occupies, without the room behind it."""
            self._check_size(self.size_bytes)
            self._check_commits()
            self.next_index = self._find_next_index()
            """Of the group that comes, or would come, behind those that are here."""
            if is_last:
                self._room = Room(path, _MAP_BYTES)
        except BaseException:
            self._environment.close()
            raise

    @classmethod
    def create(cls, folder: Path, first_index: int) -> "Segment":
        """A new last file, durable with its name."""
        made = folder / _BEING_MADE
        made.unlink(missing_ok=True)
        with lmdb.open(str(made), subdir=False, lock=False, lib_version=FORMAT) as environment:
            environment.sync(True)
        path = folder / f"{first_index:020}{SUFFIX}"
        made.rename(path)
        sync_folder(folder)
        return cls(first_index, path, is_last=True)

    def _check_size(self, wanted_bytes: int) -> None:
        """To touch what is missing at the end of a mapped file would kill the process."""
        found_bytes = self.path.stat().st_size
        if found_bytes < wanted_bytes:
            text = f"a file of the log has {found_bytes} bytes, and should have {wanted_bytes}"
            raise DataCorrupted(text, path=str(self.path))

    def _check_commits(self) -> None:
        """LMDB takes the commit with the higher number for the last one, and no sum covers these:
        damage there could take the last group back. But each commit is one group's."""
        with self.path.open("rb") as file:
            pages = [os.pread(file.fileno(), _COMMIT.size, at) for at in (0, self._page_bytes)]
        (even_count, even), (odd_count, odd) = [_COMMIT.unpack(page) for page in pages]
        is_pair = abs(even - odd) == 1 or even == odd == 0
        if not is_pair or even % 2 or even_count != even or odd_count != odd:
            text = "the last commits to a file of the log contradict each other"
            raise DataCorrupted(text, path=str(self.path))

    def append(self, key: GroupKey, value: bytearray) -> None:
        """Make a group durable."""
        assert self._room is not None, "an older file of a log is not written"
        if len(value) <= AHEAD_BYTES:  # what is larger makes the file grow: zeros come on top
            self._room.ensure(self.size_bytes)
        with self._environment.begin(write=True) as transaction:
            transaction.put(key.raw, value, append=True)
        self.next_index = key.index + 1
        self.size_bytes = self._used_bytes()

    def _used_bytes(self) -> int:
        last_page: int = self._environment.info()["last_pgno"]
        return (last_page + 1) * self._page_bytes

    def _find_next_index(self) -> int:
        with self._reading() as cursor:
            if cursor.last():
                return decode_key(bytes(cursor.key()), self.path).index + 1
            return self.first_index

    def walk(self, is_wanted: Callable[[GroupKey], int]) -> Groups:
        """The groups that are wanted, in order, in memory that is there until the next one. Raises
        DataCorrupted if any is missing."""
        expected = self.first_index
        with self._reading() as cursor:
            for raw in cursor.iternext(keys=True, values=False):
                key = decode_key(bytes(raw), self.path)
                if key.index != expected:
                    raise damaged("is missing", self.path, expected)
                expected += 1
                if is_wanted(key):
                    yield key, cursor.value()

    @contextmanager
    def _reading(self) -> Iterator["lmdb.Cursor[memoryview]"]:
        try:
            with self._environment.begin(buffers=True) as transaction, transaction.cursor() as it:
                yield it
        except lmdb.Error as error:
            raise DataCorrupted(f"the log can't be read: {error}", path=str(self.path)) from error

    def finish(self) -> None:
        """It is long enough: close it, and give back the room behind what is there."""
        self.close()
        os.truncate(self.path, self.size_bytes)

    def close(self) -> None:
        self._environment.close()
        if self._room is not None:
            self._room.close()
