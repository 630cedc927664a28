"""One client process for each contender of a row: it has a load in it, and measures the load.

The parent sends a number of callers and durations. The child answers with a sample.
"""

import asyncio
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

import uvloop

from dodona_loadtest.harness.child import Child, next_question
from dodona_loadtest.harness.load import AsyncLoad, Load, ThreadLoad
from dodona_loadtest.harness.measure import Sample, measure_tasks, measure_threads

SLACK_S_MAX: Final = 60.0
"""Seconds beyond the measured time, for connections, stragglers and the check."""


class Order(NamedTuple):
    """An order to measure with that many callers."""

    callers: int
    warm_up_s: float
    measure_s: float


class ClientProcess(Child):
    """A started and opened load. Use as a context manager."""

    def __init__(self, load: Load, cores: frozenset[int], callers_max: int) -> None:
        super().__init__(_serve, (load, callers_max), cores)

    def measure(self, order: Order) -> Sample:
        """Measure, and return the sample. Raises ContenderFailed with the client's error."""
        sample = self._ask(order, order.warm_up_s + order.measure_s + SLACK_S_MAX)
        assert isinstance(sample, Sample)
        return sample


def _serve(load: Load, callers_max: int, pipe: Connection) -> None:
    """Run the child: open, answer orders until the parent closes the pipe, close."""
    if isinstance(load, AsyncLoad):
        uvloop.run(_serve_tasks(load, callers_max, pipe))
    else:
        _serve_threads(load, callers_max, pipe)


def _next_order(pipe: Connection) -> Order:
    order = next_question(pipe)
    assert isinstance(order, Order)
    return order


async def _serve_tasks(load: AsyncLoad, callers_max: int, pipe: Connection) -> None:
    await load.open(callers_max)
    pipe.send(b"opened")
    try:
        while True:
            order = await asyncio.to_thread(_next_order, pipe)
            await measure_tasks(load, order.callers, order.warm_up_s)
            sample = await measure_tasks(load, order.callers, order.measure_s)
            await load.check()
            pipe.send(sample)
    finally:
        await load.close()


def _serve_threads(load: ThreadLoad, callers_max: int, pipe: Connection) -> None:
    load.open(callers_max)
    pipe.send(b"opened")
    try:
        while True:
            order = _next_order(pipe)
            measure_threads(load, order.callers, order.warm_up_s)
            sample = measure_threads(load, order.callers, order.measure_s)
            load.check()
            pipe.send(sample)
    finally:
        load.close()
