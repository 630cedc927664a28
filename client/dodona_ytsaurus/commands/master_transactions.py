"""Remember the master transactions that were begun at this gateway, with their owners.

Owns: their ids, which can't be guessed, and the ids of their locks. The transactions themselves
live in the master, and end there by themselves. An id has YTsaurus's form, and the kind by which
YTsaurus's client knows it.
"""

import secrets
from collections import OrderedDict
from typing import Final, NamedTuple

from dodona_wire.types import TreeTransactionId

KIND: Final = 1
OWNED_MAX: Final = 10_000
LOCKS_MAX: Final = 1_000
"""The number of locks of one transaction that are remembered, at most."""


class Owned(NamedTuple):
    """One transaction: its owner, and its id in the master."""

    owner: str
    id: TreeTransactionId
    timeout_ms: int
    locks: OrderedDict[str, None]


class MasterTransactions:
    """The transactions that were begun here: at most `OWNED_MAX`, those that were used last."""

    def __init__(self, gateway: int) -> None:
        self._gateway = gateway
        self._owned: OrderedDict[str, Owned] = OrderedDict()

    def add(self, owner: str, transaction: TreeTransactionId, timeout_ms: int) -> str:
        """Add a transaction, and return its id in YTsaurus's form."""
        while len(self._owned) >= OWNED_MAX:
            self._owned.popitem(last=False)
        kind = self._gateway << 16 | KIND
        text = f"{secrets.randbits(32):x}-{transaction:x}-{kind:x}-{secrets.randbits(32):x}"
        self._owned[text] = Owned(owner, transaction, timeout_ms, OrderedDict())
        return text

    def find(self, text: str, owner: str) -> Owned | None:
        """Return the owner's transaction with this id, None if the owner has none."""
        known = self._owned.get(text)
        if known is None or known.owner != owner:
            return None
        self._owned.move_to_end(text)
        return known

    def drop(self, text: str) -> None:
        """Remove a transaction that has ended."""
        self._owned.pop(text, None)


def note_lock(transaction: Owned, lock_id: str) -> None:
    """Note that the transaction has that lock."""
    transaction.locks[lock_id] = None
    while len(transaction.locks) > LOCKS_MAX:
        transaction.locks.popitem(last=False)
