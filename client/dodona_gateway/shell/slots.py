"""Bound heavy work by turns, so that calls of single rows still get time.

Owns: which callers run and which wait. Belongs to one event loop.
Must not import: the rest of a gateway.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from dodona_wire.errors import Overloaded

WAITING_PER_SLOT_MAX: Final = 16


class Slots:
    """A number of slots, and a bounded number of callers that wait for one."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._free = asyncio.Semaphore(count)
        self._waiting_count = self._running_count = 0

    def statistics(self) -> dict[str, int]:
        """Return how many slots are taken, and how many callers wait."""
        waiting_count = self._waiting_count
        return {"running": self._running_count, "waiting": waiting_count}

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Take a slot for the block. Raises Overloaded if too many callers wait already."""
        if self._waiting_count >= self._count * WAITING_PER_SLOT_MAX:
            text = (
                f"The gateway runs {self._count} {self._name} at a time, and its queue is full. "
                "Wait, then repeat the call."
            )
            raise Overloaded(text)
        self._waiting_count += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting_count -= 1
        self._running_count += 1
        try:
            yield
        finally:
            self._running_count -= 1
            self._free.release()


class Turns:
    """A number of turns for each table, so that a silent cell delays calls for its own tables only.
    As many callers may wait as there may be requests."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free: dict[str, asyncio.Semaphore] = {}
        self._caller_counts: Counter[str] = Counter()
        """The number of callers that run or wait, by table. A table without callers has no
        entry."""

    @asynccontextmanager
    async def take(self, table: str) -> AsyncIterator[None]:
        """Wait for a turn, and keep it for the block."""
        free = self._free.setdefault(table, asyncio.Semaphore(self._count))
        self._caller_counts[table] += 1
        try:
            async with free:
                yield
        finally:
            self._caller_counts[table] -= 1
            if not self._caller_counts[table]:
                del self._caller_counts[table], self._free[table]
