"""Ids for transactions without a snapshot, taken from the oracle in advance. Pure.

Owns: the reserve of one session. A transaction that reads nothing and has all its rows in one cell
begins when it arrives there (the commit protocol, rule 20). Its id must only be unique and not in
the future. So the client asks for thousands at a time, and no commit waits for an id.
The reserve is limited in number and in age, since cells refuse ids from before their start.
Invariant: an id is given out once, to one thread.
"""

from collections.abc import Iterator
from typing import Final

from dodona_wire.types import Timestamp, TransactionId

RESERVE_COUNT: Final = 10_000
RESERVE_MS_MAX: Final = 1_000


class Reserve:
    """The unused ids of the last request to the oracle."""

    __slots__ = ("_ids", "_until_us")

    def __init__(self) -> None:
        self._ids: Iterator[int] = iter(())
        self._until_us = 0

    def take(self, instant_us: int) -> TransactionId | None:
        """Return an unused id, or None if the reserve is empty or too old."""
        if instant_us >= self._until_us:
            return None
        taken = next(self._ids, None)
        return None if taken is None else TransactionId(taken)

    def fill(self, first: Timestamp, asked_us: int) -> TransactionId:
        """Reserve `RESERVE_COUNT` timestamps from `first` on, which the client asked for at
        `asked_us`. Return the first one; the others become the reserve."""
        self._ids = iter(range(first + 1, first + RESERVE_COUNT))
        self._until_us = asked_us + RESERVE_MS_MAX * 1000
        return TransactionId(first)

    def clear(self) -> None:
        """Drop all unused ids, since they are too old for a cell."""
        self._until_us = 0
