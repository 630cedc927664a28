"""Replay the log into a cell, record by record, through the same `apply` as live traffic.

Owns: the meaning of each record. Locks of prepared transactions are taken again. Times of read
locks are not rebuilt: the restart fence admits no transaction that could need them.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.commit.participant import ABORTED
from dodona_tablets.core.commit.taking import take_locks
from dodona_tablets.core.mounting.importing import take_over, take_page
from dodona_tablets.core.records import (
    AbortDecided,
    AllAcknowledged,
    BatchWritten,
    Checkpoint,
    ChunkLoaded,
    ChunksCompacted,
    ChunkStaged,
    ClusterJoined,
    CommitDecided,
    CommittedHere,
    CommitUndelivered,
    LoadClosed,
    LoadOpened,
    PreparedHere,
    Record,
    RowsTaken,
    RowsWritten,
    StoreFlushed,
    StoreRotated,
    TabletAdjusted,
    TabletMounted,
    TabletsDropped,
    TabletUnmounted,
    WatermarkRaised,
)
from dodona_tablets.core.requests.loading import apply_load
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_tablets.core.upkeep.compaction import apply_compaction
from dodona_tablets.core.upkeep.flushing import apply_flush
from dodona_tablets.core.upkeep.truncation import checkpoint_of
from dodona_wire.messages.catalog import TabletAssignment
from dodona_wire.messages.data import TabletModifications
from dodona_wire.types import NO_CLUSTER, CellId, Timestamp, TransactionId


def replay(cell: Cell, record: Record) -> None:
    """Apply one record. Records come in the order in which they were appended."""
    MEANINGS[type(record)](cell, record)


def foresee(cell: Cell, record: Record) -> None:
    """Note what a record means for the records before it, before anything is replayed. Rows in
    stores that are flushed or dropped later need not be made again."""
    if isinstance(record, StoreFlushed):
        cell.foresee_flush(record.tablet, record.store)
    elif isinstance(record, TabletsDropped):
        for tablet in record.tablets:
            cell.foresee_flush(tablet, sys.maxsize)


def _tablet(cell: Cell, assignment: TabletAssignment) -> Tablet:
    made = Tablet(assignment, cell.flushed_ahead.get(assignment.tablet, 0))
    cell.add(made)
    made.has_been_served = True
    return made


def _rows_written(cell: Cell, record: RowsWritten) -> None:
    tablet = cell.tablets[record.tablet]
    tablet.apply_stamped(tablet.checked(record.writes, record.special), record.stamp)


def _batch_written(cell: Cell, record: BatchWritten) -> None:
    tablet = cell.tablets[record.tablet]
    tablet.apply_stamped(tablet.checked_batch(record.batch), record.stamp)


def _abort_decided(cell: Cell, record: AbortDecided) -> None:
    cell.finish_refused(cell.transactions[record.transaction], ABORTED)


def _all_acknowledged(cell: Cell, record: AllAcknowledged) -> None:
    alive = cell.transactions[record.transaction]
    alive.unacknowledged = ()
    cell.finish_committed(alive)


def _watermark_raised(cell: Cell, record: WatermarkRaised) -> None:
    cell.outcomes.raise_watermark(record.timestamp)


def _unmounted(cell: Cell, record: TabletUnmounted) -> None:
    cell.unmount(cell.tablets[record.tablet])


def _mounted(cell: Cell, record: TabletMounted) -> None:
    known = cell.tablets.get(record.assignment.tablet)
    if known is None:
        tablet = _tablet(cell, record.assignment)
        take_over(cell, tablet)
    else:
        known.mount(record.assignment)


def _adjusted(cell: Cell, record: TabletAdjusted) -> None:
    cell.tablets[record.tablet].adjust(record.mode, record.settings)


def _rows_taken(cell: Cell, record: RowsTaken) -> None:
    take_page(cell.tablets[record.page.target], record.page)


def _cluster_joined(cell: Cell, record: ClusterJoined) -> None:
    cell.join(record.cluster)


# Stores


def _store_rotated(cell: Cell, record: StoreRotated) -> None:
    cell.tablets[record.tablet].stores.rotate()


def _store_flushed(cell: Cell, record: StoreFlushed) -> None:
    """Attach the chunks and drop the store. The restart fence admits no transaction that could
    conflict with its rows."""
    apply_flush(cell, record)
    cell.tablets[record.tablet].stores.drop(record.store)
    _note_chunks(cell, record.chunks)


def _chunks_compacted(cell: Cell, record: ChunksCompacted) -> None:
    apply_compaction(cell, record)
    _note_chunks(cell, record.chunks)


def _chunk_loaded(cell: Cell, record: ChunkLoaded) -> None:
    apply_load(cell, record)
    _note_chunks(cell, (record.chunk,))


def _note_chunks(cell: Cell, chunks: Iterable[AttachedChunk]) -> None:
    """Note that the numbers of these chunks are taken."""
    for attached in chunks:
        cell.chunks.note_number(attached.info.number)


def _tablets_dropped(cell: Cell, record: TabletsDropped) -> None:
    cell.drop(record.tablets, record.revision)


def _checkpoint(cell: Cell, record: Checkpoint) -> None:
    """Restore the state from a checkpoint at the beginning of a log that was cut. Anywhere else, a
    checkpoint has the state that replay has reached. A cell with fault points checks that."""
    if cell.cluster == NO_CLUSTER and not cell.tablets:
        _restore(cell, record)
    cell.note_checkpoint(record.number)
    cell.chunks.restore_numbers(record.next_chunk)
    if cell.injects_faults:
        seen = replace(checkpoint_of(cell), outcomes=record.outcomes)
        assert seen == record, "replay came to another state"


def _restore(cell: Cell, record: Checkpoint) -> None:
    cell.join(record.cluster)
    cell.note_dropped(record.dropped_revision)
    cell.outcomes.raise_watermark(record.watermark)
    for transaction, timestamp in record.outcomes:
        cell.outcomes.put(transaction, timestamp)
    for state in record.tablets:
        tablet = _tablet(cell, state.assignment)
        tablet.is_mounted = state.is_mounted
        tablet.retained_timestamp, tablet.newest_stamp = state.retained, state.newest_stamp
        tablet.missing = dict(state.missing)
        tablet.stores.restore(state.chunks, state.unflushed, state.active)
    cell.loads.restore(record.loads, record.loads_ended, record.loads_forgotten)
    for prepared in record.prepared:
        _prepared_here(cell, prepared)
    for decided in record.undelivered:
        _undelivered(cell, decided)


def _undelivered(cell: Cell, record: CommitUndelivered) -> None:
    """Restore a commit that other cells have not acknowledged. Its versions are in stores
    already."""
    alive = _transaction(cell, record.transaction, record.participants, ())
    alive.state = State.COMMITTED
    alive.commit_timestamp = record.timestamp
    alive.unacknowledged = tuple([it for it in alive.participants if it != cell.id])
    cell.note_issued(record.timestamp)


# Transactions


def _committed_here(cell: Cell, record: CommittedHere) -> None:
    for part in record.modifications:
        cell.apply_part(cell.tablets[part.tablet], part, record.timestamp)
    cell.note_issued(record.timestamp)
    cell.outcomes.put(record.transaction, record.timestamp)


def _prepared_here(cell: Cell, record: PreparedHere) -> None:
    alive = _transaction(cell, record.transaction, record.participants, record.modifications)
    take_locks(cell, alive)
    alive.state = State.PREPARED
    alive.prepare_timestamp = record.timestamp
    cell.note_issued(record.timestamp)


def _transaction(
    cell: Cell,
    transaction: TransactionId,
    participants: tuple[CellId, ...],
    modifications: tuple[TabletModifications, ...],
) -> Transaction:
    alive = Transaction(
        transaction, Timestamp(transaction), participants, modifications, cell.now.instant_us
    )
    cell.begin(alive)
    return alive


def _commit_decided(cell: Cell, record: CommitDecided) -> None:
    alive = cell.transactions[record.transaction]
    cell.apply(alive, record.timestamp)
    cell.note_issued(record.timestamp)
    if alive.coordinator == cell.id:
        alive.unacknowledged = tuple([it for it in alive.participants if it != cell.id])
    else:
        cell.finish_committed(alive)


# Loads


def _load_opened(cell: Cell, record: LoadOpened) -> None:
    cell.loads.apply_open(record)


def _chunk_staged(cell: Cell, record: ChunkStaged) -> None:
    cell.loads.open[record.load].add(record.staged)
    _note_chunks(cell, (record.staged.chunk,))


def _load_closed(cell: Cell, record: LoadClosed) -> None:
    cell.loads.apply_close(record.load, record.reason)


MEANINGS: Final[dict[type[Any], Callable[[Cell, Any], None]]] = {
    CommittedHere: _committed_here,
    PreparedHere: _prepared_here,
    CommitDecided: _commit_decided,
    AbortDecided: _abort_decided,
    AllAcknowledged: _all_acknowledged,
    WatermarkRaised: _watermark_raised,
    RowsWritten: _rows_written,
    BatchWritten: _batch_written,
    TabletMounted: _mounted,
    TabletUnmounted: _unmounted,
    TabletAdjusted: _adjusted,
    RowsTaken: _rows_taken,
    ClusterJoined: _cluster_joined,
    StoreRotated: _store_rotated,
    StoreFlushed: _store_flushed,
    ChunksCompacted: _chunks_compacted,
    ChunkLoaded: _chunk_loaded,
    TabletsDropped: _tablets_dropped,
    LoadOpened: _load_opened,
    ChunkStaged: _chunk_staged,
    LoadClosed: _load_closed,
    Checkpoint: _checkpoint,
}
