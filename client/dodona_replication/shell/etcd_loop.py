"""The event loop of all calls to etcd, in a thread of its own.

Owns: that loop, and how other event loops wait for what runs in it. A process asks etcd in several
event loops, one after the other: it stands by, takes a log over, and serves. gRPC can't do that: an
answer for a loop that is closed stops the answers of all loops, and calls wait for ever.

Invariants: the loop begins with the first call, and is open until the process ends. What a caller
cancels is cancelled here. Of a stream, only the newest element waits for the caller. gRPC does not
survive a fork, so a fork of a process that has asked etcd can't ask it.
Must not import: gRPC, and what asks etcd.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

END_S_MAX: Final = 1.0
"""How long the end of the process waits for this thread."""


async def in_etcd_loop(call: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in the loop of etcd's calls. Return or raise what it does. Raises
    RuntimeError if there is no loop: in a fork, at the end of the process, without room for a
    thread."""
    return await asyncio.wrap_future(_thread.begin(call))


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

    running = asyncio.wrap_future(_thread.begin(run()))
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
        self._why_not = ""
        """Why no call can begin any more."""

    def begin(self, call: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Begin a coroutine in the loop, which runs from now on. Raises RuntimeError."""
        try:
            with self._lock:
                if self._why_not:
                    raise RuntimeError(self._why_not)
                return asyncio.run_coroutine_threadsafe(call, self._loop or self._start())
        except BaseException:
            call.close()
            raise

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="dodona-etcd", daemon=True)
        try:
            thread.start()
        except BaseException:
            loop.close()
            raise
        atexit.register(self._end, loop, thread)
        self._loop = loop
        return loop

    def _end(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        with self._lock:
            self._why_not = "the process is ending: etcd can't be asked any more"
        loop.call_soon_threadsafe(loop.stop)
        thread.join(END_S_MAX)

    def after_fork(self) -> None:
        """Refuse calls in a fork, if gRPC may be in use here."""
        self._lock = threading.Lock()
        if self._loop is not None:
            self._why_not = "this process is a fork of one that has asked etcd: start it by itself"


_thread: Final = _Thread()
os.register_at_fork(after_in_child=_thread.after_fork)
