"""Work that goes on beside a server for as long as it serves.

Owns: its beginning and its end. Such work ends by being cancelled and in no other way: a process
that had lost some of it would look as if all was well, so it ends instead, and says why.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from dodona_server.process import stop_process


@asynccontextmanager
async def running_beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Have these run until the end of the block."""
    tasks = [asyncio.create_task(it) for it in works]
    for task in tasks:
        task.add_done_callback(_check)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _check(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        name = getattr(task.get_coro(), "__qualname__", "a task")
        stop_process(task.exception() or AssertionError(f"{name} has ended"))
