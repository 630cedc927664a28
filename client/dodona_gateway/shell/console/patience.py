"""How long a page is waited for, and by whom: not for ever, and by nobody who has gone.

Owns: the bound on what a page asks of the cluster through the client, which by itself tries for
longer than a person looks at a blank page; and the end of work whose asker has left.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, Final, TypeVar

from fastapi import Request

from dodona_wire.errors import RequestTimedOut, Unavailable

ANSWER_S: Final = 3.0

Result = TypeVar("Result")


async def in_time(doing: Awaitable[Result]) -> Result:
    """Raises Unavailable if it takes longer than a page may."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await doing
    except TimeoutError as error:
        text = f"the master, or a cell, does not answer within {ANSWER_S:g} s"
        raise Unavailable(text) from error


async def unless_gone(request: Request, doing: Coroutine[Any, Any, Result]) -> Result:
    """The result, as long as somebody waits for it: if he has gone, the work is given up. The
    request's body was read before. Raises RequestTimedOut."""
    working = asyncio.create_task(doing)
    leaving = asyncio.create_task(_leave(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise RequestTimedOut("whoever asked has gone")
    finally:
        await _end(working, leaving)


async def _leave(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel those that go on, and see them end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
