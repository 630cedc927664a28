"""Keep the log of a cell: append records in groups to LMDB files, read them at a start, truncate.

Owns: the open log, which is a sequence of files (see `log_segments`). A group is one LMDB value
under a rising index, written in one transaction. After a crash, a group is complete or absent. When
the last file is long enough, the log begins a new one. A truncation removes whole files at the
beginning.

Invariants:
- Each file begins with the group after the last one of the file before.
- A truncation removes only groups before a durable checkpoint. It removes one file after the other,
  after the bounds say that the file may be missing (see `log_bounds`).
- A log that lacks a file is refused before anything is made or removed.
- No thread reads while another one appends.
- Any error in an append is fatal, because the state of the disk is then unknown.
- If a file can't be begun for lack of descriptors, it is removed durably. Then the file before it
  grows on.
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
"""The length at which a file is full. So there are not too many files, and removing one takes some
ms."""
SEGMENTS_MIN: Final = 16
"""The files of a full log. If the limit of the log is small, the files are shorter."""
SHORT_BYTES_MAX: Final = 64 << 10
"""A start copies a last file that is not longer, in some ms. So the groups of many short runs are
in one file."""
SHORT_MIN: Final = 64
"""So many short files are not longer than a full one. If full files are shorter, short ones are,
too."""
SPARE_BYTES: Final = 64 << 20
"""What a full log takes in addition, if the group is structural: what truncation and a start
need."""


GROWN_BYTES_MAX: Final = 4 << 30
"""If a file has this length and there are no descriptors for a new one, the process ends."""
DESCRIPTORS_MAX: Final = 8
"""More descriptors than a log needs to begin a file, in addition to those that it has."""


class _Older(NamedTuple):
    """A file before the last one."""

    first_index: int
    path: Path
    size_bytes: int


class CellLog:
    """An open log. One worker thread may call `append` while no thread reads. Other threads may
    call `truncate_before`, and the methods for the size, at the same time."""

    epoch: Final = 0
    """The lock of the folder makes the log this process's."""

    def __init__(self, folder: LockedFolder, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._segment_bytes_max = min(SEGMENT_BYTES_MAX, bytes_max // SEGMENTS_MIN)
        self._path = folder.path / LOG_NAME
        self._path.mkdir(FOLDER_MODE, exist_ok=True)
        found = find_segments(self._path)
        check_files(folder.path, found)
        for made_in in (self._path, folder.path):
            sync_folder(made_in)
        self._begin_at_bytes = 0
        """The length of the last file at which the log tries again to begin a new one."""
        self._older: list[_Older] = []
        self._checked: set[Path] = set()
        """Files before the last one whose pages were checked."""
        self._last: Segment
        self._bounds: LogBounds | None = None
        """None while the disk has no space for a last file."""
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        """The descriptor of the folder of the files. With it, removing a file needs no other
        descriptor."""
        try:
            self._begin_or_read(found)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._index_by_checkpoint: dict[int, int] = {}
        self._reader_count = 0
        self._truncation = threading.Lock()
        self.written_bytes = 0
        """The bytes of the groups that were appended since the log was opened."""

    @classmethod
    def open(cls, path: str | Path, bytes_max: int) -> "CellLog":
        """Take the folder and open the log in it. `bytes_max` is how large the log may become.

        Raises FolderInUse, InvalidRequest, DataCorrupted, DiskFull, Overloaded.
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
        """Open the last file, to append to it. Returns whether there is space for it. Without any
        file, there is nothing to read either: then it raises the error of the disk."""
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
        """Return whether the log takes appends. It does not if a full disk had no space for a new
        file."""
        return self._bounds is not None

    def make_writable(self) -> bool:
        """Try again to begin a file. Returns whether there is space for it now, and whether this
        process has the descriptors. No thread may read or append meanwhile."""
        if self._bounds is None and has_descriptors(DESCRIPTORS_MAX):
            found = find_segments(self._path)
            check_files(self._folder.path, found)
            self._last.close()
            self._begin_or_read(found)
        return self._bounds is not None

    def _open_last(self, found: list[Place]) -> LastSegment:
        """Make a new last file. In an old file, later commits would meet what another process left
        under way. A short file is replaced, or many short runs would leave many files. A file
        without groups is replaced, too, because it has the name of the new one."""
        if not found:
            return LastSegment(self._path, FIRST_INDEX)
        before = Segment(found[-1])
        groups = before.copied() if self._is_to_be_copied(before) else None
        if groups is None:
            made = LastSegment(self._path, before.head_index, before.behind)
            before.finish()
        else:
            before.close()
            found.pop()
            made = LastSegment(self._path, before.first_index, groups)
        self._older += [_Older(*it, it.path.stat().st_size) for it in found]
        return made

    def _is_to_be_copied(self, before: Segment) -> bool:
        short_bytes_max = min(SHORT_BYTES_MAX, self._segment_bytes_max // SHORT_MIN)
        return before.size_bytes <= short_bytes_max or before.head_index == before.first_index

    @property
    def path(self) -> Path:
        """Return the data folder, which is this process's as long as the log is open."""
        return self._folder.path

    # Recovery

    def read(self, checkpoint: int | None = None) -> Iterator[Record]:
        """Yield all records in order: from this checkpoint on, or from as far back as the log goes.
        Raises DataCorrupted with the file, the group and the position of its bytes."""
        begin = FIRST_INDEX
        if checkpoint is not None:
            begin = self._index_by_checkpoint.get(checkpoint, FIRST_INDEX)
        segments = self._segments(begin)
        return self._note(read(segments, checkpoint), segments)

    def survey(self) -> Iterator[Record]:
        """Yield the *structural* records: no rows and no outcomes. Groups without structural
        records are skipped. Raises DataCorrupted."""
        segments = self._segments(FIRST_INDEX)
        return self._note(read(segments, is_survey=True), segments)

    def _segments(self, index: int) -> Generator[Segment]:
        """Yield the files from the one with this group on. Each is open until the next is asked
        for."""
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
        """Note where checkpoints are. Always close the segments: after an error about damage, the
        caller may open the log again."""
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
        """Make the records durable, all or none. Blocks until they are. Any error is fatal."""
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
                f"the log is full: it has {used_bytes} bytes of {self._bytes_max}, and the next "
                f"group has {size_bytes} bytes. Start the node with a larger map_mib_max"
            )
            raise OSError(errno.ENOSPC, text, str(self._path))

    def _is_long_enough(self, key: GroupKey) -> bool:
        """Return whether a new file should begin. A checkpoint begins one early: in the middle of a
        file, the groups before it would have to stay."""
        bytes_max = self._segment_bytes_max
        if self._last.size_bytes < self._begin_at_bytes:
            return False
        return self._last.size_bytes >= (bytes_max // 4 if key.flags & CHECKPOINT else bytes_max)

    def _begin_segment(self) -> LastSegment:
        """Return the new file, or the full one. The full one grows while this process has no
        descriptors for a new one."""
        full = self._last
        assert isinstance(full, LastSegment)
        if not has_descriptors(DESCRIPTORS_MAX) and full.size_bytes < GROWN_BYTES_MAX:
            return self._put_off(full)
        try:
            self._last = begun = self._begun(full.next_index)
        except (OSError, lmdb.Error, Overloaded) as error:
            # DiskFull is an Overloaded, too, and no lack of descriptors
            is_limit = type(error) is Overloaded or is_out_of_descriptors(error)
            if not is_limit or full.size_bytes >= GROWN_BYTES_MAX:
                raise
            self._remove_begun(full.next_index)
            return self._put_off(full)
        self._begin_at_bytes = 0
        self._older.append(_Older(full.first_index, full.path, full.size_bytes))
        full.finish()
        return begun

    def _put_off(self, full: LastSegment) -> LastSegment:
        """Return the full file. Try again when it has grown by a quarter of a file."""
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
        """Remove what may exist of a new file, durably, before its groups go into the file before
        it."""
        path = path_of(self._path, index)
        if path.exists():
            path.unlink()
            sync_folder(self._descriptor)

    def truncate_before(self, number: int) -> None:
        """Remove the files that have only groups before this checkpoint, which is durable. Blocks
        for some ms per file. If the log does not have this number (any more), it is that of an
        older checkpoint, and there is nothing to do."""
        index = self._index_by_checkpoint.get(number, FIRST_INDEX)
        with self._truncation:
            count = self._count_before(index) if self._bounds is not None else 0
            if count:
                assert self._bounds is not None
                first_indexes = [*[it.first_index for it in self._older], self._last.first_index]
                self._bounds.move_first(first_indexes[count])
            for _ in range(count):
                self._older[0].path.unlink()
                sync_folder(self._descriptor)  # never remove a later file without this one
                del self._older[0]
            for known, at in list(self._index_by_checkpoint.items()):
                if at < index:
                    del self._index_by_checkpoint[known]

    def _count_before(self, index: int) -> int:
        """Return how many files have only groups before this one."""
        first_indexes = [it.first_index for it in self._older]
        return max(0, bisect_right([*first_indexes, self._last.first_index], index) - 1)

    # Size

    def size_bytes(self) -> int:
        """Return the size of the log, without the room behind it."""
        return sum([it.size_bytes for it in self._older]) + self._last.size_bytes

    def fill_ratio(self) -> float:
        """Return the size in relation to its limit. At 1 the log takes no more rows."""
        return self.size_bytes() / self._bytes_max

    def close(self) -> None:
        """Close the log and release the folder. A truncation in progress is finished first."""
        with self._truncation:
            self._last.close()
            if self._bounds is not None:
                self._bounds.close()
            os.close(self._descriptor)
            self._folder.close()


def check_files(folder: Path, found: Sequence[Place]) -> None:
    """Raise DataCorrupted unless the log in this data folder has the files at its ends. Call this
    before the log makes any file. A log is begun before any chunk, so a folder without files of a
    log has no chunks either."""
    check_bounds(folder, found)
    if not found and numbers_in(folder / CHUNKS_NAME):
        raise DataCorrupted(
            f"{folder} has chunks but no log. Put the files of {folder / LOG_NAME} back, or "
            "restore a backup.",
            path=str(folder),
        )
