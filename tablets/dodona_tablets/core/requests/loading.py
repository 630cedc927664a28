"""Make chunks of bulk batches: Arrow in, a chunk out, attached at one timestamp.

Owns: which batches become chunks, how many are made at a time, and what attaching a chunk changes.
A job checks, sorts and writes a batch (see `chunks.ingest`), while the cell goes on. The batch
becomes part of the tablet in one step, at a timestamp above all that was written there before. A
batch that is too small for a file of its own is written row by row, like other writes (see
`nonatomic`).

Invariant: a batch in progress counts as a writer. So its tablet stays mounted, with the schema that
the batch was checked against.
"""

from typing import Any, Final, NamedTuple

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.records import ChunkLoaded
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.chunks.jobs import BatchJob, Built
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.cores.effects import RemoveChunks, RunJob
from dodona_wire.errors import Overloaded
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.data import WriteArrow, Written
from dodona_wire.types import LoadId, TabletId, Timestamp

BATCH_BYTES_MIN: Final = 256 << 10
"""A shorter batch of whole rows gets no chunk."""
BATCHES_MAX: Final = 32
"""The limit of one cell at a time: each batch is in memory until it is in a file."""


class BatchToken(NamedTuple):
    """A batch in progress, and the route of its caller."""

    route: Any
    tablet: TabletId
    stamp: Timestamp
    number: int
    load: LoadId


def gets_chunk(request: WriteArrow) -> bool:
    """Return whether a batch becomes a chunk. A short batch of whole rows does not."""
    return request.kind != "write" or len(request.batch) >= BATCH_BYTES_MIN


def check_batches(cell: Cell, size_bytes: int) -> None:
    """Raise Overloaded if there is no room for one more batch."""
    if cell.chunks.batch_count >= BATCHES_MAX:
        raise Overloaded("Too many batches are being written in this cell.", cell=cell.id)
    under_way_bytes = cell.chunks.batch_bytes
    if under_way_bytes and under_way_bytes + size_bytes > cell.limits.batch_bytes_max:
        text = "Too many bytes of batches are being written in this cell."
        raise Overloaded(text, cell=cell.id, size_bytes=under_way_bytes)


class Loading:
    """The handler of bulk batches. A cell has one instance."""

    def __init__(self, cell: Cell, outbox: Outbox) -> None:
        self._cell = cell
        self._outbox = outbox
        self.row_count = self.done_count = self.refused_count = 0

    def begin(self, route: Any, tablet: Tablet, request: WriteArrow) -> None:
        """Start to make a chunk of a batch for a tablet that takes writes. Raises Overloaded."""
        check_batches(self._cell, len(request.batch))
        tablet.active_count += 1
        number = self._cell.chunks.take_number()
        self._cell.chunks.begin_batch(number, len(request.batch))
        assignment = tablet.assignment
        bounds = assignment.lower, assignment.upper
        job = BatchJob(number, tablet.schema, request.batch, *bounds, kind=request.kind)
        token = BatchToken(route, request.tablet, request.stamp, number, request.load)
        self._outbox.send(RunJob(token, job))

    def handle(self, token: BatchToken, result: Built | Failure | None) -> None:
        """Attach the chunk of a batch, or answer why the batch was refused."""
        cell = self._cell
        cell.chunks.end_batch(token.number)
        tablet = cell.tablets[token.tablet]
        tablet.active_count -= 1
        if isinstance(result, Failure):
            self.refused_count += 1
            result.attributes.setdefault("table", tablet.assignment.path)
            self._outbox.reply(token.route, result)
            return
        if result is None:  # the batch had no rows
            self.done_count += 1
            self._outbox.reply(token.route, Written(0, token.stamp))
            return
        if token.load and token.load not in cell.loads.open:
            self.refused_count += 1
            self._outbox.send(RemoveChunks((token.number,)))
            self._outbox.reply(token.route, failure_of(cell.loads.ended_error(token.load)))
            return
        cell.chunks.add(token.number, result.chunk)
        attached = AttachedChunk(result.info, tablet.next_stamp(token.stamp))
        record = ChunkLoaded(token.tablet, attached)
        self._outbox.append(record)
        apply_load(cell, record)
        self.row_count += result.info.row_count
        self.done_count += 1
        self._outbox.reply(token.route, Written(result.info.row_count, attached.stamp))


def apply_load(cell: Cell, record: ChunkLoaded) -> None:
    """Attach a chunk of bulk rows to its tablet, live or in replay."""
    tablet = cell.tablets[record.tablet]
    tablet.stores.hot_rows.forget_from(record.chunk.stamp)
    tablet.stores.attach(record.chunk, cell.chunks.get(record.chunk.info.number))
    tablet.newest_stamp = max(tablet.newest_stamp, record.chunk.stamp)
