"""A lone caller that pings every millisecond, with or without an answer to the last ping.

Owns: when pings leave, and how long they waited. A ping never waits for another one's answer. So a
pause of the system shows in all pings that fall into it, and none is left out.
"""

import asyncio
import gc
import time
from dataclasses import dataclass
from typing import Final, Literal

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.measure import percentile

PingKind = Literal["lookup", "commit"]
"""The call on a single existing row."""

PERIOD_NS: Final = 1_000_000
LATE_NS_MAX: Final = 2 * PERIOD_NS
"""The event loop's clock ticks once a millisecond. If a ping leaves later than this, a busy machine
delayed it, and its wait counts from the time when it was due."""
PINGS_WAITING_MAX: Final = 5_000
ANSWER_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the pings of a period waited, in ms."""

    count: int
    failures: int
    """Pings that ended in an error that a caller must expect. The caller waited for it as well."""
    ms_p50: float
    ms_p99: float
    ms_max: float


class Pinger:
    """Sends pings from `start` to `stop`, in the event loop of their caller."""

    def __init__(self, operation: AsyncOperation, tolerated: tuple[type[Exception], ...]) -> None:
        self._operation = operation
        self._tolerated = tolerated
        self._waits_ns: list[int] = []
        self._failures = 0
        self._waiting: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    def start(self) -> None:
        """Send the first ping now. Python's collector ignores the objects of this process from now
        on, because a look through all of them takes tens of milliseconds."""
        gc.collect()
        gc.freeze()
        self._ticking = asyncio.create_task(self._tick())

    async def stop(self) -> Waits:
        """Send no more pings, and wait for all answers. Raises what a ping raised, and
        ContenderFailed if pings stay without an answer."""
        self._ticking.cancel()
        if self._waiting:
            _, late = await asyncio.wait(self._waiting, timeout=ANSWER_S_MAX)
            for task in late:
                task.cancel()
            if late:
                raise ContenderFailed(f"{len(late)} pings had no answer in {ANSWER_S_MAX:.0f} s")
        if self._error is not None:
            raise self._error
        waits_ms = [wait_ns / 1e6 for wait_ns in sorted(self._waits_ns)]
        return Waits(
            count=len(waits_ms),
            failures=self._failures,
            ms_p50=percentile(waits_ms, 0.50),
            ms_p99=percentile(waits_ms, 0.99),
            ms_max=percentile(waits_ms, 1.0),
        )

    async def _tick(self) -> None:
        due_ns = time.perf_counter_ns()
        while self._error is None:
            now_ns = time.perf_counter_ns()
            while due_ns <= now_ns and len(self._waiting) < PINGS_WAITING_MAX:
                task = asyncio.create_task(self._ping(due_ns))
                self._waiting.add(task)
                task.add_done_callback(self._waiting.discard)
                due_ns += PERIOD_NS
            await asyncio.sleep(max(0, due_ns - time.perf_counter_ns()) / 1e9)

    async def _ping(self, due_ns: int) -> None:
        started_ns = time.perf_counter_ns()
        if started_ns - due_ns > LATE_NS_MAX:
            started_ns = due_ns
        try:
            await self._operation()
        except self._tolerated:
            self._failures += 1
        except Exception as error:  # noqa: BLE001 (raised by `stop`)
            self._error = self._error or error
            return
        self._waits_ns.append(time.perf_counter_ns() - started_ns)
