"""Check every byte of a log that no process has open, for an operator in doubt.

Owns: `verify_log`, and reading a log without taking it. The check is slower than a recovery and
trusts less. It checks the pages of each file before LMDB touches one. It also decodes groups that a
recovery would skip. It changes nothing.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from dodona_server.environment import verify_pages
from dodona_tablets.core.records import Checkpoint, ClusterJoined, Record
from dodona_tablets.shell.log import LOG_NAME, check_files
from dodona_tablets.shell.log_groups import CHECKPOINT, decode_group
from dodona_tablets.shell.log_reading import connected, read
from dodona_tablets.shell.log_segments import FIRST_INDEX, Place, Segment, find_segments
from dodona_wire.errors import DataCorrupted

Begin = Callable[[str, int], Callable[[int], None]]
"""A function to call when a step begins, with the name of the step and its bytes. It returns a
function to call with the number of bytes that are done."""


def unwatched(_step: str, _total_bytes: int) -> Callable[[int], None]:
    """Report no progress."""
    return lambda _done_bytes: None


class LogSummary(msgspec.Struct, frozen=True):
    """What a sound log has."""

    file_count: int
    first_index: int
    """The index of its first group. A truncation may have left over some of its groups."""
    group_count: int
    record_count: int
    checkpoint_count: int
    """Groups with a checkpoint."""
    size_bytes: int


def verify_log(folder: Path, begin: Begin = unwatched) -> LogSummary:
    """Check the log in this data folder, which exists and is locked: pages, order, checksums,
    records. Raises DataCorrupted with the file. If they are known, it also has the group and the
    position of its bytes."""
    places = find_segments(folder / LOG_NAME)
    check_files(folder, places)
    advance = begin("log", sum(it.path.stat().st_size for it in places))
    group_count = record_count = checkpoint_count = size_bytes = 0
    with closing(_verified(places)) as segments:
        for segment in connected(segments):
            size_bytes += segment.size_bytes
            for key, value in segment.walk(lambda _: True):
                group_count += 1
                record_count += len(decode_group(key, value, segment.path))
                checkpoint_count += bool(key.flags & CHECKPOINT)
            advance(segment.path.stat().st_size)
    first_index = places[0].first_index
    if first_index != FIRST_INDEX and checkpoint_count == 0:
        text = "The log is incomplete: it has no first group and no checkpoint."
        raise DataCorrupted(text, path=str(places[0].path))
    return LogSummary(
        len(places), first_index, group_count, record_count, checkpoint_count, size_bytes
    )


def read_log(folder: Path, *, is_survey: bool = False) -> Iterator[Record]:
    """Yield what a recovery reads, in order: see `log_reading.read`. Raises DataCorrupted."""
    places = find_segments(folder / LOG_NAME)
    with closing(_opened(places)) as segments:
        for _, record in read(segments, is_survey=is_survey):
            yield record


def has_joined(folder: Path) -> bool:
    """Return whether the log in this data folder is that of a cell of a cluster. A damaged log is,
    because a new log has nothing to be damaged. A folder that does not exist is no error."""
    try:
        records = read_log(folder, is_survey=True) if find_segments(folder / LOG_NAME) else ()
        return any(
            isinstance(it, ClusterJoined) or (isinstance(it, Checkpoint) and it.cluster)
            for it in records
        )
    except DataCorrupted:
        return True


def _verified(places: Sequence[Place]) -> Generator[Segment]:
    for place in places:
        verify_pages(place.path)
    yield from _opened(places)


def _opened(places: Sequence[Place]) -> Generator[Segment]:
    ends: list[int | None] = [*[it.first_index for it in places[1:]], None]
    for place, end_index in zip(places, ends, strict=True):
        segment = Segment(place, end_index)
        try:
            yield segment
        finally:
            segment.close()
