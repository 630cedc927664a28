"""Writing a stream to a table: every micro-batch is a load, published once.

Owns: what a batch is called, so that one that Spark runs again is not published again: the
application (the query itself, unless the user names one), and the batch's number as its version.
Both are recorded by the transaction that makes the rows visible.

Spark makes the writer of the tasks and that of the end separately, and tells only the latter the
batch's number: the ticket comes back with the tasks' messages.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from dodona import LoadTicket
from dodona_wire.errors import InvalidRequest
from pyspark_dodona.options import StreamWriteOptions
from pyspark_dodona.writer import TaskDone, begin, give_up, publish, tasks_of, write_task

if TYPE_CHECKING:
    import pyarrow

_log: Final = logging.getLogger("pyspark_dodona")


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch of a stream, or its end."""

    def __init__(self, options: StreamWriteOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._ticket: LoadTicket | None = None

    def __getstate__(self) -> dict[str, object]:
        """Copied to the tasks: now at the latest the load has to be there."""
        if self._ticket is None:
            self._ticket = begin(self._options, self._schema)
        return self.__dict__

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> TaskDone:
        """One task. Raises DodonaError."""
        assert self._ticket is not None, "the load begins before its tasks"
        return write_task(self._ticket, self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The batch becomes visible now, unless it was before."""
        done = tasks_of(messages)
        if not done:
            return
        ticket = done[0].ticket
        if ticket.atomicity == "full":
            ticket = self._numbered(ticket, done[0].query, batchId)
        published = publish(self._options, ticket, done)
        rows = sum(task.row_count for task in done)
        if published.is_skipped:
            _log.info("batch %d of %s is in already", batchId, ticket.application)
        else:
            _log.info("batch %d: %d rows written to %s", batchId, rows, self._options.path)

    def _numbered(self, ticket: LoadTicket, query: str | None, batch: int) -> LoadTicket:
        if query is None:
            raise InvalidRequest(
                "Spark did not tell the tasks which query they belong to: this version of Spark "
                "is not known"
            )
        application = self._options.txn_app_id or query
        return replace(ticket, application=application, version=batch, query=query)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Take nothing more of the batch. Where no task has told its ticket, the lease ends it."""
        done = tasks_of(messages)
        if done:
            give_up(self._options, done[0].ticket, len(done), len(messages))
