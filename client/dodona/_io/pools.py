"""Pools of threads for work that blocks.

Owns: `Pool`, `asked`. Python's own pools take no work once the main thread has ended, and can't
even be imported for the first time then, though other threads of the program go on and may use a
client. Then work is done where it is given, and its giver waits for it: that it blocks an event
loop is better than that it never happens.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

with suppress(RuntimeError):  # while it can be: uvloop and pyarrow do so on first use
    import concurrent.futures.thread  # noqa: F401

Result = TypeVar("Result")


class Pool:
    """At most `count_max` threads, which begin when there is work."""

    def __init__(self, count_max: int, name: str) -> None:
        self._is_closed = False
        self._threads = _threads(count_max, name)

    def submit(self, work: Callable[..., object], *arguments: Any) -> None:
        """Have it done. It is to handle its own errors. Raises RuntimeError after the close."""
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        if self._threads is not None:
            with suppress(RuntimeError):
                self._threads.submit(work, *arguments)
                return
        work(*arguments)

    def ask(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """What comes of it, for the running event loop. Raises RuntimeError after the close."""
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        return asked(work, self._threads)

    def close(self, *, wait: bool) -> None:
        """Take no more. With `wait`, what has not begun is dropped, and what has is waited for."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=wait, cancel_futures=wait)


def _threads(count_max: int, name: str) -> "ThreadPoolExecutor | None":
    try:
        import concurrent.futures.thread as module
    except RuntimeError:
        return None
    return module.ThreadPoolExecutor(count_max, name)


def asked(
    work: Callable[[], Result], threads: "ThreadPoolExecutor | None" = None
) -> "asyncio.Future[Result]":
    """What comes of it, for the running event loop, in one of these threads or of the loop's."""
    loop = asyncio.get_running_loop()
    with suppress(RuntimeError):
        return loop.run_in_executor(threads, work)
    future: asyncio.Future[Result] = loop.create_future()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is the asker's
        future.set_exception(error)
    return future
