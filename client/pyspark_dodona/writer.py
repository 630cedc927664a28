"""Writing a DataFrame to a table: Arrow batches, straight from each worker to the tablet nodes.

Owns: the job (checked and begun once, on the driver), its tasks, and its end. A job is a load: with
atomicity full what the tasks bring is staged, and published by `commit` or never seen; without, it
is visible as it comes, and stays if the job fails. Either way the cells take nothing of a job that
is over, from whatever task.

Spark runs the beginning, the tasks and the end in processes that know nothing of each other: all
that they need is in the ticket, and in the messages of the tasks that count.
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
from pyspark_dodona.columns import arrow_from_spark, check_frame
from pyspark_dodona.connection import connect
from pyspark_dodona.options import StreamWriteOptions, WriteOptions
from pyspark_dodona.overlap import overlapped

if TYPE_CHECKING:
    import pyarrow

PUBLISH_ATTEMPTS: Final = 3
"""Each is as patient as a client is: whoever does not know how it ended asks again."""

_log: Final = logging.getLogger("pyspark_dodona")


class TaskDone(WriterCommitMessage):
    """What a task says at its end."""

    def __init__(
        self, ticket: LoadTicket, row_count: int, staged: Sequence[StagedBatch], query: str | None
    ) -> None:
        self.ticket = ticket
        self.row_count = row_count
        self.staged = list(staged)
        self.query = query
        """The stream's own name, if it is one."""


def begin(options: WriteOptions | StreamWriteOptions, frame: StructType) -> LoadTicket:
    """Look at the table once, on the driver, so that a job that can't succeed never starts.

    Raises TableNotFound, TableNotMounted, InvalidRequest if the table is not of the job's
    atomicity, or the clock is off; SchemaViolation for a DataFrame that does not fit it.
    """
    batch = options if isinstance(options, WriteOptions) else None
    if batch is not None and batch.load_ticket is not None:
        return batch.load_ticket
    db = connect(options)
    columns = db.get_table(options.path).schema.columns
    check_frame(columns, frame, options.path, options.write_mode)
    erased = None
    if options.is_overwrite:
        bounds = options.key_range
        erased = {options.path: (None, None) if bounds is None else (bounds.lower, bounds.upper)}
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
    """One task: its rows, each to the tablet that it belongs to. Raises DodonaError."""
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
    """Batches as the client takes them, counted as they go by."""

    def __init__(self, batches: "Iterator[pyarrow.RecordBatch]") -> None:
        self._batches = batches
        self.count = 0

    def __iter__(self) -> "Iterator[pyarrow.RecordBatch]":
        for batch in self._batches:
            self.count += batch.num_rows
            yield arrow_from_spark(batch)


def publish(
    options: WriteOptions | StreamWriteOptions, ticket: LoadTicket, done: Sequence[TaskDone]
) -> Published:
    """Make visible what the tasks that count have brought. Raises DodonaError."""
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
    """The messages of tasks that came to their end."""
    return [it for it in messages if isinstance(it, TaskDone)]


class TableWriter(DataSourceArrowWriter):
    """A batch write. Made on the driver, copied to every task and to its end."""

    def __init__(self, options: WriteOptions, ticket: LoadTicket) -> None:
        self._options = options
        self._ticket = ticket

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> TaskDone:
        """One task. Raises DodonaError."""
        return write_task(self._ticket, self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done: their rows become visible now, if they are not yet."""
        options, done = self._options, tasks_of(messages)
        row_count = sum(task.row_count for task in done)
        if self._ticket.is_recorded:
            _log.info("version %s of %s is in already", options.txn_version, options.txn_app_id)
            return
        published = publish(options, self._ticket, done)
        _log.info("%d rows written to %s at %d", row_count, options.path, published.timestamp)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Unless it was published: Spark says so, too, after a commit that raised an error."""
        give_up(self._options, self._ticket, len(tasks_of(messages)), len(messages))


def give_up(
    options: WriteOptions | StreamWriteOptions, ticket: LoadTicket, done: int, count: int
) -> None:
    """Take nothing more of a job that failed."""
    load = connect(options).loads.join(ticket)
    published = load.abort(f"the Spark job failed, with {done} of {count} tasks done")
    if published is not None:
        _log.warning("the write to %s was published all the same", options.path)
    elif ticket.atomicity == "none":
        _log.warning(
            "the write to %s failed; the rows of %d of %d tasks, and perhaps some of the others, "
            "are in the table: writing all of them again is safe",
            *(options.path, done, count),
        )
