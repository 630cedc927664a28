"""Write a stream to a table. Each micro-batch is a load, which is published once.

Owns: the application and version of a batch, so that a batch that Spark repeats is not published
again. The application is the query itself, unless the user names one. The version is the batch's
number. The transaction that makes the rows visible records both.

Spark creates the writer of the tasks and the writer of the end separately, and only the latter gets
the batch's number. So the ticket comes back in the messages of the tasks.
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
    """Writes one micro-batch of a stream, or its end."""

    def __init__(self, options: StreamWriteOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._ticket: LoadTicket | None = None

    def __getstate__(self) -> dict[str, object]:
        """Begin the load if needed, and return the state that Spark copies to the tasks."""
        if self._ticket is None:
            self._ticket = begin(self._options, self._schema)
        return self.__dict__

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> TaskDone:
        """Write the rows of one task. Raises DodonaError."""
        assert self._ticket is not None, "the load begins before its tasks"
        return write_task(self._ticket, self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the rows of the batch visible, unless the batch was published before."""
        done = tasks_of(messages)
        if not done:
            return
        ticket = done[0].ticket
        if ticket.atomicity == "full":
            ticket = self._numbered(ticket, done[0].query, batchId)
        published = publish(self._options, ticket, done)
        rows = sum(task.row_count for task in done)
        if published.is_skipped:
            _log.info("batch %d of %s was published before", batchId, ticket.application)
        else:
            _log.info("batch %d: %d rows written to %s", batchId, rows, self._options.path)

    def _numbered(self, ticket: LoadTicket, query: str | None, batch: int) -> LoadTicket:
        if query is None:
            raise InvalidRequest(
                "Spark did not give the tasks the id of the query: this version of Spark is not "
                "supported"
            )
        application = self._options.txn_app_id or query
        return replace(ticket, application=application, version=batch, query=query)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort the batch. If no task has returned its ticket, the lease of the load ends it."""
        done = tasks_of(messages)
        if done:
            give_up(self._options, done[0].ticket, len(done), len(messages))
