"""Logs on a bench: records to fill them with, and ways to do to their files what nobody should.

Owns: `fill` and its records; and `write_file`, which makes a file of a log from keys and values
as a test wants them, whole or not.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import lmdb

from dodona.types import Timestamp, TransactionId
from dodona_tablets.core.records import (
    BatchWritten,
    Checkpoint,
    CommitDecided,
    Record,
    RowsWritten,
    WatermarkRaised,
)
from dodona_tablets.shell.log import LOG_NAME, CellLog
from dodona_tablets.shell.log_bounds import BOUNDS_NAME, LogBounds
from dodona_tablets.shell.log_groups import encode_group
from dodona_tablets.shell.log_segments import find_segments
from unit.tablets.cells import NON_ATOMIC, put

BYTES_MAX = 1 << 20
"""Of a log with files of 64 KiB."""
RECORDS: list[Record] = [
    CommitDecided(TransactionId(1), Timestamp(2)),
    RowsWritten(NON_ATOMIC, Timestamp(3), (put(1, 1, "x"), put(2, None))),
    WatermarkRaised(Timestamp(4)),
]


def rows(number: int, size_bytes: int = 14_000) -> BatchWritten:
    """A record of rows, of about that size: three are enough for a file."""
    return BatchWritten(NON_ATOMIC, Timestamp(number), bytes([number % 251]) * size_bytes)


def fill(log: CellLog, numbers: Iterable[int]) -> None:
    """A group with rows for each, and one with a checkpoint behind every ten."""
    for number in numbers:
        log.append([rows(number)])
        if number % 10 == 0:
            log.append([Checkpoint(number)])


def groups_of(records: Iterable[Sequence[Record]], first_index: int = 1) -> dict[bytes, bytes]:
    """Keys and values as a log would write them, one group for each."""
    groups = [encode_group(index, it) for index, it in enumerate(records, first_index)]
    return {key.raw: bytes(value) for key, value in groups}


def write_file(path: Path, groups: dict[bytes, bytes]) -> None:
    """A file of a log, with one commit for each group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 30) as environment:
        for key, value in groups.items():
            with environment.begin(write=True) as transaction:
                transaction.put(key, value)


def forget_bounds(folder: Path) -> None:
    """As a crash leaves the first file of a log: nothing says yet which files there are."""
    (folder / BOUNDS_NAME).unlink(missing_ok=True)


def renew_bounds(folder: Path) -> None:
    """Bounds of the files that are there, as if no other had ever been."""
    forget_bounds(folder)
    LogBounds.keep(folder, find_segments(folder / LOG_NAME)).close()
