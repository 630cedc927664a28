"""`dodona.open`: a database inside the caller's process, for any number of its threads.

Owns: the two drivers, blocking and for asyncio, and the folder while it is open. The cores are the
servers' own, with no server around them and no thread of their own: see `embedded_combiner`.
Imported by name from `dodona`, since it needs what the server extra installs.
"""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from dodona._core.context import expect
from dodona._core.messages import GenerateTimestamps, TimestampRange
from dodona._core.routing import Routing
from dodona._core.steps import ORACLE, Calls, Pause, Post, Protocol, Result
from dodona._io.folder import lock_folder
from dodona._io.network import CLOSED
from dodona.errors import FolderInUse, InvalidRequest
from dodona.types import Timestamp
from dodona_local.embedded_combiner import Combiner
from dodona_local.embedded_cores import Cores, in_use

THREADS_MAX: Final = 64
"""Of the asyncio twin: so many protocols run at a time, and share a flush at most."""


def open_blocking(path: str, routing: Routing) -> "EmbeddedDriver":
    """Open the folder for blocking callers."""
    del routing  # nothing has an address here
    return EmbeddedDriver(path)


async def open_async(path: str, routing: Routing) -> "AsyncEmbeddedDriver":
    """Open the folder for asyncio callers."""
    del routing
    threads = ThreadPoolExecutor(THREADS_MAX, "dodona-embedded")
    loop = asyncio.get_running_loop()
    try:
        driver = await loop.run_in_executor(threads, EmbeddedDriver, path)
    except BaseException:
        threads.shutdown(wait=False)
        raise
    return AsyncEmbeddedDriver(driver, threads)


class EmbeddedDriver:
    """Runs protocols in any thread of the process that made it."""

    def __init__(self, path: str) -> None:
        """Raises FolderInUse, DataCorrupted, InvalidRequest."""
        if not __debug__:
            raise InvalidRequest("an embedded database does not run under python -O")
        self._process_id = os.getpid()
        self._folder = Path(path).expanduser().absolute()
        _check_single_node(self._folder)
        try:
            self._lock = lock_folder(self._folder)
        except FolderInUse as error:
            raise in_use(self._folder, error) from error
        try:
            self._combiner = Combiner(partial(Cores.open, self._folder))
        except BaseException:
            self._lock.close()
            raise

    def run(self, protocol: Protocol[Result]) -> Result:
        """The protocol's result, or its error."""
        if os.getpid() != self._process_id:
            raise InvalidRequest(
                f"process {self._process_id} opened this database, and this one is a fork of it: "
                "open it before the fork in one of them only"
            )
        replies: Any = None
        try:
            while True:
                step = protocol.send(replies)
                if type(step) is Pause:
                    time.sleep(step.duration_ms / 1000)
                    replies = []
                elif type(step) is Calls:
                    replies = self._combiner.exchange(step.requests)
                elif type(step) is Post:
                    self._combiner.exchange(step.requests)
                    replies = []
        except StopIteration as stop:
            result: Result = stop.value
            return result
        finally:
            protocol.close()

    def generate_timestamp(self) -> Timestamp:
        """Without a protocol. Raises Unavailable."""
        (reply,) = self._combiner.exchange(((ORACLE, GenerateTimestamps(1)),))
        return expect(reply, TimestampRange).first

    def close(self) -> None:
        """Close the stores and let go of the folder. Repeating it is harmless."""
        if os.getpid() == self._process_id:
            self._combiner.close()
            self._lock.close()


class AsyncEmbeddedDriver:
    """Runs each protocol in a thread, since a flush would hold up the event loop."""

    def __init__(self, driver: EmbeddedDriver, threads: ThreadPoolExecutor) -> None:
        self._driver = driver
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    async def run(self, protocol: Protocol[Result]) -> Result:
        """The protocol's result, or its error."""
        self._check_open()
        return await self._loop.run_in_executor(self._threads, self._driver.run, protocol)

    def generate_timestamp(self) -> "asyncio.Future[Timestamp]":
        """Raises InvalidRequest; the future fails with Unavailable."""
        self._check_open()
        return self._loop.run_in_executor(self._threads, self._driver.generate_timestamp)

    async def close(self) -> None:
        """Close the stores and let go of the folder. Repeating it is harmless."""
        if not self._is_closed:
            self._is_closed = True
            await self._loop.run_in_executor(self._threads, self._driver.close)
            self._threads.shutdown(wait=False)

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidRequest(CLOSED.message)


def _check_single_node(folder: Path) -> None:
    strangers = sorted(it.name for it in folder.glob("node-*") if it.name != "node-0")
    if strangers:
        raise InvalidRequest(
            f"{folder} holds the data of several nodes ({', '.join(strangers)} too): "
            "start it with `dodona up`",
            path=str(folder),
        )
