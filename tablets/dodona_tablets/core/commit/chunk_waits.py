"""Let a writer wait for chunks that its locks or its conditions are checked against.

Owns: the wait of a transaction that met a row of a chunk which is not on this machine. The bound of
the wait is that of any writer (rule 4): see `timeouts`.
"""

from collections.abc import Callable

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.rows.chunks.chunk import Chunk, ChunkAway
from dodona_tablets.core.tablet.away import chunks_of_keys
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
    """Make a transaction wait until the chunk is here, and all others that its conditions need.
    Then `retry` checks its locks again, if it still waits. If a chunk can't be had, the transaction
    is refused."""

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
    caching.wait(_chunks_for(cell, transaction, away), resume, give_up, after=after)


def _chunks_for(cell: Cell, transaction: Transaction, away: ChunkAway) -> list[Chunk]:
    """Return the missing chunk, and those that the conditions will meet. Each wait checks all rows
    again, so to wait for one chunk after another takes too long."""
    chunks = [away.chunk]
    for number, rows in transaction.conditions.items():
        chunks += chunks_of_keys(cell.tablets[number], [it.key for it in rows], away)
    return chunks
