"""Check which transactions may begin to commit in this cell, and which never may.

Owns: the checks of a transaction and of its modifications, before it takes any lock:
- the fence (rule 9 of `docs/explanation/commit-protocol.md`);
- the life of a transaction;
- the limits of number and size;
- room in memory and in the log.

These checks do not look at the rows and locks of tablets. They change nothing: `participant`
records refusals.
"""

from collections.abc import Sequence
from typing import Final

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.upkeep.flushing import is_full
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    SnapshotTooOld,
)
from dodona_wire.messages.data import CommitOne, Prepare, TabletModifications
from dodona_wire.rows.sizes import wire_bytes
from dodona_wire.types import NO_OWNER, TIMESTAMP_COUNTER_BITS, CellId, Owner, TransactionId

CHUNKS_MAX: Final = 300
"""A tablet with so many chunks takes no writes, because compaction is behind."""

READS_MAX: Final = 10_000
"""The most ranges that a transaction has read in one cell. A client merges them above 1,000, then
divides them among the tablets."""


def why_never(body: CommitOne | Prepare, owner: Owner = NO_OWNER) -> str | None:
    """Return why no cell takes such a request, or None. `owner` has early locks."""
    if type(body) is Prepare:
        if len(body.participants) < 2:
            return "A prepare needs two or more participants. Use CommitOne for one cell."
    elif body.is_blind and owner:  # type: ignore[union-attr]  # it is a CommitOne
        return "A blind transaction has no early locks. Begin one with a start timestamp."
    elif body.is_blind and any(part.locks or part.reads for part in body.modifications):  # type: ignore[union-attr]  # it is a CommitOne
        return "A blind transaction reads and locks no rows. Begin one with a start timestamp."
    return None


def check_transaction(
    cell: Cell, transaction: TransactionId, participants: tuple[CellId, ...]
) -> None:
    """Check a transaction without its modifications. Raises InvalidRequest, Overloaded, DiskFull,
    SnapshotTooOld."""
    is_alone = len(participants) == 1
    if cell.id not in participants or not (is_alone or are_distinct(participants)):
        raise InvalidRequest("This cell is not a participant.", cell=cell.id)
    is_full = len(cell.transactions) >= cell.limits.transactions_alive_max
    if is_full or (cell.injects_faults and cell.fault_at(FaultPoint.PRETEND_OVERLOADED)):
        raise Overloaded("Too many transactions are committing in this cell.", cell=cell.id)
    cell.room.check_log()
    if has_outlived(cell, transaction):
        life_s_max = cell.limits.transaction_life_s_max
        raise SnapshotTooOld(f"The transaction is older than {life_s_max} s. Begin again.")


def check_lease(what: str, lease_ms: int, lease_ms_max: int) -> None:
    """Raise InvalidRequest if a lease is longer than the limit. Snapshots and loads share this
    rule: a caller gets the lease that it asked for, or none."""
    if lease_ms > lease_ms_max:
        text = f"A {what} has a lease of at most {lease_ms_max} ms, not {lease_ms}."
        raise InvalidRequest(text, lease_ms=lease_ms, lease_ms_max=lease_ms_max)


def check_parts(
    cell: Cell,
    transaction: TransactionId,
    modifications: tuple[TabletModifications, ...],
    tablets: tuple[Tablet, ...],
) -> None:
    """Check the modifications of a transaction. Raises InvalidRequest, LimitExceeded,
    SnapshotTooOld, and the errors that tablets raise."""
    limits = cell.limits
    if len(modifications) > 1 and not are_distinct([part.tablet for part in modifications]):
        text = "The transaction has two parts for one tablet. Send one part per tablet."
        raise InvalidRequest(text, cell=cell.id)
    rows_left, bytes_left = limits.transaction_rows_max, limits.transaction_bytes_max
    reads_left = READS_MAX
    for tablet, part in zip(tablets, modifications, strict=True):
        rows_left -= len(part.writes) + len(part.locks)
        if rows_left < 0:
            text = f"The transaction has more than {limits.transaction_rows_max} rows. Split it."
            raise LimitExceeded(text)
        reads_left -= len(part.reads)
        if reads_left < 0:
            text = f"The transaction has read more than {READS_MAX} ranges. Split it."
            raise LimitExceeded(text)
        if transaction <= tablet.fence:  # rule 9
            text = (
                "The transaction began before the tablet was mounted or its cell restarted. Begin "
                "again."
            )
            raise SnapshotTooOld(text, table=tablet.assignment.path)
        tablet.check_open(is_reader=part.only_reads)
        if not tablet.is_atomic:
            raise atomicity_mismatch("full", "none", tablet)
        if not part.only_reads:
            check_room(cell, tablet)
        tablet.check_modifications(part)
        bytes_left -= wire_bytes(part.writes)
        if bytes_left < 0:
            text = (
                f"The transaction writes more than {limits.transaction_bytes_max} bytes. Split it."
            )
            raise LimitExceeded(text, table=tablet.assignment.path)
    if transaction <= cell.fence:  # if it touches no tablet
        text = "The transaction began before the cell restarted. Begin again."
        raise SnapshotTooOld(text, cell=cell.id)


def check_room(cell: Cell, tablet: Tablet) -> None:
    """Raise Overloaded if the cell or the tablet has no room for more rows: a flush makes room
    again. Raises Unavailable if the cell is about to stop."""
    cell.room.check_draining()
    reason = None
    if cell.room.is_memory_full:
        reason = "Node is out of tablet memory"
    elif is_full(tablet.active, tablet):
        reason = "Active store is overflown"
    elif len(tablet.stores.chunks) >= CHUNKS_MAX:
        reason = "Too many stores in tablet"
    if reason is not None:
        path, number = tablet.assignment.path, tablet.assignment.tablet
        raise Overloaded(f"{reason}, all writes disabled", table=path, tablet=number, cell=cell.id)


def can_never_begin(cell: Cell, transaction: TransactionId) -> bool:
    """Return whether a transaction without a record can never begin in this cell. Both bounds only
    rise. A tablet refuses every transaction that the fence of its cell refuses."""
    return transaction <= cell.fence or has_outlived(cell, transaction)


def has_outlived(cell: Cell, transaction: TransactionId) -> bool:
    """Return whether a transaction has exceeded its life, by the oracle time that the cell
    knows."""
    return cell.latest - transaction > cell.limits.transaction_life_s_max << TIMESTAMP_COUNTER_BITS


def are_distinct(numbers: Sequence[int]) -> bool:
    return len(set(numbers)) == len(numbers)


def atomicity_mismatch(given: str, wanted: str, tablet: Tablet) -> DodonaError:
    return InvalidRequest(
        f'Invalid atomicity mode: "{given}" instead of "{wanted}"', table=tablet.assignment.path
    )
