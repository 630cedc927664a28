"""The task that pings an asyncio client's master transactions while they are open.

Owns: the task, which is there while there is something to ping, and ends with the client. As
`pinger`, in the client's event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from dodona._core.master_transaction import Lease, Pings


class AsyncPinger:
    """One client's."""

    def __init__(self, run: Callable[[Any], Awaitable[Any]], pings: Pings) -> None:
        """`run` is the driver's."""
        self._run = run
        self._pings = pings
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def watch(self, lease: Lease) -> None:
        """Ping it from now on."""
        self._pings.add(lease)
        self._news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._ping_all())

    async def close(self) -> None:
        """Ping nothing any more. The driver is still open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _ping_all(self) -> None:
        while (wait_ms := self._pings.wait_ms()) is not None:
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait_ms / 1000)
            await self._run(self._pings.ping_due())
