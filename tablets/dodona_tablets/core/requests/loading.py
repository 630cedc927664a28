"""Bulk batches: Arrow in, a chunk out, attached at one timestamp.

Owns: which batches become chunks, how many are made at once, and what attaching one changes. A
batch is checked, sorted and written by a job (see `chunks.ingest`), while the cell goes on; it
becomes part of the tablet in one step, at a stamp above all that was written there before. A batch
that is too small for a file of its own is written row by row, as other writes (see `nonatomic`).

Invariant: a batch under way counts as a writer, so that its tablet stays mounted, with the schema
that the batch was checked against.
"""

from typing import Any, Final, NamedTuple

from dodona_tablets.core.cell.cell import Cell, failure_of
from dodona_tablets.core.records import ChunkLoaded
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.chunks.jobs import BatchJob, Built
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.cores.effects import RemoveChunks, RunJob
from dodona_wire.errors import Overloaded
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import WriteArrow, Written
from dodona_wire.types import LoadId, TabletId, Timestamp

BATCH_BYTES_MIN: Final = 256 << 10
"""A batch that is shorter does not get a chunk."""
BATCHES_MAX: Final = 32
"""Under way at once in one cell: each is in memory until it is in a file."""


class BatchToken(NamedTuple):
    """A batch under way, and who waits for it."""

    route: Any
    tablet: TabletId
    stamp: Timestamp
    number: int
    load: LoadId


def gets_chunk(request: WriteArrow) -> bool:
    """Whether a batch becomes a chunk: one that is short, and of whole rows, does not."""
    return request.kind != "write" or len(request.batch) >= BATCH_BYTES_MIN


def check_batches(cell: Cell, size_bytes: int) -> None:
    """Whether there is room for one more batch. Raises Overloaded."""
    if len(cell.batches) >= BATCHES_MAX:
        raise Overloaded("too many batches are being written in this cell", cell=cell.id)
    under_way_bytes = sum(cell.batches.values())
    if under_way_bytes and under_way_bytes + size_bytes > cell.limits.batch_bytes_max:
        text = "too many bytes of batches are being written in this cell"
        raise Overloaded(text, cell=cell.id, size_bytes=under_way_bytes)


class Loading:
    """See the module. One instance a cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self.row_count = self.done_count = self.refused_count = 0

    def begin(self, route: Any, tablet: Tablet, request: WriteArrow) -> None:
        """Start to make a chunk of a batch for a tablet that takes it. Raises Overloaded."""
        check_batches(self._cell, len(request.batch))
        tablet.active_count += 1
        number = self._cell.take_chunk_number()
        self._cell.batches[number] = len(request.batch)
        assignment = tablet.assignment
        bounds = assignment.lower, assignment.upper
        job = BatchJob(number, tablet.schema, request.batch, *bounds, kind=request.kind)
        token = BatchToken(route, request.tablet, request.stamp, number, request.load)
        self._cell.effects.append(RunJob(token, job))

    def handle(self, token: BatchToken, result: Built | Failure | None) -> None:
        """The chunk is there, or the batch was not fit to become one."""
        cell = self._cell
        del cell.batches[token.number]
        tablet = cell.tablets[token.tablet]
        tablet.active_count -= 1
        if isinstance(result, Failure):
            self.refused_count += 1
            result.attributes.setdefault("table", tablet.assignment.path)
            cell.reply(token.route, result)
            return
        if result is None:  # it had no rows
            self.done_count += 1
            cell.reply(token.route, Written(0, token.stamp))
            return
        if token.load and token.load not in cell.loads.open:
            self.refused_count += 1
            cell.effects.append(RemoveChunks((token.number,)))
            cell.reply(token.route, failure_of(cell.loads.ended_error(token.load)))
            return
        cell.chunks[token.number] = result.chunk
        attached = AttachedChunk(result.info, tablet.next_stamp(token.stamp))
        record = ChunkLoaded(token.tablet, attached)
        cell.append(record)
        apply_load(cell, record)
        self.row_count += result.info.row_count
        self.done_count += 1
        cell.reply(token.route, Written(result.info.row_count, attached.stamp))


def apply_load(cell: Cell, record: ChunkLoaded) -> None:
    """What a load changes, live and in replay."""
    tablet = cell.tablets[record.tablet]
    tablet.stores.hot_rows.forget_from(record.chunk.stamp)
    tablet.stores.attach(record.chunk, cell.chunks.get(record.chunk.info.number))
    tablet.newest_stamp = max(tablet.newest_stamp, record.chunk.stamp)
