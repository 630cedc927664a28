"""Commands that change something and whose answer may be lost: they come again, with their id.

Owns: the answers that were given, by mutation id, so that a repetition is answered alike and
changes nothing; and that one that is still under way is not begun twice. What is remembered is
bounded in time and number.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

REMEMBERED_MAX: Final = 20_000
REMEMBERED_SECONDS: Final = 300.0

Key = tuple[str, str]
"""Whose, and the mutation's id."""


class Mutations:
    """Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[Key, tuple[float, asyncio.Task[Any]]] = OrderedDict()

    async def once(self, key: Key, run: Callable[[], Awaitable[Any]]) -> Any:
        """The answer, or the error, of the first command with that key. It goes on when its caller
        has gone."""
        self._forget()
        known = self._known.get(key)
        if known is None:
            task = asyncio.ensure_future(_as_task(run))
            self._known[key] = known = (self._clock(), task)
        return await asyncio.shield(known[1])

    def _forget(self) -> None:
        oldest = self._clock() - REMEMBERED_SECONDS
        while self._known:
            began, task = next(iter(self._known.values()))
            if began > oldest and len(self._known) <= REMEMBERED_MAX:
                return
            if not task.done():
                return  # it is bounded by its own time
            self._known.popitem(last=False)
            if not task.cancelled():
                task.exception()


async def _as_task(run: Callable[[], Awaitable[Any]]) -> Any:
    return await run()
