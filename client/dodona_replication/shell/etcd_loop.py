"""The event loop of all calls to etcd, in a thread of its own.

Owns: that loop, and how other event loops wait for what runs in it. A process asks etcd in several
event loops, one after the other: it stands by, takes a log over, and serves. gRPC can't do that: an
answer for a loop that is closed stops the answers of all loops, and calls wait for ever.

Invariants: the loop begins with the first call, and is open until the process ends. What a caller
cancels is cancelled here. Of a stream, only the newest element waits for the caller.
Must not import: gRPC, and what asks etcd.
"""

import asyncio
import atexit
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

END_S_MAX: Final = 1.0
"""How long the end of the process waits for this thread."""


async def in_etcd_loop(call: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in the loop of etcd's calls. Return or raise what it does."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, _thread.loop()))


async def streamed(make: Callable[[], AsyncGenerator[_T]]) -> AsyncGenerator[_T]:
    """Yield the newest element of a stream that runs in the loop of etcd's calls. Elements are left
    out if the caller is slow. Raises what the stream raises."""
    here = asyncio.get_running_loop()
    changed = asyncio.Event()
    newest: list[_T] = []

    def put(element: _T) -> None:
        newest[:] = [element]
        changed.set()

    def end(task: asyncio.Future[None]) -> None:
        if not task.cancelled():
            task.exception()  # perhaps the caller does not wait for it any more
        changed.set()

    async def run() -> None:
        async with aclosing(make()) as elements:
            async for element in elements:
                here.call_soon_threadsafe(put, element)

    running = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), _thread.loop()))
    running.add_done_callback(end)
    try:
        while newest or not running.done():
            if newest:
                yield newest.pop()
                continue
            changed.clear()
            await changed.wait()
        await running
    finally:
        running.cancel()


class _Thread:
    """The thread, and its loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, which runs from now on."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                thread = threading.Thread(target=run, name="dodona-etcd", daemon=True)
                thread.start()
                atexit.register(self._end, self._loop, thread)
            return self._loop

    def _end(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(END_S_MAX)


_thread: Final = _Thread()
