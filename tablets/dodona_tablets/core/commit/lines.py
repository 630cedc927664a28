"""Keep transactions off the rows that others have locked early.

Owns: what a commit does where it meets an early lock. A transaction that began is refused: if it
waited, it could keep others waiting in a circle. A blind transaction holds nothing, so it stands in
line like an owner. The owner's own transaction passes.
"""

from collections.abc import Iterator

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.early_locks import LockRequest, Row
from dodona_tablets.core.tablet.locks import Lost
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.errors import TransactionConflict
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Publication, TabletModifications
from dodona_wire.types import MAX_TIMESTAMP, NO_OWNER, Key, Owner


def stands_in_line(cell: Cell, transaction: Transaction) -> bool:
    """Return whether a transaction must wait until its turn comes. Raises Lost if it met an early
    lock, and may not wait."""
    for part in transaction.modifications:
        tablet = cell.tablets[part.tablet]
        wanted = _wanted(cell, tablet, part, transaction)
        found = cell.early.in_the_way(part.tablet, wanted, transaction.owner)
        if found is None:
            continue
        if transaction.start != MAX_TIMESTAMP:
            raise _lost(tablet, transaction, *found)
        if transaction.owner == NO_OWNER:
            _join(cell, transaction)
        cell.counts.lock_waits += 1
        transaction.state = State.WAITING
        return True
    return False


def leave_line(cell: Cell, transaction: Transaction) -> None:
    """End the place in line of a blind transaction, which holds its rows now."""
    request = cell.early.requests.get(transaction.owner)
    if request is not None and request.transaction is transaction:
        cell.end_early(request)


def _join(cell: Cell, transaction: Transaction) -> None:
    rows = {
        Row(tablet, key): None
        for tablet, part in [(cell.tablets[it.tablet], it) for it in transaction.modifications]
        for key in _wanted(cell, tablet, part, transaction)
    }
    transaction.owner = Owner(-transaction.id)  # no timestamp, so no other owner has it
    cell.early.join(LockRequest(transaction.owner, tuple(rows), transaction))


def _wanted(
    cell: Cell, tablet: Tablet, part: TabletModifications, transaction: Transaction
) -> Iterator[Key]:
    """Yield the rows that a part locks in any way. A condition locks its row, too: if it passed an
    early lock, it could refuse the owner."""
    if part.publication is not None:
        yield from _published(cell, tablet, part.publication)
        return
    for key, _, _ in tablet.schema.plain_writes(part.writes):
        yield key
    for lock in part.locks:
        yield lock.key
    for row in transaction.conditions.get(part.tablet, ()):
        yield row.key


def _published(cell: Cell, tablet: Tablet, publication: Publication) -> list[Key]:
    """Return the rows with a line that a load publishes. A load that is not staged here is refused
    by a later check."""
    try:
        rows = cell.rows_of(tablet, publication)
    except KeyError:
        return []
    return [key for key in cell.early.keys(tablet.assignment.tablet) if rows.has(key)]


def _lost(tablet: Tablet, transaction: Transaction, key: Key, request: LockRequest) -> Lost:
    named = tablet.schema.named_key(key)
    text = f"row {named} was locked by a transaction before it began"
    attributes = {
        "key": named,
        "table": tablet.assignment.path,
        "tablet": tablet.assignment.tablet,
        "start_timestamp": transaction.start,
        "winner": request.name,
    }
    return Lost(Failure(TransactionConflict.kind, text, attributes), "early_locked")
