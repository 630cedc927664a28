"""Let a writer wait for a chunk that its locks are checked against.

Owns: the wait of a transaction that met a recent load whose rows are not on this machine. The bound
of the wait is that of any writer (rule 4): see `timeouts`.
"""

from collections.abc import Callable

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.rows.chunks.chunk import ChunkAway
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_tablets.core.upkeep.caching import Caching, Need
from dodona_wire.messages.base import Failure


def wait_for_chunk(
    cell: Cell,
    caching: Caching,
    transaction: Transaction,
    away: ChunkAway,
    retry: Callable[[Transaction, Need], None],
    refuse: Callable[[Transaction, Failure], None],
    after: Need | None,
) -> None:
    """Make a transaction wait until a chunk is here. Then `retry` checks its locks again, if it
    still waits. If the chunk can't be had, the transaction is refused."""

    def ends_wait() -> bool:
        waiters.pop(transaction.id, None)
        return transaction.is_waiting

    def resume(need: Need) -> None:
        if ends_wait():
            retry(transaction, need)

    def give_up(failure: Failure) -> None:
        if ends_wait():
            attributes = {**failure.attributes, "is_refused": True}
            refuse(transaction, Failure(failure.kind, failure.message, attributes))

    waiters = cell.chunks.waiting_writers
    waiters[transaction.id] = away.chunk.info.number
    transaction.state = State.WAITING
    caching.wait([away.chunk], resume, give_up, after=after)
