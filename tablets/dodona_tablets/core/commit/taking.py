"""Check whether a transaction may have its locks in a tablet, and take them.

Owns: the check of each row that a transaction writes or locks, against newer versions and other
holders, and the step that takes all locks. It changes nothing until all checks have passed, so a
refusal has nothing to undo. `locks` has the rules of conflicts, and `conditions` those of
conditions.
"""

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.commit.conditions import check_conditions
from dodona_tablets.core.commit.sealed import check_sealed
from dodona_tablets.core.rows.version import Version
from dodona_tablets.core.tablet.lock_set import lock_locks, shared_groups_of, write_locks
from dodona_tablets.core.tablet.locks import Lost, acquire_all, check_locks, check_versions
from dodona_tablets.core.tablet.publications import Publishing
from dodona_tablets.core.tablet.publishing import check_rows
from dodona_tablets.core.tablet.read_holds import ReadHolds
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_tablets.core.tablet.validation import check_holds, check_holds_of_load, check_reads
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import DataCorrupted
from dodona_wire.messages.base import failure_of
from dodona_wire.messages.data import Publication, TabletModifications
from dodona_wire.types import MAX_TIMESTAMP


def check_part(
    cell: Cell, transaction: Transaction, tablet: Tablet, part: TabletModifications
) -> Transaction | None:
    """Return the transaction to wait for, or None. Raises Lost for the first row that is lost."""
    try:
        if part.publication is not None:
            return _check_load(cell, transaction, tablet, part.publication)
        waits_for = None
        if transaction.conditions:  # first of all: they say why a conflict is one
            waits_for = check_conditions(transaction, tablet)
        if tablet.publishing is not None or tablet.published:
            waits_for = check_rows(transaction, tablet, part) or waits_for
        if tablet.read_holds is not None:
            waits_for = check_holds(transaction, tablet, part, tablet.read_holds) or waits_for
        if part.reads:
            if cell.injects_faults and cell.fault_at(FaultPoint.FORGET_RECENT_KEYS):
                tablet.recent = None
            waits_for = check_reads(transaction, tablet, part) or waits_for
        return _check_rows(transaction, tablet, part) or waits_for
    except DataCorrupted as error:  # in a chunk of a load: it may hide a conflict
        raise Lost(failure_of(error)) from None
    except Lost as lost:
        lost.failure.attributes.update(
            table=tablet.assignment.path, tablet=tablet.assignment.tablet
        )
        raise


def _check_load(
    cell: Cell, transaction: Transaction, tablet: Tablet, publication: Publication
) -> Transaction | None:
    waits_for, holds = check_sealed(cell, transaction, tablet, publication), tablet.read_holds
    if holds is not None:
        rows = cell.rows_of(tablet, publication)
        waits_for = check_holds_of_load(transaction, tablet, rows, holds) or waits_for
    return waits_for


def _check_rows(
    transaction: Transaction, tablet: Tablet, part: TabletModifications
) -> Transaction | None:
    waits_for: Transaction | None = None
    locks, schema, special = tablet.locks, tablet.schema, part.special
    start = transaction.start
    is_blind = start == MAX_TIMESTAMP  # then no version is newer
    stores = () if is_blind else tablet.stores.in_memory
    recent = [store.rows for store in stores if store.max_timestamp > start]
    chains: list[Version] = []
    for key, mask, _ in schema.plain_writes(part.writes):
        held = locks.get(key)
        if recent:
            chains = [rows[key] for rows in recent if key in rows]
        if held is None and not chains:
            continue
        together = 0 if special is None else shared_groups_of(special, key)
        wanted = write_locks(schema.lock_mask(mask), together)
        for newest in chains:
            check_versions(newest, key, schema, start, wanted)
        if held is not None:
            waits_for = check_locks(held, key, schema, start, wanted) or waits_for
    for lock in part.locks:
        key, wanted = lock.key, lock_locks(lock.lock_mask, lock.lock_type)
        for rows in recent:
            check_versions(rows.get(key), key, schema, start, wanted)
        held = locks.get(key)
        if held is not None:
            waits_for = check_locks(held, key, schema, start, wanted) or waits_for
    return waits_for


def take_locks(cell: Cell, transaction: Transaction) -> None:
    """Take all locks of a transaction that was checked, or that replay finds prepared."""
    for part in transaction.modifications:
        tablet = cell.tablets[part.tablet]
        tablet.active_count += 1
        if part.publication is not None:
            rows = cell.rows_of(tablet, part.publication)
            tablet.publishing = Publishing(transaction, rows)
        acquire_all(tablet.locks, tablet.schema, transaction, part)
        if part.reads:
            tablet.read_holds = tablet.read_holds or ReadHolds()
            tablet.read_holds.take(transaction, part.reads)
