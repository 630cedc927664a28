"""The task that does an asyncio client's chores.

Owns: the task, which is there while there is something to do, and ends with the client. As
`pinger`, in the client's event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic
from weakref import WeakMethod

from dodona._io.pinger import Chores, Item


class AsyncPinger(Generic[Item]):
    """One client's."""

    def __init__(self, run: Callable[[Any], Awaitable[Any]], chores: Chores[Item]) -> None:
        """`run` is the driver's, a method."""
        self._run = WeakMethod(run)
        self._chores = chores
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def watch(self, item: Item) -> None:
        """Do what is due for it from now on."""
        self._chores.add(item)
        self._news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._do_all())

    async def close(self) -> None:
        """Do nothing any more. The driver is still open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _do_all(self) -> None:
        while (wait_ms := self._chores.wait_ms()) is not None:
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait_ms / 1000)
            run = self._run()
            if run is None:  # nobody has the client any more
                return
            await run(self._chores.do_due())
            del run
