"""Read a log from its beginning to its end: every group is there, whole and in its place.

Owns: the order of reading, where reading may begin, and what it may skip. A log that has its first
group is read from there. A log that was truncated is read from the first checkpoint that it has.
Groups before that are left over, because a truncation removes whole files.

The thread that reads checks the checksums. The system reads ahead by itself, file after file. On
two cores, another thread for the checksums gained nothing: each group would cost it the
interpreter's lock.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from dodona_tablets.core.records import ROW_RECORDS, Checkpoint, Record
from dodona_tablets.shell.log_groups import (
    CHECKPOINT,
    STRUCTURAL,
    GroupKey,
    damaged,
    decode_group,
)
from dodona_tablets.shell.log_segments import FIRST_INDEX
from dodona_wire.errors import DataCorrupted


class Stored(Protocol):
    """A part of a log, such as a file."""

    @property
    def first_index(self) -> int: ...
    @property
    def next_index(self) -> int: ...
    @property
    def path(self) -> Path: ...
    def walk(
        self, is_wanted: Callable[[GroupKey], int]
    ) -> Iterator[tuple[GroupKey, memoryview]]: ...


Part = TypeVar("Part", bound=Stored)


def read(
    segments: Iterable[Stored], checkpoint: int | None = None, *, is_survey: bool = False
) -> Iterator[tuple[int, Record]]:
    """Yield all records in order, with the indexes of their groups. They begin at this checkpoint,
    or as far back as the log is whole. A survey leaves out `ROW_RECORDS`, and skips groups that
    have no other records. Raises DataCorrupted."""
    is_begun: bool | None = None

    def is_wanted(key: GroupKey) -> int:
        if is_begun and not is_survey:
            return True
        return key.flags & (STRUCTURAL if is_begun else CHECKPOINT)

    for segment in connected(segments):
        if is_begun is None:
            is_begun = segment.first_index == FIRST_INDEX and checkpoint is None
        for key, value in segment.walk(is_wanted):
            records = decode_group(key, value, segment.path)
            if not is_begun:
                records = _from_checkpoint(records, checkpoint)
                is_begun = bool(records)
            for record in records:
                if not is_survey or type(record) not in ROW_RECORDS:
                    yield key.index, record
    if not is_begun:
        wanted = "a checkpoint to begin with" if checkpoint is None else f"checkpoint {checkpoint}"
        raise DataCorrupted(f"The log does not have {wanted}.", path=str(segment.path.parent))


def connected(segments: Iterable[Part]) -> Iterator[Part]:
    """Yield each file after the one before it was walked. Raises DataCorrupted if one is
    missing."""
    expected: int | None = None
    for segment in segments:
        if expected not in (None, segment.first_index):
            raise damaged("is missing", segment.path, expected)
        yield segment
        expected = segment.next_index


def _from_checkpoint(records: list[Record], number: int | None) -> list[Record]:
    """Return the records from this checkpoint on, or from any. Empty if it is not here."""
    for place, record in enumerate(records):
        if type(record) is Checkpoint and number in (None, record.number):
            return records[place:]
    return []
