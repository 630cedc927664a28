"""Who may begin to commit here, and who never may.

Owns: the checks of a transaction and of what it brings, before it takes any lock: the fence (rule 9
of `docs/explanation/commit-protocol.md`), a transaction's life, the bounds in number and size, room
in the log. Rows and locks are not looked at, and nothing is changed: `participant` records what is
refused.
"""

from collections.abc import Sequence
from typing import Final

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.upkeep.flushing import is_full
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import (
    DiskFull,
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    SnapshotTooOld,
    Unavailable,
)
from dodona_wire.messages.data import TabletModifications
from dodona_wire.rows.sizes import wire_bytes
from dodona_wire.types import TIMESTAMP_COUNTER_BITS, CellId, TransactionId

CHUNKS_MAX: Final = 300
"""Of one tablet: compaction is behind."""


def check_transaction(
    cell: Cell, transaction: TransactionId, participants: tuple[CellId, ...]
) -> None:
    """Raises InvalidRequest, Overloaded, SnapshotTooOld."""
    is_alone = len(participants) == 1
    if cell.id not in participants or not (is_alone or are_distinct(participants)):
        raise InvalidRequest("this cell is not a participant", cell=cell.id)
    is_full = len(cell.transactions) >= cell.limits.transactions_alive_max
    if is_full or (cell.injects_faults and cell.fault_at(FaultPoint.PRETEND_OVERLOADED)):
        raise Overloaded("too many transactions are committing in this cell", cell=cell.id)
    check_log(cell)
    if has_outlived(cell, transaction):
        life_s_max = cell.limits.transaction_life_s_max
        raise SnapshotTooOld(f"the transaction is older than {life_s_max} s")


def check_log(cell: Cell) -> None:
    """Whether there is room for what is new. Reads, and transactions that are under way, are not
    asked. Raises Overloaded, DiskFull."""
    if cell.disk_shortage is not None:
        raise DiskFull(cell.disk_shortage, cell=cell.id)
    if cell.is_log_full:
        raise Overloaded(
            "the log is full, all writes disabled until rows are flushed and it is truncated",
            cell=cell.id,
            log_fill_percent=int(100 * cell.log_fill_ratio),
        )


def check_lease(what: str, lease_ms: int, lease_ms_max: int) -> None:
    """Snapshots and loads have one rule: nobody is given another lease than the one asked for.
    Raises InvalidRequest."""
    if lease_ms > lease_ms_max:
        text = f"a {what} has a lease of at most {lease_ms_max} ms, not {lease_ms}"
        raise InvalidRequest(text, lease_ms=lease_ms, lease_ms_max=lease_ms_max)


def check_parts(
    cell: Cell,
    transaction: TransactionId,
    modifications: tuple[TabletModifications, ...],
    tablets: tuple[Tablet, ...],
) -> None:
    """Raises InvalidRequest, LimitExceeded, SnapshotTooOld, and what the tablets raise."""
    limits = cell.limits
    if len(modifications) > 1 and not are_distinct([part.tablet for part in modifications]):
        raise InvalidRequest("a transaction names a tablet twice", cell=cell.id)
    rows_left, bytes_left = limits.transaction_rows_max, limits.transaction_bytes_max
    for tablet, part in zip(tablets, modifications, strict=True):
        rows_left -= len(part.writes) + len(part.locks)
        if rows_left < 0:
            raise LimitExceeded(f"a transaction has at most {limits.transaction_rows_max} rows")
        if transaction <= tablet.fence:  # rule 9
            text = "the transaction began before the tablet was mounted or its cell restarted"
            raise SnapshotTooOld(text, table=tablet.assignment.path)
        tablet.check_open()
        if not tablet.is_atomic:
            raise atomicity_mismatch("full", "none", tablet)
        check_room(cell, tablet)
        tablet.check_modifications(part)
        bytes_left -= wire_bytes(part.writes)
        if bytes_left < 0:
            text = f"a transaction writes at most {limits.transaction_bytes_max} bytes"
            raise LimitExceeded(text, table=tablet.assignment.path)
    if transaction <= cell.fence:  # one that touches no tablet
        raise SnapshotTooOld("the transaction began before the cell restarted", cell=cell.id)


def check_room(cell: Cell, tablet: Tablet) -> None:
    """Whether there is memory for more rows: a flush makes room again. Raises Overloaded,
    Unavailable."""
    if cell.is_draining:
        raise Unavailable("the cell is about to stop", cell=cell.id)
    reason = None
    if cell.memory_bytes > cell.limits.memory_bytes_max:
        reason = "Node is out of tablet memory"
    elif is_full(tablet.active, tablet):
        reason = "Active store is overflown"
    elif len(tablet.stores.chunks) >= CHUNKS_MAX:
        reason = "Too many stores in tablet"
    if reason is not None:
        path, number = tablet.assignment.path, tablet.assignment.tablet
        raise Overloaded(f"{reason}, all writes disabled", table=path, tablet=number, cell=cell.id)


def can_never_begin(cell: Cell, transaction: TransactionId) -> bool:
    """Whether a transaction that is not here certainly never will be: both bounds only rise, and
    no tablet lets in whom the cell's own fence turns away."""
    return transaction <= cell.fence or has_outlived(cell, transaction)


def has_outlived(cell: Cell, transaction: TransactionId) -> bool:
    """Whether it is older than transactions may get, by the oracle's time as it is known here."""
    return cell.latest - transaction > cell.limits.transaction_life_s_max << TIMESTAMP_COUNTER_BITS


def are_distinct(numbers: Sequence[int]) -> bool:
    return len(set(numbers)) == len(numbers)


def atomicity_mismatch(given: str, wanted: str, tablet: Tablet) -> DodonaError:
    return InvalidRequest(
        f'Invalid atomicity mode: "{given}" instead of "{wanted}"', table=tablet.assignment.path
    )
