"""Open a database inside the caller's process, for any number of threads: `dodona.open`.

Owns: the two drivers, blocking and for asyncio. The cores are those of the servers, without servers
and without threads: see `embedded_combiner`. A driver that the program can no longer reach is
closed without a wait, in the thread in which Python notices. So only its clients may keep a
reference to a driver.

The metadata of the distribution names this module, as an entry point. The client looks there,
because it does not know the servers.
"""

import asyncio
import os
import time
import weakref
from functools import partial
from typing import Any, Final

from dodona._core.protocol.context import expect
from dodona._core.protocol.deadline import bounded
from dodona._core.protocol.routing import Routing
from dodona._core.protocol.steps import ORACLE, Calls, Pause, Post, Protocol, Result
from dodona._io.refusals import CLOSED, check_loop
from dodona._io.sessions import instant_us
from dodona._io.tracebacks import OWN, forget_locals
from dodona_local.embedded_combiner import Combiner
from dodona_local.embedded_folder import OpenFolder, admit
from dodona_wire.errors import DodonaError, InvalidRequest
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.net.native_threads import check_threads
from dodona_wire.net.paths import place_of
from dodona_wire.net.pools import Pool
from dodona_wire.types import Timestamp

THREADS_MAX: Final = 64
"""The number of protocols of the asyncio driver that run at a time: at most so many share a
flush."""
_OWN: Final = (*OWN, "dodona_local.", "dodona_replication.", "dodona_server.")


def open_blocking(path: str, routing: Routing, made: list[Any]) -> "EmbeddedDriver":
    """Open the folder for blocking callers. `made` gets the driver before anything is open. So an
    interrupt of the caller leaves no open folder without an owner."""
    del routing  # an embedded database has no addresses
    driver = EmbeddedDriver(path)
    made.append(driver)
    driver.open()
    return driver


async def open_async(path: str, routing: Routing) -> "AsyncEmbeddedDriver":
    """Open the folder for asyncio callers."""
    del routing
    threads = Pool(THREADS_MAX, "dodona-embedded")
    driver = EmbeddedDriver(path)
    try:
        # Until this task waits, the loop holds the last error that it met, with its traceback. The
        # traceback may lead to the client that had the folder before.
        await asyncio.sleep(0)
        await threads.ask(partial(_open, weakref.ref(driver)))
    except BaseException:
        driver.begin_closing()
        threads.close(wait=False)
        raise
    return AsyncEmbeddedDriver(driver, threads)


class EmbeddedDriver:
    """Runs protocols in any thread of the process that made it."""

    def __init__(self, path: str) -> None:
        """Make the driver; the folder is not open yet. Raises InvalidRequest."""
        if not __debug__:
            raise InvalidRequest("an embedded database does not run under python -O: leave -O out")
        check_threads()
        self._process_id = os.getpid()
        self._folder = OpenFolder(place_of(path))
        self._combiner = Combiner(self._folder.open, self._folder.close)
        # A driver without references must release its folder. At the end of the process a close
        # would only take time.
        weakref.finalize(self, _close, self._combiner, self._process_id).atexit = False

    def open(self) -> None:
        """Open the folder. Raises FolderInUse, DataCorrupted, InvalidRequest."""
        admit(self._folder, self._combiner)
        self._combiner.open()

    def run(self, protocol: Protocol[Result], timeout_ms: int | None = None) -> Result:
        """Return the protocol's result, or raise its error, after about `timeout_ms` at most. A
        sync of the disk is not cut short."""
        if os.getpid() != self._process_id:
            raise InvalidRequest(
                f"process {self._process_id} opened this database, and this process is a fork of "
                "it: only one process at a time can use an embedded database. Use it there, or "
                "close it there and open it here"
            )
        if timeout_ms is not None:
            protocol = bounded(protocol, timeout_ms, instant_us)
        replies: Any = None
        try:
            while True:
                step = protocol.send(replies)
                if type(step) is Pause:
                    time.sleep(step.duration_ms / 1000)
                    replies = []
                elif type(step) is Calls:
                    replies = self._combiner.exchange(step.requests, step.timeout_ms)
                elif type(step) is Post:
                    self._combiner.exchange(step.requests)
                    replies = []
        except StopIteration as stop:
            result: Result = stop.value
            return result
        except DodonaError as error:
            forget_locals(error, _OWN)
            raise
        finally:
            protocol.close()

    def generate_timestamp(self) -> Timestamp:
        """Return a fresh timestamp, without a protocol. Raises Unavailable."""
        (reply,) = self._combiner.exchange(((ORACLE, GenerateTimestamps(1)),))
        return expect(reply, TimestampRange).first

    def close(self) -> None:
        """Close the stores and release the folder. A repeat is harmless, and continues a close that
        an interrupt ended."""
        if os.getpid() == self._process_id:
            self._combiner.close()

    def begin_closing(self) -> None:
        """Begin to close, as `close` does, without a wait."""
        _close(self._combiner, self._process_id)


def _close(combiner: Combiner, process_id: int) -> None:
    if os.getpid() == process_id:  # after a fork, the parent owns the folder
        combiner.begin_closing()


class AsyncEmbeddedDriver:
    """Runs each protocol in a thread, because a flush would block the event loop."""

    def __init__(self, driver: EmbeddedDriver, threads: Pool) -> None:
        self._driver = driver
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    async def run(self, protocol: Protocol[Result], timeout_ms: int | None = None) -> Result:
        """Return the protocol's result, or raise its error, after about `timeout_ms` at most."""
        self._check_usable()
        ask = partial(_run, weakref.ref(self._driver), protocol, timeout_ms)
        return await self._threads.ask(ask)

    def generate_timestamp(self) -> "asyncio.Future[Timestamp]":
        """Return a future for a timestamp; it fails with Unavailable. Raises InvalidRequest."""
        self._check_usable()
        ask = partial(_generate_timestamp, weakref.ref(self._driver))
        return self._threads.ask(ask)

    async def close(self) -> None:
        """Close the stores and release the folder. A repeat is harmless."""
        if not self._is_closed:
            self._check_usable()
            self._is_closed = True
            try:
                await self._threads.ask(self._driver.close)
            finally:
                self._threads.close(wait=False)

    def _check_usable(self) -> None:
        """Check the driver before any request to the database. A caller that can't get the answer
        must not change the database."""
        if self._is_closed:
            raise InvalidRequest(CLOSED.message)
        check_loop(self._loop)


# These functions run in a thread of the asyncio driver. The thread keeps its call a little longer
# than the caller waits. So the call has only a weak reference to the driver.


def _open(driver: "weakref.ref[EmbeddedDriver]") -> None:
    _kept(driver).open()


def _run(
    driver: "weakref.ref[EmbeddedDriver]", protocol: Protocol[Result], timeout_ms: int | None
) -> Result:
    return _kept(driver).run(protocol, timeout_ms)


def _generate_timestamp(driver: "weakref.ref[EmbeddedDriver]") -> Timestamp:
    return _kept(driver).generate_timestamp()


def _kept(driver: "weakref.ref[EmbeddedDriver]") -> EmbeddedDriver:
    kept = driver()
    if kept is None:  # the caller was cancelled before this thread began the call
        raise InvalidRequest(CLOSED.message)
    return kept
