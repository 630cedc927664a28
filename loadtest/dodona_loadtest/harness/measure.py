"""Drive a load from many callers for a while, and sum up the results.

Only acknowledged operations count. A caller begins no operation after the time is up. The clock
stops when the last one has its answer, so that a slow system is not flattered.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from dodona_loadtest.harness.load import AsyncLoad, AsyncOperation, ThreadLoad, ThreadOperation


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one contender, one number of callers, one round."""

    operations: int
    failures: int
    duration_s: float
    latency_us_p50: float
    latency_us_p99: float
    client_cpu_us: float
    """Processor time of the client process for each operation."""

    @property
    def rate(self) -> float:
        """Acknowledged operations a second."""
        return self.operations / self.duration_s


@dataclass(slots=True)
class _Run:
    """State that the callers of one measurement share."""

    tolerated: tuple[type[Exception], ...]
    is_running: bool = True
    operations: int = 0
    failures: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    started_ns: int = field(default_factory=time.perf_counter_ns)
    started_cpu_ns: int = field(default_factory=time.process_time_ns)

    def stop(self) -> None:
        self.is_running = False

    def summary(self) -> Sample:
        elapsed_ns = time.perf_counter_ns() - self.started_ns
        cpu_ns = time.process_time_ns() - self.started_cpu_ns
        latencies = sorted(self.latencies_ns)
        return Sample(
            operations=self.operations,
            failures=self.failures,
            duration_s=elapsed_ns / 1e9,
            latency_us_p50=percentile(latencies, 0.50) / 1e3,
            latency_us_p99=percentile(latencies, 0.99) / 1e3,
            client_cpu_us=cpu_ns / 1e3 / max(1, self.operations),
        )


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Return the smallest value that at least `fraction` of all do not exceed; NaN if none."""
    assert 0 < fraction <= 1
    if not ordered:
        return math.nan
    return ordered[math.ceil(fraction * len(ordered)) - 1]


async def measure_tasks(load: AsyncLoad, callers: int, duration_s: float) -> Sample:
    """Run `callers` coroutines for `duration_s`, each with one operation at a time."""
    operations = [load.operation(caller) for caller in range(callers)]
    return await measure_operations(operations, duration_s, load.tolerated(), load.latency_every)


async def measure_operations(
    operations: Sequence[AsyncOperation],
    duration_s: float,
    tolerated: tuple[type[Exception], ...] = (),
    latency_every: int = 1,
) -> Sample:
    """Await each operation again and again for `duration_s`, side by side."""
    run = _Run(tolerated)
    asyncio.get_running_loop().call_later(duration_s, run.stop)
    async with asyncio.TaskGroup() as group:
        for caller, operation in enumerate(operations):
            untimed = caller % latency_every
            group.create_task(_await_until_stopped(run, operation, latency_every, untimed))
    return run.summary()


async def _await_until_stopped(
    run: _Run, operation: AsyncOperation, latency_every: int, untimed: int
) -> None:
    """Run one caller, with another number of untimed operations first than each other caller. All
    callers begin together. If each timed its first operation, that time would count for
    `latency_every` operations."""
    completed = 0
    while run.is_running:
        try:
            for _ in range(untimed):
                await operation()
                completed += 1
                if not run.is_running:
                    break
            else:
                untimed = latency_every - 1
                started_ns = time.perf_counter_ns()
                await operation()
                run.latencies_ns.append(time.perf_counter_ns() - started_ns)
                completed += 1
        except run.tolerated:
            run.failures += 1
    run.operations += completed


def measure_threads(load: ThreadLoad, callers: int, duration_s: float) -> Sample:
    """Run `callers` threads for `duration_s`, each with one operation at a time."""
    operations = [load.operation(caller) for caller in range(callers)]
    with ThreadPoolExecutor(callers) as pool:
        run = _Run(load.tolerated())
        futures = [pool.submit(_call_until_stopped, run, operation) for operation in operations]
        wait(futures, duration_s, FIRST_EXCEPTION)
        run.stop()
        for future in futures:
            latencies_ns, failures = future.result()
            run.operations += len(latencies_ns)
            run.failures += failures
            run.latencies_ns += latencies_ns
    return run.summary()


def _call_until_stopped(run: _Run, operation: ThreadOperation) -> tuple[list[int], int]:
    """Run one thread. Return the latencies of acknowledged operations, and how many failed."""
    latencies_ns: list[int] = []
    failures = 0
    while run.is_running:
        try:
            started_ns = time.perf_counter_ns()
            operation()
            latencies_ns.append(time.perf_counter_ns() - started_ns)
        except run.tolerated:
            failures += 1
    return latencies_ns, failures
