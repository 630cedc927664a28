"""Write a DataFrame to a table: Arrow batches go from each worker straight to the tablet nodes.

Owns: the job, its tasks, and its end. The job is checked and begun once, on the driver. A job is a
load. With atomicity full, the rows of the tasks are staged, and `commit` publishes them, or they
are never visible. With atomicity none, rows are visible as they arrive, and stay if the job fails.
In both cases, the cells refuse rows of a job that is over, from any task.

Spark runs the beginning, the tasks and the end in processes that share no data. All that they need
is in the ticket, and in the messages of the tasks that count.
"""

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from dodona import LoadTicket, Published, StagedBatch
from dodona_wire.errors import CommitOutcomeUnknown
from pyspark_dodona.columns import check_frame
from pyspark_dodona.connection import connect
from pyspark_dodona.options import StreamWriteOptions, WriteOptions
from pyspark_dodona.overlap import overlapped
from pyspark_dodona.ranges import range_of

if TYPE_CHECKING:
    import pyarrow

PUBLISH_ATTEMPTS: Final = 3
"""Each attempt waits as long as a client does. A further one follows if the outcome is unknown."""

_log: Final = logging.getLogger("pyspark_dodona")


class TaskDone(WriterCommitMessage):
    """The message of a task at its end."""

    def __init__(
        self, ticket: LoadTicket, row_count: int, staged: Sequence[StagedBatch], query: str | None
    ) -> None:
        self.ticket = ticket
        self.row_count = row_count
        self.staged = list(staged)
        self.query = query
        """The id that Spark gives to the query, if the job is a stream."""


def begin(options: WriteOptions | StreamWriteOptions, frame: StructType) -> LoadTicket:
    """Check the table once, on the driver, and begin a load. So a job that can't succeed never
    starts.

    Raises TableNotFound, TableNotMounted, InvalidRequest (the table has another atomicity, or the
    clock is wrong), and SchemaViolation (the DataFrame does not fit the table)."""
    batch = options if isinstance(options, WriteOptions) else None
    if batch is not None and batch.load_ticket is not None:
        return batch.load_ticket
    db = connect(options)
    schema = db.get_table(options.path).schema
    check_frame(schema.columns, frame, options.path, options.write_mode)
    erased = None
    if options.is_overwrite:
        keys = range_of(schema, options.key_range)
        erased = {options.path: (keys.lower, keys.upper)}
    load = db.loads.begin(
        [options.path],
        atomicity=options.atomicity,
        mode=options.write_mode,
        overwrites=options.on_conflict == "overwrite",
        start_timestamp=None if batch is None else batch.start_timestamp,
        erased=erased,
        application=None if batch is None else batch.txn_app_id,
        version=None if batch is None else batch.txn_version,
        lease_ms=options.lease_s * 1000,
        owner=f"Spark, process {os.getpid()} of {socket.gethostname()}",
    )
    return load.ticket


def write_task(
    ticket: LoadTicket,
    options: WriteOptions | StreamWriteOptions,
    batches: "Iterator[pyarrow.RecordBatch]",
) -> TaskDone:
    """Write the rows of one task, each to its tablet. Raises DodonaError."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "this runs in a task"
    query = task.getLocalProperty("sql.streaming.queryId")
    if ticket.is_recorded:
        return TaskDone(ticket, 0, (), query)
    rows = _Counted(batches)
    load = connect(options).loads.join(ticket)
    attempt = task.partitionId(), task.taskAttemptId()
    staged = overlapped(
        iter(rows), lambda taken: load.write(options.path, taken, *attempt, options.durability)
    )
    return TaskDone(ticket, rows.count, staged, query)


class _Counted:
    """Batches that are counted as they pass."""

    def __init__(self, batches: "Iterator[pyarrow.RecordBatch]") -> None:
        self._batches = batches
        self.count = 0

    def __iter__(self) -> "Iterator[pyarrow.RecordBatch]":
        for batch in self._batches:
            self.count += batch.num_rows
            yield batch


def publish(
    options: WriteOptions | StreamWriteOptions, ticket: LoadTicket, done: Sequence[TaskDone]
) -> Published:
    """Make the rows of the tasks that count visible. Raises DodonaError."""
    load = connect(options).loads.join(ticket)
    staged = [batch for task in done for batch in task.staged]
    for attempt in range(PUBLISH_ATTEMPTS):
        try:
            return load.publish(staged)
        except CommitOutcomeUnknown:
            if attempt + 1 == PUBLISH_ATTEMPTS:
                raise
    raise AssertionError("an attempt returns or raises")


def tasks_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskDone]:
    """Return the messages of the tasks that completed."""
    return [it for it in messages if isinstance(it, TaskDone)]


class TableWriter(DataSourceArrowWriter):
    """A batch write. Spark creates it on the driver, and copies it to each task and to the end."""

    def __init__(self, options: WriteOptions, ticket: LoadTicket) -> None:
        self._options = options
        self._ticket = ticket

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> TaskDone:
        """Write the rows of one task. Raises DodonaError."""
        return write_task(self._ticket, self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible, if they are not yet."""
        options, done = self._options, tasks_of(messages)
        row_count = sum(task.row_count for task in done)
        if self._ticket.is_recorded:
            _log.info(
                "version %s of %s was published before", options.txn_version, options.txn_app_id
            )
            return
        published = publish(options, self._ticket, done)
        _log.info("%d rows written to %s at %d", row_count, options.path, published.timestamp)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the write, unless it was published. Spark also calls this after a commit that
        raised an error."""
        give_up(self._options, self._ticket, len(tasks_of(messages)), len(messages))


def give_up(
    options: WriteOptions | StreamWriteOptions, ticket: LoadTicket, done: int, count: int
) -> None:
    """Abort the load of a job that failed."""
    load = connect(options).loads.join(ticket)
    published = load.abort(f"the Spark job failed, with {done} of {count} tasks done")
    if published is not None:
        _log.warning("the write to %s was published before its job failed", options.path)
    elif ticket.atomicity == "none":
        _log.warning(
            "the write to %s failed. The rows of %d of %d tasks are in the table, and perhaps some "
            "rows of the others. Write all rows again, which is safe",
            *(options.path, done, count),
        )
