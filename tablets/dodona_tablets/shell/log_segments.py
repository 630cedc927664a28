"""One file of a log: an LMDB environment that only grows, named after its first group.

Owns: such files, how one is made so that a crash leaves a whole one or none, how they are opened,
written and walked. A log that had all of its groups in one file which is used again and again was
tried: pages that were freed between others are of no use to a large group, which takes whole runs
of them, so that the engine searched for long and then found none (see the decision).

Invariants: a file is written by one thread, while nobody reads it; hence no table of readers, no
lock file. One with a number for a name was complete, and durable, before it had that name.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from dodona._io.environment import open_environment
from dodona.errors import DataCorrupted
from dodona_tablets.shell.log_doubt import find_commit_in_doubt, read_last_of
from dodona_tablets.shell.log_groups import GroupKey, damaged, decode_group, decode_key
from dodona_tablets.shell.room import AHEAD_BYTES, Room

FIRST_INDEX: Final = 1
SUFFIX: Final = ".mdb"

_FIRST_NAME: Final = "data.mdb"
"""What the first file is called where it comes from a time when it was the only one."""
_MAP_BYTES: Final = 1 << 34
"""More than ever lies in one. The file itself is only as long as what is in it."""

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
        """The last one is made if it is not there. Raises DataCorrupted, InvalidRequest."""
        self.path = path
        self.first_index = first_index
        self._room: Room | None = None
        map_bytes = _MAP_BYTES if is_last else 1  # or what it takes to map all of it
        self._environment = open_environment(path, map_bytes, is_read_only=not is_last)
        try:
            self._page_bytes: int = self._environment.stat()["psize"]
            self.size_bytes = self._used_bytes()
            """What it occupies, without the room behind it."""
            self._check_size(self.size_bytes)
            in_doubt = find_commit_in_doubt(path, self._page_bytes)
            self.next_index = self._find_next_index()
            """Of the group that comes, or would come, behind those that are here."""
            self._check_count()
            if is_last:
                self._room = Room(path, _MAP_BYTES)
                if in_doubt is not None:
                    self._make_again(in_doubt)
        except BaseException:
            self._environment.close()
            raise

    @classmethod
    def create(cls, folder: Path, first_index: int) -> "Segment":
        """A new last file, durable with its name."""
        return cls(first_index, folder / f"{first_index:020}{SUFFIX}", is_last=True)

    def _check_size(self, wanted_bytes: int) -> None:
        """To touch what is missing at the end of a mapped file would kill the process."""
        found_bytes = self.path.stat().st_size
        if found_bytes < wanted_bytes:
            text = f"a file of the log has {found_bytes} bytes, and should have {wanted_bytes}"
            raise DataCorrupted(text, path=str(self.path))

    def _make_again(self, number: int) -> None:
        """The commit with this number, which is in doubt."""
        raw, value = read_last_of(self.path, self._page_bytes, number)
        key = decode_key(raw, self.path)
        if key.index != self.next_index:
            raise damaged("is missing", self.path, self.next_index)
        decode_group(key, memoryview(value), self.path)
        self.append(key, value)

    def _check_count(self) -> None:
        """A damaged page may leave out what is behind it; the engine's own count does not. What is
        missing before is found, with its place, by whoever walks."""
        count, found = self._environment.stat()["entries"], self.next_index - self.first_index
        if found < count:
            text = f"a file of the log has {found} groups, and should have {count}"
            raise DataCorrupted(text, path=str(self.path))

    def append(self, key: GroupKey, value: bytes | bytearray) -> None:
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
        if expected != self.next_index:
            raise damaged("is missing", self.path, expected)

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
