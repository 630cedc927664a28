"""Work that is done to its end, also for a task that is cancelled meanwhile.

Owns: that rule. The end of a process has to be waited for: whoever leaves before leaves it behind.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Do the work, then pass on a cancellation that came meanwhile. Work bounds its own time."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
