"""Keep a log between its take-over and the event loop that serves.

Owns: a thread with an event loop, in which the log is taken over, and lives on until the loop that
serves takes it. Meanwhile the main thread builds the server. Without this thread no replica would
hear of the owner for that time, and another process could take the log over.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

Made = TypeVar("Made")


class LogKeeper(Generic[Made]):
    """One thread, for one take-over."""

    def __init__(
        self, prepare: Callable[[], Awaitable[Made]], leave: Callable[[], Awaitable[None]]
    ) -> None:
        """`prepare` takes the log over, and may start tasks that go on. `leave` ends these."""
        self._prepare = prepare
        self._leave = leave
        self._made: Future[Made] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._run, name="dodona-log-keeper", daemon=True)

    def start(self) -> Made:
        """Return what `prepare` returns, and keep the log from then on. Raises as `prepare`
        does, and what a signal raises here. Then nothing is kept, and the thread has ended."""
        self._thread.start()
        try:
            return self._made.result()
        except BaseException:
            self._cancel()
            self._thread.join()
            raise

    def end(self) -> None:
        """Leave the log to another event loop. Blocks until the thread has ended."""
        assert self._loop is not None
        assert self._ending is not None
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._loop is not None and self._keeping is not None:
            with suppress(RuntimeError):  # the loop is closed: the thread has ended by itself
                self._loop.call_soon_threadsafe(self._keeping.cancel)

    # In the thread

    def _run(self) -> None:
        asyncio.run(self._keep())

    async def _keep(self) -> None:
        self._ending, self._keeping = asyncio.Event(), asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        try:
            if self._is_cancelled:
                raise asyncio.CancelledError
            made = await self._prepare()
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            self._made.set_exception(error)
            return
        self._made.set_result(made)
        await self._ending.wait()
        await self._leave()
