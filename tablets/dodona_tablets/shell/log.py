"""The cell's log: records appended in groups to files of LMDB, read back at a start, truncated.

Owns: the open log, which is a row of files (see `log_segments`). A group is one LMDB value under a
rising index, written in one transaction: after a crash it is there whole or not at all. When the
last file is long enough a new one is begun; a truncation removes whole files at the beginning.

Invariants:
- Each file begins with the group behind the last one of the file before.
- What is removed lies before the group of a durable checkpoint, and goes one file after the other.
- Nobody reads while something is appended.
- Whatever goes wrong in an append is fatal: nobody knows then what is on the disk.
"""

import errno
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dodona._io.folder import LockedFolder, lock_folder, sync_folder
from dodona_tablets.core.records import Checkpoint, Record
from dodona_tablets.shell.log_groups import CHECKPOINT, STRUCTURAL, GroupKey, encode_group
from dodona_tablets.shell.log_reading import read
from dodona_tablets.shell.log_segments import (
    FIRST_INDEX,
    OLD_NAME,
    LastSegment,
    Place,
    Segment,
    find_segments,
)

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
        self._path.mkdir(exist_ok=True)
        (self._path / "lock.mdb").unlink(missing_ok=True)  # version 1 had one
        for made_in in (self._path, folder.path):
            sync_folder(made_in)
        self._older: list[_Older] = []
        self._last = self._open_last()
        self._index_by_checkpoint: dict[int, int] = {}
        self._reader_count = 0
        self._truncation = threading.Lock()
        self.written_bytes = 0
        """Of the groups that were appended since it was opened."""

    @classmethod
    def open(cls, path: str | Path, bytes_max: int) -> "CellLog":
        """Take the folder and open the log in it. `bytes_max` is how large it may become.

        Raises FolderInUse, InvalidRequest, DataCorrupted.
        """
        folder = lock_folder(path)
        try:
            return cls(folder, bytes_max)
        except BaseException:
            folder.close()
            raise

    def _open_last(self) -> LastSegment:
        """A new one: what another process left under way in a file would be met by later commits
        to it. A short one is replaced, else many short lives would leave as many files; and one
        without groups is, which has the new one's name."""
        found = find_segments(self._path)
        if not found:
            return LastSegment(self._path, FIRST_INDEX)
        if found[0].path.name != OLD_NAME:  # its copy is there: the last process ended just then
            (self._path / OLD_NAME).unlink(missing_ok=True)
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
        return self._note(read(self._segments(begin), checkpoint))

    def survey(self) -> Iterator[Record]:
        """As `read`, but only *structural* records: no rows and no outcomes. Groups that have only
        these are not looked at. Raises DataCorrupted."""
        return self._note(read(self._segments(FIRST_INDEX), is_survey=True))

    def _segments(self, index: int) -> Iterator[Segment]:
        """From the file with this group on, each open until the next is asked for."""
        begin = self._count_before(index)
        ends = [*[it.first_index for it in self._older[begin + 1 :]], self._last.first_index]
        for it, end_index in zip(self._older[begin:], ends, strict=False):
            segment = Segment(Place(it.first_index, it.path), end_index)
            try:
                yield segment
            finally:
                segment.close()
        yield self._last

    def _note(self, found: Iterator[tuple[int, Record]]) -> Iterator[Record]:
        self._reader_count += 1
        try:
            for index, record in found:
                if type(record) is Checkpoint:
                    self._index_by_checkpoint[record.number] = index
                yield record
        finally:
            self._reader_count -= 1

    # Service

    def append(self, records: Sequence[Record]) -> None:
        """Make the records durable, all or none; blocks until they are. Any error is fatal."""
        assert self._reader_count == 0, "a log is read while something is appended to it"
        index = self._last.next_index
        key, value = encode_group(index, records)
        self._check_fullness(len(value), is_structural=bool(key.flags & STRUCTURAL))
        if self._is_long_enough(key) and self._last.first_index < index:
            self._begin_segment()
        self._last.append(key, value)
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
        return self._last.size_bytes >= (bytes_max // 4 if key.flags & CHECKPOINT else bytes_max)

    def _begin_segment(self) -> None:
        full = self._last
        self._last = LastSegment(self._path, full.next_index)
        self._older.append(_Older(full.first_index, full.path, full.size_bytes))
        full.finish()

    def truncate_before(self, number: int) -> None:
        """What was appended before the checkpoint with this number, which is durable, is not needed
        any more: remove what has nothing else. Blocks for some ms a file. A number that the log
        does not have (any more) is that of an older checkpoint: there is nothing to do."""
        index = self._index_by_checkpoint.get(number, FIRST_INDEX)
        with self._truncation:
            for _ in range(self._count_before(index)):
                self._older[0].path.unlink()
                sync_folder(self._path)  # never a later one without it
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
            self._folder.close()
