"""Turns at heavy work, so that a flood of it leaves time for calls of a row.

Owns: who works and who waits. Belongs to one event loop. Must not import: the rest of a gateway.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from dodona_wire.errors import Overloaded

WAITING_PER_SLOT_MAX: Final = 16


class Slots:
    """So many at a time, and a bounded number that wait for their turn."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._free = asyncio.Semaphore(count)
        self._waiting_count = self._running_count = 0

    def statistics(self) -> dict[str, int]:
        """How many are taken, and how many wait."""
        waiting_count = self._waiting_count
        return {"running": self._running_count, "waiting": waiting_count}

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Raises Overloaded if too many wait already."""
        if self._waiting_count >= self._count * WAITING_PER_SLOT_MAX:
            text = f"the gateway works at {self._count} {self._name} at a time, and many wait"
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
    """So many at a time of each table: a cell that is silent holds up no other table. As many may
    wait as there may be requests."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free: dict[str, asyncio.Semaphore] = {}
        self._caller_counts: Counter[str] = Counter()
        """Of those who work or wait; of no table without any."""

    @asynccontextmanager
    async def take(self, table: str) -> AsyncIterator[None]:
        """Wait for the turn."""
        free = self._free.setdefault(table, asyncio.Semaphore(self._count))
        self._caller_counts[table] += 1
        try:
            async with free:
                yield
        finally:
            self._caller_counts[table] -= 1
            if not self._caller_counts[table]:
                del self._caller_counts[table], self._free[table]
