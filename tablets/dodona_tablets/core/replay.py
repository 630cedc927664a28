"""Recovery: fold the log into a cell, record by record, through the live `apply`.

Owns: what each record means. Locks of prepared transactions are taken again; times of read locks
are not rebuilt, since the restart fence lets nobody in who could need them.
"""

from collections.abc import Callable
from typing import Any, Final

from dodona._core.messages import TabletModifications
from dodona.types import CellId, Timestamp, TransactionId
from dodona_tablets.core.cell import Cell
from dodona_tablets.core.importing import take_over, take_page
from dodona_tablets.core.participant import ABORTED, acquire_all
from dodona_tablets.core.records import (
    AbortDecided,
    AllAcknowledged,
    BatchWritten,
    ClusterJoined,
    CommitDecided,
    CommittedHere,
    PreparedHere,
    Record,
    RowsTaken,
    RowsWritten,
    TabletAdjusted,
    TabletMounted,
    TabletUnmounted,
    VersionsRetired,
    WatermarkRaised,
)
from dodona_tablets.core.retention import Terms, retire
from dodona_tablets.core.tablet import Tablet
from dodona_tablets.core.transaction import State, Transaction


def replay(cell: Cell, record: Record) -> None:
    """Apply one record. Records come in the order in which they were appended."""
    MEANINGS[type(record)](cell, record)


def _rows_written(cell: Cell, record: RowsWritten) -> None:
    cell.tablets[record.tablet].apply_stamped(record.writes, record.stamp, record.special)


def _batch_written(cell: Cell, record: BatchWritten) -> None:
    tablet = cell.tablets[record.tablet]
    tablet.apply_stamped(tablet.writes_of_batch(record.batch), record.stamp)


def _versions_retired(cell: Cell, record: VersionsRetired) -> None:
    """Rows that are left without versions stay until the next pass: nobody can tell."""
    tablet = cell.tablets[record.tablet]
    terms = Terms(record.retained, record.expired, record.settings)
    for key in record.keys:
        retire(tablet.store.rows[key].versions, terms, tablet.schema.value_columns)
    tablet.retained_timestamp = max(tablet.retained_timestamp, record.retained)


def _abort_decided(cell: Cell, record: AbortDecided) -> None:
    cell.finish_refused(cell.transactions[record.transaction], ABORTED)


def _all_acknowledged(cell: Cell, record: AllAcknowledged) -> None:
    alive = cell.transactions[record.transaction]
    alive.unacknowledged = ()
    cell.finish_committed(alive)


def _watermark_raised(cell: Cell, record: WatermarkRaised) -> None:
    cell.outcomes.raise_watermark(record.timestamp)


def _unmounted(cell: Cell, record: TabletUnmounted) -> None:
    cell.tablets[record.tablet].unmount()


def _mounted(cell: Cell, record: TabletMounted) -> None:
    known = cell.tablets.get(record.assignment.tablet)
    if known is None:
        tablet = cell.tablets[record.assignment.tablet] = Tablet(record.assignment)
        take_over(cell, tablet)
    else:
        known.mount(record.assignment)


def _adjusted(cell: Cell, record: TabletAdjusted) -> None:
    cell.tablets[record.tablet].adjust(record.mode, record.settings)


def _rows_taken(cell: Cell, record: RowsTaken) -> None:
    take_page(cell.tablets[record.page.target], record.page)


def _cluster_joined(cell: Cell, record: ClusterJoined) -> None:
    cell.cluster = record.cluster


def _committed_here(cell: Cell, record: CommittedHere) -> None:
    for part in record.modifications:
        cell.tablets[part.tablet].apply(part.writes, record.timestamp, part.special)
    cell.latest = max(cell.latest, record.timestamp)
    cell.outcomes.put(record.transaction, record.timestamp)


def _prepared_here(cell: Cell, record: PreparedHere) -> None:
    alive = _transaction(cell, record.transaction, record.participants, record.modifications)
    acquire_all(alive)
    alive.state = State.PREPARED
    alive.prepare_timestamp = record.timestamp
    cell.latest = max(cell.latest, record.timestamp)


def _transaction(
    cell: Cell,
    transaction: TransactionId,
    participants: tuple[CellId, ...],
    modifications: tuple[TabletModifications, ...],
) -> Transaction:
    alive = Transaction(
        transaction, Timestamp(transaction), participants, modifications, cell.now.instant_us
    )
    alive.tablets = tuple([cell.tablets[part.tablet] for part in modifications])
    cell.transactions[transaction] = alive
    return alive


def _commit_decided(cell: Cell, record: CommitDecided) -> None:
    alive = cell.transactions[record.transaction]
    cell.apply(alive, record.timestamp)
    cell.latest = max(cell.latest, record.timestamp)
    if alive.coordinator == cell.id:
        alive.unacknowledged = tuple([it for it in alive.participants if it != cell.id])
    else:
        cell.finish_committed(alive)


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
    VersionsRetired: _versions_retired,
    TabletAdjusted: _adjusted,
    RowsTaken: _rows_taken,
    ClusterJoined: _cluster_joined,
}
