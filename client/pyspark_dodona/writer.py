"""Writing a DataFrame to a table: Arrow batches, straight from each worker to the tablet nodes.

Owns: the job (checked and stamped once, on the driver) and its tasks. A write is not atomic: rows
are visible as they arrive, a task that Spark repeats writes the same rows again, and nothing is
taken back when a job fails.
"""

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from dodona.errors import InvalidRequest, TableNotMounted
from dodona.types import Timestamp, timestamp_from_unix_us, unix_us_from_timestamp
from pyspark_dodona.columns import arrow_from_spark, check_frame
from pyspark_dodona.connection import connect
from pyspark_dodona.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow

GROUP_BYTES: Final = 64 << 20
"""Of batches that are handed to the client together, so that it has long messages to send: Spark
makes batches of 10,000 rows, or of 64 MB if that is less."""

STAMP_AGE_S_MAX: Final = 30
"""Nodes refuse a stamp that is a minute off: later rows of a long job get the time of sending."""

_log: Final = logging.getLogger("pyspark_dodona")


class TaskDone(WriterCommitMessage):
    """What a task says at its end."""

    def __init__(self, row_count: int) -> None:
        self.row_count = row_count


def check_job(options: WriteOptions, frame: StructType) -> None:
    """Look at the table once, on the driver, so that a job that can't succeed never starts.

    Raises TableNotFound, TableNotMounted, InvalidRequest for a table that is atomic, and
    SchemaViolation for a DataFrame that does not fit it.
    """
    table = connect(options.url).get_table(options.path)
    if table.atomicity != "none":
        raise InvalidRequest(
            f"table {options.path} is atomic, and a Spark write is not a transaction: "
            "write to a table made with atomicity='none'"
        )
    if not table.is_mounted:
        raise TableNotMounted(f"table {options.path} is not mounted: mount it, then write")
    check_frame(table.schema.columns, frame, options.path)


class TableWriter(DataSourceArrowWriter):
    """Made on the driver, copied to every task, and so is its stamp: of two jobs that follow each
    other, the later one wins in every row, whichever of its tasks came first."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._job_stamp = timestamp_from_unix_us(_unix_us())

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> TaskDone:
        """One task: its rows, each to the tablet that it belongs to. Raises DodonaError."""
        options = self._options
        row_count = 0
        for group in _groups(iterator):
            row_count += connect(options.url).write_arrow(
                options.path, group, durability=options.durability, stamp=self._stamp()
            )
        return TaskDone(row_count)

    def _stamp(self) -> Timestamp | None:
        """The job's, while nodes take it; None has the client stamp by its clock."""
        age_us = _unix_us() - unix_us_from_timestamp(self._job_stamp)
        return self._job_stamp if age_us < STAMP_AGE_S_MAX * 1_000_000 else None

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All rows are in the table already: nothing is left to do but to say so."""
        row_count = sum(it.row_count for it in messages if isinstance(it, TaskDone))
        _log.info("%d rows written to %s", row_count, self._options.path)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written stays: without atomicity there is nothing to roll back."""
        done = sum(isinstance(it, TaskDone) for it in messages)
        _log.warning(
            "the write to %s failed; the rows of %d of %d tasks, and perhaps some of the others, "
            "are in the table: writing all of them again is safe",
            *(self._options.path, done, len(messages)),
        )


def _groups(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[list[pyarrow.RecordBatch]]":
    group: list[pyarrow.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        group.append(arrow_from_spark(batch))
        size_bytes += batch.nbytes
        if size_bytes >= GROUP_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def _unix_us() -> int:
    return time.time_ns() // 1000
