"""Work that runs beside a server while the server serves.

Owns: the start and the end of this work. Such work ends only by cancellation. If a part ended in
another way, the process would look healthy without it. So the process ends instead, and logs the
reason.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from dodona_server.process import stop_process


@asynccontextmanager
async def running_beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these coroutines until the end of the block."""
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
