"""Finish work even if its task is cancelled meanwhile.

Owns: that rule. The end of a process has to be waited for, because otherwise the process would be
left behind.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Do the work, then raise a cancellation that came meanwhile. The work bounds its own time."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
