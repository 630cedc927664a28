"""One client process for each contender: its own heap, its own event loop, its own cores.

Owns the process and the pipe to it. The parent sends a number of callers and durations, the child
answers with a sample or with the text of an error. Every answer is waited for within a bound.
"""

import asyncio
import gc
import multiprocessing
import traceback
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, Self

import uvloop

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.load import AsyncLoad, Load
from dodona_loadtest.harness.measure import Sample, measure_tasks, measure_threads
from dodona_loadtest.harness.pinning import pin_this_process

OPEN_S_MAX: Final = 60.0
SLACK_S_MAX: Final = 60.0
"""Beyond the measured time: connections, stragglers, the check."""
CLOSE_S_MAX: Final = 15.0


class Order(NamedTuple):
    """Measure that many callers."""

    callers: int
    warm_up_s: float
    measure_s: float


class ClientProcess:
    """A started and opened load. Use as a context manager."""

    def __init__(self, load: Load, cores: frozenset[int], callers_max: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child_pipe = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(load, cores, callers_max, child_pipe), daemon=True
        )
        self._process.start()
        child_pipe.close()

    def __enter__(self) -> Self:
        try:
            self._receive(OPEN_S_MAX)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(CLOSE_S_MAX)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def measure(self, order: Order) -> Sample:
        """Raises ContenderFailed with what the client process saw."""
        self._pipe.send(order)
        sample = self._receive(order.warm_up_s + order.measure_s + SLACK_S_MAX)
        assert isinstance(sample, Sample)
        return sample

    def _receive(self, wait_s_max: float) -> Any:
        if not self._pipe.poll(wait_s_max):
            raise ContenderFailed(f"the client process was silent for {wait_s_max:.0f} s")
        try:
            answer = self._pipe.recv()
        except EOFError as error:
            raise ContenderFailed("the client process ended") from error
        if isinstance(answer, str):
            raise ContenderFailed(answer)
        return answer


def _serve(load: Load, cores: frozenset[int], callers_max: int, pipe: Connection) -> None:
    """The child: open, answer orders until the parent closes the pipe, close."""
    pin_this_process(cores)
    try:
        if isinstance(load, AsyncLoad):
            uvloop.run(_serve_tasks(load, callers_max, pipe))
        else:
            _serve_threads(load, callers_max, pipe)
    except (EOFError, KeyboardInterrupt):
        return
    except Exception as error:  # noqa: BLE001 (whatever it is, the parent reports it)
        pipe.send(_describe(error))


def _describe(error: BaseException) -> str:
    """The innermost error in a line; its stack goes to stderr for whoever debugs it."""
    traceback.print_exception(error)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _next_order(pipe: Connection) -> Order:
    """Raises EOFError when the parent is done."""
    order = pipe.recv()
    assert isinstance(order, Order)
    gc.collect()
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


def _serve_threads(load: Load, callers_max: int, pipe: Connection) -> None:
    assert not isinstance(load, AsyncLoad)
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
