"""A look at every byte of a log that nobody has open: what an operator asks for in doubt.

Owns: `verify_log`. It is slower than a recovery and trusts less: each file's pages are checked
before the engine touches any, and groups that a recovery would pass over are decoded too. Changes
nothing.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from lmdb.verify import VerifyError, verify

from dodona._io.folder import lock_folder
from dodona.errors import DataCorrupted, InvalidRequest
from dodona_tablets.shell.log import LOG_NAME
from dodona_tablets.shell.log_groups import CHECKPOINT, decode_group
from dodona_tablets.shell.log_reading import connected
from dodona_tablets.shell.log_segments import FIRST_INDEX, Place, Segment, find_segments


class LogSummary(msgspec.Struct, frozen=True):
    """What a sound log has."""

    first_index: int
    """Of its groups, of which some may have been left over by a truncation."""
    group_count: int
    record_count: int
    checkpoint_count: int
    """Groups with a checkpoint."""
    size_bytes: int


def verify_log(path: str | Path) -> LogSummary:
    """Check the log in this data folder: pages, order, checksums, records.

    Raises DataCorrupted with the file, and with the group and the position of its bytes where they
    are known; FolderInUse, InvalidRequest.
    """
    folder = Path(path)
    if not find_segments(folder / LOG_NAME):
        raise InvalidRequest(f"there is no log in {folder}", path=str(folder))
    lock = lock_folder(folder)
    try:
        return _verify(find_segments(folder / LOG_NAME))
    finally:
        lock.close()


def _verify(places: Sequence[Place]) -> LogSummary:
    group_count = record_count = checkpoint_count = size_bytes = 0
    for segment in connected(_opened(places)):
        size_bytes += segment.size_bytes
        for key, value in segment.walk(lambda _: True):
            group_count += 1
            record_count += len(decode_group(key, value, segment.path))
            checkpoint_count += bool(key.flags & CHECKPOINT)
    first_index = places[0].first_index
    if first_index != FIRST_INDEX and checkpoint_count == 0:
        text = "the log has neither its beginning nor a checkpoint"
        raise DataCorrupted(text, path=str(places[0].path))
    return LogSummary(first_index, group_count, record_count, checkpoint_count, size_bytes)


def _opened(places: Sequence[Place]) -> Iterator[Segment]:
    for place in places:
        _verify_pages(place.path)
        segment = Segment(*place, is_last=False)
        try:
            yield segment
        finally:
            segment.close()


def _verify_pages(path: Path) -> None:
    try:
        complaints = verify(str(path))  # type: ignore[no-untyped-call]  # it has no types
    except VerifyError as error:
        complaints = [str(error)]
    if complaints:
        text = f"a file of the log is damaged in {len(complaints)} places: {complaints[0]}"
        raise DataCorrupted(text, path=str(path))
