"""A check that transactions of a contender are serializable: it tries to cause write skew.

Owns: pairs of places. Two transactions read both places of a pair, and take one each if neither is
taken. Both have read before one of them writes. In any serial order, only the first one takes a
place. Under snapshot isolation, both do. A place is taken once its row exists, so the check is also
about rows that were absent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from dodona_loadtest.harness.errors import ContenderFailed

PAIRS: Final = 4
MEET_S_MAX: Final = 30.0

Meet = Callable[[], Awaitable[None]]
"""To be awaited between the reads and the writes of each attempt."""
Take = Callable[[int, int, int, Meet], Coroutine[Any, Any, None]]
"""Runs a transaction by this caller, 0 or 1. It takes the first place, unless that one or the
second one is taken."""


class SkewCheck:
    """Checks one contender again and again, each time with new places."""

    def __init__(self) -> None:
        self._place_count = 0

    async def run(self, take: Take, taken: Callable[[], Awaitable[list[int]]]) -> None:
        """Run all pairs, one after another. `taken` returns all places that are taken. Raises
        ContenderFailed unless just one place of each pair is taken."""
        places = range(self._place_count, self._place_count + 2 * PAIRS)
        self._place_count = places.stop
        for place in places[::2]:
            both = asyncio.Barrier(2)
            async with asyncio.timeout(MEET_S_MAX), asyncio.TaskGroup() as group:
                group.create_task(take(0, place, place + 1, meeting(both)))
                group.create_task(take(1, place + 1, place, meeting(both)))
        found = {*await taken()}
        for place in places[::2]:
            count = len({place, place + 1} & found)
            if count != 1:
                text = f"of a pair of places {count} were taken: transactions aren't serializable"
                raise ContenderFailed(text)


def meeting(both: asyncio.Barrier) -> Meet:
    """Return what waits for the other transaction in the first attempt, and in no later one."""
    is_over = False

    async def meet() -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            await both.wait()

    return meet
