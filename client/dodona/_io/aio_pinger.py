"""The task that does the periodic work of an asyncio client.

Owns: the task. It exists while there is work, and ends with the client. It works as the thread in
`pinger`, but in the event loop of the client.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic
from weakref import WeakMethod

from dodona._io.bounds import AsyncDriver
from dodona._io.pinger import Chores, Item


async def async_close_all(driver: AsyncDriver, *pingers: "AsyncPinger[Any]") -> None:
    """Close a client: its driver last, because its pingers use the driver until they end."""
    for pinger in pingers:
        await pinger.close()
    await driver.close()


class AsyncPinger(Generic[Item]):
    """Does the periodic work of one client."""

    def __init__(self, run: Callable[[Any], Awaitable[Any]], chores: Chores[Item]) -> None:
        """Take the work, and `run`, which must be a method of the driver."""
        self._run = WeakMethod(run)
        self._chores = chores
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def watch(self, item: Item) -> None:
        """Do the periodic work of this item from now on."""
        self._chores.add(item)
        self._news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._do_all())

    async def close(self) -> None:
        """Stop all periodic work. The driver is still open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _do_all(self) -> None:
        while (wait_ms := self._chores.wait_ms()) is not None:
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait_ms / 1000)
            run = self._run()
            if run is None:  # the program has dropped the client
                return
            await run(self._chores.do_due())
            del run
