"""Bound the wait for a page, in time and by its caller.

Owns: the bound on a page's requests to the cluster through the client, which by itself retries for
longer than a person waits. Owns also the end of work whose caller has left.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, Final, TypeVar

from fastapi import Request

from dodona_wire.errors import RequestTimedOut, Unavailable

ANSWER_S: Final = 3.0

Result = TypeVar("Result")


async def in_time(doing: Awaitable[Result]) -> Result:
    """Return the result. Raises Unavailable if it takes longer than `ANSWER_S`."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await doing
    except TimeoutError as error:
        text = f"The master or a cell does not answer within {ANSWER_S:g} s. Repeat the request."
        raise Unavailable(text) from error


async def unless_gone(request: Request, doing: Coroutine[Any, Any, Result]) -> Result:
    """Return the result. If the caller leaves before that, the work is cancelled. The request's
    body must have been read. Raises RequestTimedOut."""
    working = asyncio.create_task(doing)
    leaving = asyncio.create_task(_leave(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise RequestTimedOut("The caller disconnected before the answer.")
    finally:
        await _end(working, leaving)


async def _leave(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks that run, and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
