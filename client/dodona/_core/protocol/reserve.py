"""Ids for transactions that need no snapshot, asked of the oracle in advance. Pure.

Owns: the reserve of one session. A transaction that reads nothing, and whose rows are all in one
cell, begins when it arrives there (the commit protocol, rule 20). Its id must only be unique and
not in the future, so that thousands can be asked for at once, and no commit waits for one.
Bounded: in number, and in age, since cells refuse ids from before their start.
Invariant: an id is handed out once, to whichever thread takes it.
"""

from collections.abc import Iterator
from typing import Final

from dodona_wire.types import Timestamp, TransactionId

RESERVE_COUNT: Final = 10_000
RESERVE_MS_MAX: Final = 1_000


class Reserve:
    """What is left of the timestamps that were asked for last."""

    __slots__ = ("_ids", "_until_us")

    def __init__(self) -> None:
        self._ids: Iterator[int] = iter(())
        self._until_us = 0

    def take(self, instant_us: int) -> TransactionId | None:
        """An unused id, or None if there is none that is young enough."""
        if instant_us >= self._until_us:
            return None
        taken = next(self._ids, None)
        return None if taken is None else TransactionId(taken)

    def fill(self, first: Timestamp, asked_us: int) -> TransactionId:
        """`RESERVE_COUNT` timestamps from `first` on, which were asked for at that instant.
        → the first of them; the others are from now on the reserve."""
        self._ids = iter(range(first + 1, first + RESERVE_COUNT))
        self._until_us = asked_us + RESERVE_MS_MAX * 1000
        return TransactionId(first)

    def clear(self) -> None:
        """What is left is too old for some cell."""
        self._until_us = 0
