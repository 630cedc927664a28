"""Whose the master transactions are that were begun at this gateway.

Owns: their ids, which nobody guesses; the transactions themselves live in the master, and end there
by themselves. An id has YTsaurus's form, and the kind that its client knows them by.
"""

import secrets
from typing import Final

from dodona.types import TreeTransactionId

KIND: Final = 1
OWNED_MAX: Final = 10_000


class MasterTransactions:
    """Whose the master transactions are that were begun here: ids that nobody guesses."""

    def __init__(self, gateway: int) -> None:
        self._gateway = gateway
        self._owned: dict[str, tuple[str, TreeTransactionId, int]] = {}

    def add(self, owner: str, transaction: TreeTransactionId, timeout_ms: int) -> str:
        """→ its id in YTsaurus's form."""
        while len(self._owned) >= OWNED_MAX:
            del self._owned[next(iter(self._owned))]
        kind = self._gateway << 16 | KIND
        text = f"{secrets.randbits(32):x}-{transaction:x}-{kind:x}-{secrets.randbits(32):x}"
        self._owned[text] = (owner, transaction, timeout_ms)
        return text

    def find(self, text: str, owner: str) -> tuple[TreeTransactionId, int] | None:
        """The master's id and the time-out of one of this owner's, None if it is none."""
        known = self._owned.get(text)
        return known[1:] if known is not None and known[0] == owner else None

    def drop(self, text: str) -> None:
        """It has ended."""
        self._owned.pop(text, None)
