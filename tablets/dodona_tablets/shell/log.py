"""The cell's log: records appended in groups to files of LMDB, read back at a start, truncated.

Owns: the open log, which is a row of files (see `log_segments`). A group is one LMDB value under a
rising index, written in one transaction: after a crash it is there whole or not at all. When the
last file is long enough a new one is begun; a truncation removes whole files at the beginning.

Invariants:
- Each file begins with the group behind the last one of the file before.
- What is removed lies before the group of a durable checkpoint, and goes one file after the other,
  after the bounds say that it may be missing (see `log_bounds`).
- A log that lacks a file is refused before anything is made or removed.
- Nobody reads while something is appended.
- Whatever goes wrong in an append is fatal: nobody knows then what is on the disk. A file that can
  not be begun for want of descriptors is gone, durably, before the one before it grows on.
"""

import errno
import os
import threading
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from dodona_server.disk_space import DiskSpace, is_no_space, no_space_told
from dodona_tablets.core.records import Checkpoint, Record
from dodona_tablets.shell.chunk_files import CHUNKS_NAME, numbers_in
from dodona_tablets.shell.log_bounds import LogBounds, check_bounds
from dodona_tablets.shell.log_groups import CHECKPOINT, STRUCTURAL, GroupKey, encode_group
from dodona_tablets.shell.log_reading import read
from dodona_tablets.shell.log_segments import (
    FIRST_INDEX,
    OLD_NAME,
    LastSegment,
    Place,
    Segment,
    find_segments,
    path_of,
)
from dodona_wire.errors import DataCorrupted, Overloaded
from dodona_wire.net.descriptors import has_descriptors, is_out_of_descriptors
from dodona_wire.net.folder import FOLDER_MODE, LockedFolder, lock_folder, sync_folder

LOG_NAME: Final = "log"
SEGMENT_BYTES_MAX: Final = 64 << 20
"""With this a file is long enough: not too many of them, and each removed in some ms."""
SEGMENTS_MIN: Final = 16
"""Of a log that is full: where it may not grow to much, files are shorter."""
SHORT_BYTES_MAX: Final = 64 << 10
"""A last file that is not longer is copied at a start, some ms: then there is one for so much."""
SHORT_MIN: Final = 64
"""So many of them are not more than a file; where files are shorter, these are."""
SPARE_BYTES: Final = 64 << 20
"""What a full log takes more, if it is no row: what it needs to be truncated, and to start."""


GROWN_BYTES_MAX: Final = 4 << 30
"""A file that is as long and has no descriptors for a next one ends the process."""
DESCRIPTORS_MAX: Final = 8
"""More than a log needs to begin a file, besides those that it has."""


class _Older(NamedTuple):
    """A file before the last one."""

    first_index: int
    path: Path
    size_bytes: int


class CellLog:
    """An open log. `append` may be called from one worker thread while nobody reads, meanwhile
    `truncate_before` and what tells the size from others."""

    def __init__(self, folder: LockedFolder, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._segment_bytes_max = min(SEGMENT_BYTES_MAX, bytes_max // SEGMENTS_MIN)
        self._path = folder.path / LOG_NAME
        self._path.mkdir(FOLDER_MODE, exist_ok=True)
        found = find_segments(self._path)
        check_files(folder.path, found)
        (self._path / "lock.mdb").unlink(missing_ok=True)  # version 1 had one: it holds no data
        for made_in in (self._path, folder.path):
            sync_folder(made_in)
        self._begin_at_bytes = 0
        """The length of the last file with which a new one is tried again."""
        self._older: list[_Older] = []
        self._checked: set[Path] = set()
        """Files before the last one whose pages were looked at."""
        self._last: Segment
        self._bounds: LogBounds | None = None
        """None while the disk has no space for a last file."""
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        """Of the folder of the files: to remove one is to need no other."""
        try:
            self._begin_or_read(found)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._index_by_checkpoint: dict[int, int] = {}
        self._reader_count = 0
        self._truncation = threading.Lock()
        self.written_bytes = 0
        """Of the groups that were appended since it was opened."""

    @classmethod
    def open(cls, path: str | Path, bytes_max: int) -> "CellLog":
        """Take the folder and open the log in it. `bytes_max` is how large it may become.

        Raises FolderInUse, InvalidRequest, DataCorrupted, DiskFull.
        """
        folder = lock_folder(path)
        try:
            with no_space_told(folder.path):
                DiskSpace(folder.path).make_way()
                return cls(folder, bytes_max)
        except BaseException:
            folder.close()
            raise

    def _begin_or_read(self, found: list[Place]) -> None:
        if not self._begin(found):
            self._last = Segment(found[-1])
            self._older = [_Older(*it, it.path.stat().st_size) for it in found[:-1]]

    def _begin(self, found: list[Place]) -> bool:
        """Open the last file, to append to it. → whether there is space for it. Without any file
        there is nothing to be read either: then it raises what the disk said."""
        self._older.clear()
        with ExitStack() as undone:
            try:
                last = self._open_last([*found])
                undone.callback(last.close)
                places = [Place(it.first_index, it.path) for it in self._older]
                self._bounds = LogBounds.keep(self._folder.path, [*places, last.place])
            except (OSError, lmdb.Error) as error:
                if found and is_no_space(error):
                    return False
                raise
            undone.pop_all()
        self._last = last
        return True

    @property
    def is_writable(self) -> bool:
        """Whether anything can be appended: not where a full disk had no space for a new file."""
        return self._bounds is not None

    def make_writable(self) -> bool:
        """Try again to begin a file. → whether there is space for it now, and whether this process
        has the descriptors. Nobody reads or appends meanwhile."""
        if self._bounds is None and has_descriptors(DESCRIPTORS_MAX):
            found = find_segments(self._path)
            check_files(self._folder.path, found)
            self._last.close()
            self._begin_or_read(found)
        return self._bounds is not None

    def _open_last(self, found: list[Place]) -> LastSegment:
        """A new one: what another process left under way in a file would be met by later commits
        to it. A short one is replaced, else many short lives would leave as many files; and one
        without groups is, which has the new one's name."""
        if not found:
            return LastSegment(self._path, FIRST_INDEX)
        self._remove_copied(found[0])
        before = Segment(found[-1])
        groups = before.copied() if self._is_to_be_copied(before) else None
        if groups is None:
            made = LastSegment(self._path, before.head_index, before.behind)
            before.finish()
        else:
            before.close()
            found.pop()
            made = LastSegment(self._path, before.first_index, groups)
            if before.path != made.path:
                before.path.unlink()
        self._older += [_Older(*it, it.path.stat().st_size) for it in found]
        return made

    def _remove_copied(self, first: Place) -> None:
        """The file of an old version, if the last process ended between copying and removing it:
        once the copy is seen to have all of its groups. Raises DataCorrupted."""
        old_path = self._path / OLD_NAME
        if first.path == old_path or not old_path.exists():
            return
        old, copy = Segment(Place(FIRST_INDEX, old_path)), Segment(first)
        try:
            is_copied = old.next_index <= copy.next_index and copy.copied() is not None
        finally:
            old.close()
            copy.close()
        if not is_copied:
            text = f"{first.path.name} was to replace {OLD_NAME}, and has not all of its groups"
            raise DataCorrupted(text, path=str(first.path))
        old_path.unlink()

    def _is_to_be_copied(self, before: Segment) -> bool:
        short_bytes_max = min(SHORT_BYTES_MAX, self._segment_bytes_max // SHORT_MIN)
        return before.size_bytes <= short_bytes_max or before.head_index == before.first_index

    @property
    def path(self) -> Path:
        """The data folder, which is this process's as long as the log is open."""
        return self._folder.path

    # Recovery

    def read(self, checkpoint: int | None = None) -> Iterator[Record]:
        """All records in order: from this checkpoint on, or from as far back as the log goes.
        Raises DataCorrupted with the file, the group and the position of its bytes."""
        begin = FIRST_INDEX
        if checkpoint is not None:
            begin = self._index_by_checkpoint.get(checkpoint, FIRST_INDEX)
        segments = self._segments(begin)
        return self._note(read(segments, checkpoint), segments)

    def survey(self) -> Iterator[Record]:
        """As `read`, but only *structural* records: no rows and no outcomes. Groups that have only
        these are not looked at. Raises DataCorrupted."""
        segments = self._segments(FIRST_INDEX)
        return self._note(read(segments, is_survey=True), segments)

    def _segments(self, index: int) -> Generator[Segment]:
        """From the file with this group on, each open until the next is asked for."""
        begin = self._count_before(index)
        ends = [*[it.first_index for it in self._older[begin + 1 :]], self._last.first_index]
        for it, end_index in zip(self._older[begin:], ends, strict=False):
            is_checked = it.path in self._checked
            segment = Segment(Place(it.first_index, it.path), end_index, is_checked=is_checked)
            self._checked.add(it.path)
            try:
                yield segment
            finally:
                segment.close()
        yield self._last

    def _note(
        self, found: Iterator[tuple[int, Record]], segments: Generator[Segment]
    ) -> Iterator[Record]:
        """Closes the segments whatever happens: who is told of damage may open the log again."""
        self._reader_count += 1
        try:
            for index, record in found:
                if type(record) is Checkpoint:
                    self._index_by_checkpoint[record.number] = index
                yield record
        finally:
            segments.close()
            self._reader_count -= 1

    # Service

    def append(self, records: Sequence[Record]) -> None:
        """Make the records durable, all or none; blocks until they are. Any error is fatal."""
        assert self._reader_count == 0, "a log is read while something is appended to it"
        if not self.make_writable():
            raise OSError(errno.ENOSPC, "there is no space for a file of the log", str(self._path))
        index = self._last.next_index
        key, value = encode_group(index, records)
        self._check_fullness(len(value), is_structural=bool(key.flags & STRUCTURAL))
        last = self._last
        assert isinstance(last, LastSegment)
        if self._is_long_enough(key) and last.first_index < index:
            last = self._begin_segment()
        last.append(key, value)
        self.written_bytes += len(value)
        for record in records:
            if type(record) is Checkpoint:
                self._index_by_checkpoint[record.number] = index

    def _check_fullness(self, size_bytes: int, *, is_structural: bool) -> None:
        used_bytes = self.size_bytes()
        if used_bytes + size_bytes > self._bytes_max + (SPARE_BYTES if is_structural else 0):
            text = (
                f"the log is full: it has {used_bytes} bytes of {self._bytes_max}, and "
                f"{size_bytes} are to come; start it with a larger map_mib_max"
            )
            raise OSError(errno.ENOSPC, text, str(self._path))

    def _is_long_enough(self, key: GroupKey) -> bool:
        """A checkpoint rather begins a file than lies in the middle of one, where what is before it
        would have to stay."""
        bytes_max = self._segment_bytes_max
        if self._last.size_bytes < self._begin_at_bytes:
            return False
        return self._last.size_bytes >= (bytes_max // 4 if key.flags & CHECKPOINT else bytes_max)

    def _begin_segment(self) -> LastSegment:
        """→ the new file; or the full one, which grows while this process has no descriptors for a
        new one."""
        full = self._last
        assert isinstance(full, LastSegment)
        if not has_descriptors(DESCRIPTORS_MAX) and full.size_bytes < GROWN_BYTES_MAX:
            return self._put_off(full)
        try:
            self._last = begun = self._begun(full.next_index)
        except (OSError, lmdb.Error, Overloaded) as error:
            is_limit = isinstance(error, Overloaded) or is_out_of_descriptors(error)
            if not is_limit or full.size_bytes >= GROWN_BYTES_MAX:
                raise
            self._remove_begun(full.next_index)
            return self._put_off(full)
        self._begin_at_bytes = 0
        self._older.append(_Older(full.first_index, full.path, full.size_bytes))
        full.finish()
        return begun

    def _put_off(self, full: LastSegment) -> LastSegment:
        """Not again before it has grown by a quarter of a file."""
        self._begin_at_bytes = full.size_bytes + self._segment_bytes_max // 4
        return full

    def _begun(self, index: int) -> LastSegment:
        assert self._bounds is not None
        begun = LastSegment(self._path, index)
        try:
            self._bounds.move_last(index)
        except OSError:
            begun.close()
            raise
        return begun

    def _remove_begun(self, index: int) -> None:
        """What may be there of a new file: durably, before its groups come into the one before."""
        path = path_of(self._path, index)
        if path.exists():
            path.unlink()
            sync_folder(self._descriptor)

    def truncate_before(self, number: int) -> None:
        """What was appended before the checkpoint with this number, which is durable, is not needed
        any more: remove what has nothing else. Blocks for some ms a file. A number that the log
        does not have (any more) is that of an older checkpoint: there is nothing to do."""
        index = self._index_by_checkpoint.get(number, FIRST_INDEX)
        with self._truncation:
            count = self._count_before(index) if self._bounds is not None else 0
            if count:
                assert self._bounds is not None
                first_indexes = [*[it.first_index for it in self._older], self._last.first_index]
                self._bounds.move_first(first_indexes[count])
            for _ in range(count):
                self._older[0].path.unlink()
                sync_folder(self._descriptor)  # never a later one without it
                del self._older[0]
            for known, at in list(self._index_by_checkpoint.items()):
                if at < index:
                    del self._index_by_checkpoint[known]

    def _count_before(self, index: int) -> int:
        """How many files have only groups that come before this one."""
        first_indexes = [it.first_index for it in self._older]
        return max(0, bisect_right([*first_indexes, self._last.first_index], index) - 1)

    # Size

    def size_bytes(self) -> int:
        """What the log occupies, without the room behind it."""
        return sum([it.size_bytes for it in self._older]) + self._last.size_bytes

    def fill_ratio(self) -> float:
        """The same in relation to how large it may become: at 1 it takes no rows any more."""
        return self.size_bytes() / self._bytes_max

    def close(self) -> None:
        """Close and let go of the folder. A truncation that is under way is finished before."""
        with self._truncation:
            self._last.close()
            if self._bounds is not None:
                self._bounds.close()
            os.close(self._descriptor)
            self._folder.close()


def check_files(folder: Path, found: Sequence[Place]) -> None:
    """Whether the log in this data folder has the files at its ends, before anything is made of
    them. A log is begun before any chunk is: without files there are no chunks either. Raises
    DataCorrupted."""
    check_bounds(folder, found)
    if not found and numbers_in(folder / CHUNKS_NAME):
        raise DataCorrupted(
            f"{folder} has chunks but no log, and without the log the chunks mean nothing: put the "
            f"files of {folder / LOG_NAME} back, or restore a backup",
            path=str(folder),
        )
