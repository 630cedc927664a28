"""Keep one file of a log: an LMDB environment that only grows, named after its first group.

Owns: such files: how one is made so that a crash leaves a whole one or none, and how they are
opened, written and walked. One file for all groups, with pages that are used again, was tried. A
large group needs a run of adjacent pages, and pages that became free between others are no run. The
engine searched for long, and then found none (decision 017).

Invariants:
- One thread of the process that made a file writes it, while no thread reads it. So there is no
  table of readers and no lock file.
- A file was complete and durable before it had its name.
- A group is durable when `append` returns. The head that names the group becomes durable with the
  next group, and need never do so. Groups that no head names are found behind it (see `log_tail`).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from dodona_server.environment import make_environment, open_environment
from dodona_server.page_tree import check_pages
from dodona_tablets.shell.log_doubt import is_last_commit_in_doubt
from dodona_tablets.shell.log_groups import (
    GroupKey,
    damaged,
    decode_group,
    decode_key,
    other_format,
)
from dodona_tablets.shell.log_tail import Group, find_groups_behind
from dodona_tablets.shell.room import AHEAD_BYTES, STEP_BYTES, Room
from dodona_wire.errors import DataCorrupted

FIRST_INDEX: Final = 1
SUFFIX: Final = ".mdb"

FORMAT_1_NAME: Final = "data.mdb"
"""The only file of a log of format 1, which no release wrote."""
_MAP_BYTES: Final = 1 << 34
"""More bytes than one file ever has. The file itself is only as long as its content."""

Groups = Iterator[tuple[GroupKey, memoryview]]


class Place(NamedTuple):
    """A file of a log, and the index of its first group."""

    first_index: int
    path: Path


def find_segments(folder: Path) -> list[Place]:
    """Return the files of the log in this folder, in order. Empty if there is no folder. Raises
    OSError, and DataCorrupted if the log has another format."""
    names = os.listdir(folder) if folder.exists() else []
    if FORMAT_1_NAME in names:
        raise other_format(folder / FORMAT_1_NAME, 1)
    stems = [it.removesuffix(SUFFIX) for it in names if it.endswith(SUFFIX)]
    return sorted([Place(int(it), folder / f"{it}{SUFFIX}") for it in stems if it.isdecimal()])


def path_of(folder: Path, first_index: int) -> Path:
    """Return the path of the file that begins with this group."""
    return folder / f"{first_index:020}{SUFFIX}"


class Segment:
    """An open file of a log, to be read."""

    def __init__(
        self, place: Place, end_index: int | None = None, *, is_checked: bool = False
    ) -> None:
        """Open the file. The next file begins with the group `end_index`, None for the last file.
        With `is_checked`, this process has checked the pages before. Raises DataCorrupted,
        InvalidRequest."""
        self.first_index, self.path = place
        self._environment = self._opened()
        try:
            self._page_bytes: int = self._environment.stat()["psize"]
            self.size_bytes = self._used_bytes()
            """The size of the file, without the room behind its content."""
            self._check_size(self.size_bytes)
            if not is_checked:
                check_pages(self.path, may_go_on=True)
            is_in_doubt = is_last_commit_in_doubt(self.path, self._page_bytes)
            self.head_index = self._find_head_index()
            """The index after the last group that a head names."""
            self._check_count()
            self.behind: list[Group] = []
            """The groups that no head names."""
            if end_index is None or end_index > self.head_index:
                found = find_groups_behind(
                    self.path, self._page_bytes, self.head_index, has_one=is_in_doubt
                )
                self.behind = found[: end_index and end_index - self.head_index]
        except BaseException:
            self._environment.close()
            raise

    def _opened(self) -> lmdb.Environment:
        return open_environment(self.path, None)

    @property
    def place(self) -> Place:
        return Place(self.first_index, self.path)

    @property
    def next_index(self) -> int:
        """Return the index after the last group of this file."""
        return self.head_index + len(self.behind)

    def _check_size(self, wanted_bytes: int) -> None:
        """Raise DataCorrupted if the file is too short. To touch a missing part of a mapped file
        would kill the process."""
        found_bytes = self.path.stat().st_size
        if found_bytes < wanted_bytes:
            text = f"A file of the log has {found_bytes} bytes, and should have {wanted_bytes}."
            raise DataCorrupted(text, path=str(self.path))

    def _check_count(self) -> None:
        """Raise DataCorrupted if the last groups are missing. A damaged page may hide the groups
        behind it, but the engine's own count has them. A walk finds other missing groups, with
        their place."""
        count, found = self._environment.stat()["entries"], self.head_index - self.first_index
        if found < count:
            text = f"A file of the log has {found} groups, and should have {count}."
            raise DataCorrupted(text, path=str(self.path))

    def _used_bytes(self) -> int:
        last_page: int = self._environment.info()["last_pgno"]
        return (last_page + 1) * self._page_bytes

    def _find_head_index(self) -> int:
        with self._reading() as cursor:
            if cursor.last():
                return decode_key(bytes(cursor.key()), self.path).index + 1
            return self.first_index

    def walk(self, is_wanted: Callable[[GroupKey], int]) -> Groups:
        """Yield the groups that are wanted, in order, in memory that stays until the next one.
        Raises DataCorrupted if a group is missing."""
        expected = self.first_index
        with self._reading() as cursor:
            for raw in cursor.iternext(keys=True, values=False):
                key = decode_key(bytes(raw), self.path)
                if key.index != expected:
                    raise damaged("is missing", self.path, expected)
                expected += 1
                if is_wanted(key):
                    yield key, cursor.value()
        if expected != self.head_index:
            raise damaged("is missing", self.path, expected)
        yield from [(key, memoryview(value)) for key, value in self.behind if is_wanted(key)]

    def copied(self) -> list[Group] | None:
        """Return all groups, or None if a group is damaged or missing. Such a file stays as it is.
        A reader that needs the group gets an error with its place."""
        copies = []
        try:
            for key, value in self.walk(lambda _: True):
                decode_group(key, value, self.path)
                copies.append((key, bytes(value)))
        except DataCorrupted:
            return None
        return copies

    @contextmanager
    def _reading(self) -> Iterator["lmdb.Cursor[memoryview]"]:
        try:
            with self._environment.begin(buffers=True) as transaction, transaction.cursor() as it:
                yield it
        except lmdb.Error as error:
            raise DataCorrupted(f"The log can't be read: {error}", path=str(self.path)) from error

    def finish(self) -> None:
        """Close this file, because another one follows, and free the room behind its content."""
        self.close()
        if self._is_room_behind():
            os.truncate(self.path, self.size_bytes)

    def _is_room_behind(self) -> bool:
        """Return whether only zeros are behind the content. Other bytes may be the end of a group,
        if the head with the length was damaged."""
        with self.path.open("rb") as file:
            file.seek(self.size_bytes)
            return all(not part.strip(b"\0") for part in iter(partial(file.read, STEP_BYTES), b""))

    def close(self) -> None:
        self._environment.close()


class LastSegment(Segment):
    """The file that this process appends to."""

    def __init__(self, folder: Path, first_index: int, groups: Sequence[Group] = ()) -> None:
        """Make the file with these groups, durable with its name. It replaces a file that had no
        other groups, if there is one: at any time, one of the two is there. Raises OSError,
        lmdb.Error."""
        path = path_of(folder, first_index)
        make_environment(path, _MAP_BYTES, [(key.raw, value) for key, value in groups])
        super().__init__(Place(first_index, path), first_index + len(groups), is_checked=True)
        try:
            self._room = Room(path, _MAP_BYTES)
        except OSError:
            super().close()
            raise

    def _opened(self) -> lmdb.Environment:
        return open_environment(self.path, _MAP_BYTES, has_late_heads=True)

    def _is_room_behind(self) -> bool:
        return True  # this process wrote the head

    def append(self, key: GroupKey, value: bytes | bytearray) -> None:
        """Append a group, and make it durable."""
        if len(value) <= AHEAD_BYTES:  # a larger group makes the file grow anyway
            self._room.ensure(self.size_bytes)
        with self._environment.begin(write=True) as transaction:
            transaction.put(key.raw, value, append=True)
        self.head_index = key.index + 1
        self.size_bytes = self._used_bytes()

    def close(self) -> None:
        super().close()
        self._room.close()
