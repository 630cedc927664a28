"""Sessions of one client process on a real cluster, in one event loop, each with a recorder.

Owns: the loop of a session (think, do one step of the workload, again) and its end. One thread runs
them all. So a history, its counters and a workload's findings need no locks. Several processes side
by side give real concurrency. Instants are those of the machine's monotonic clock, which all of its
processes share.
"""

import asyncio
import random
import time
from collections.abc import Callable
from random import Random
from typing import Final

from dodona._core.protocol.context import Acknowledgement
from dodona._core.protocol.limits import SessionLimits
from dodona._core.protocol.routing import Routing
from dodona._core.protocol.steps import Pause, Protocol, Result
from dodona._core.session import Session
from dodona._io.drivers import AsyncioDriver
from dodona_loadtest.histories.history import History
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.workloads import Workload
from dodona_wire.errors import DodonaError

CONNECT_MS_MAX: Final = 3_000

Notice = Callable[[str], None]
"""Called with a session's name before one of its requests leaves the process."""


def now_us() -> int:
    """Return microseconds of the machine's monotonic clock."""
    return time.monotonic_ns() // 1000


def new_session(
    acknowledgement: Acknowledgement = "decided", limits: SessionLimits | None = None
) -> Session:
    """Return a client's session with this process's clocks and random numbers."""
    return Session(
        instant_us=now_us,
        unix_us=lambda: time.time_ns() // 1000,
        dice=random.random,
        routing=Routing(),
        limits=limits,
        acknowledgement=acknowledgement,
    )


class SessionGroup:
    """The sessions that share a connection. Make it in the event loop that will run them."""

    def __init__(
        self,
        master_url: str,
        workload: Workload,
        history: History,
        *,
        acknowledgement: Acknowledgement = "decided",
        limits: SessionLimits | None = None,
        think_ms_mean: float,
        notice: Notice = lambda session: None,
    ) -> None:
        """`notice` may write down which requests the session has in flight."""
        self.workload = workload
        self.history = history
        self.session = new_session(acknowledgement, limits)
        self._driver = AsyncioDriver(master_url, self.session.routing)
        self._think_ms_mean = think_ms_mean
        self._notice = notice
        self._is_ending = False
        self._running_count = 0
        self._idle = asyncio.Event()

    async def connect(self) -> None:
        """Learn the cluster's proxies: without them the master is asked for timestamps. Raises
        Unavailable."""
        await self._driver.run(self.session.catalog.get_cluster(CONNECT_MS_MAX))

    def recorder(self, name: str, random: Random) -> Recorder:
        """Return the recorder of one session. Names are unique in a history."""
        return Recorder(self.session, name, self.history, random, now_us)

    async def run(self, db: Recorder, protocol: Protocol[Result]) -> Result:
        """Run one protocol of a session."""
        self._running_count += 1
        self._idle.clear()
        try:
            return await self._driver.run(self._attend(db, protocol))
        finally:
            self._running_count -= 1
            if not self._running_count:
                self._idle.set()

    async def wait_until_idle(self) -> None:
        """Wait until no session runs anything, for a caller that can't wait for each of them."""
        if self._running_count:
            await self._idle.wait()

    async def use(self, db: Recorder) -> None:
        """Run one step of the workload after the other, until the end."""
        while not self._is_ending:
            await self.run(db, self._think(db))
            try:
                await self.run(db, self.workload.step(db))
            except DodonaError:
                continue  # the caller's answer is in the history

    def end(self) -> None:
        """Let sessions finish their current step, without further pauses, and stop."""
        self._is_ending = True

    async def close(self) -> None:
        await self._driver.close()

    def _think(self, db: Recorder) -> Protocol[None]:
        if self._think_ms_mean:
            yield Pause(int(db.random.expovariate(1 / self._think_ms_mean)))

    def _attend(self, db: Recorder, protocol: Protocol[Result]) -> Protocol[Result]:
        """Pass on all steps, with a notice of each. At the end no session pauses for long."""
        try:
            step = next(protocol)
            while True:
                self._notice(db.name)
                if isinstance(step, Pause) and self._is_ending and step.duration_ms > 100:
                    step = Pause(100)
                step = protocol.send((yield step))
        except StopIteration as stop:
            result: Result = stop.value
            return result
        finally:
            protocol.close()
