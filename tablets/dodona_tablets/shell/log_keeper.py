"""Keep a log between its take-over and the event loop that serves.

Owns: a thread with an event loop, in which the log is taken over, and lives on until the loop that
serves takes it. Meanwhile the main thread builds the server. Without this thread no replica would
hear of the owner for that time, and another process could take the log over.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
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
        self._thread = threading.Thread(target=self._run, name="dodona-log-keeper", daemon=True)

    def start(self) -> Made:
        """Return what `prepare` returns, and keep the log from then on. Raises as `prepare`
        does. Then nothing is kept."""
        self._thread.start()
        return self._made.result()

    def end(self) -> None:
        """Leave the log to another event loop. Blocks until the thread has ended."""
        assert self._loop is not None
        assert self._ending is not None
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    # In the thread

    def _run(self) -> None:
        asyncio.run(self._keep())

    async def _keep(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        try:
            made = await self._prepare()
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            self._made.set_exception(error)
            return
        self._made.set_result(made)
        await self._ending.wait()
        await self._leave()
