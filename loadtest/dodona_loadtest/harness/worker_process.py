"""A client process that does one thing after another, as a study's story needs it.

The parent calls methods of an object that lives in the child. The parent makes a `Worker` and
pickles it into the child, which opens it, as with a load.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar, cast

import uvloop

from dodona_loadtest.harness.child import Child, describe, next_question

CALL_S_MAX: Final = 600.0

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Worker(ABC):
    """An object in the child. Its methods are coroutines; arguments and results are data."""

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections."""


WorkerType = TypeVar("WorkerType", bound=Worker)


class Spent(NamedTuple):
    """The time of one call, on the clock and of the client process's processor."""

    duration_s: float
    cpu_s: float


class Stopwatch:
    """A stopwatch that runs from its making on."""

    def __init__(self) -> None:
        self._started_ns = time.perf_counter_ns()
        self._started_cpu_ns = time.process_time_ns()

    def read(self) -> Spent:
        """Return the time so far. The processor time is that of all threads of this process."""
        duration_ns = time.perf_counter_ns() - self._started_ns
        return Spent(duration_ns / 1e9, (time.process_time_ns() - self._started_cpu_ns) / 1e9)


class WorkerProcess(Child, Generic[WorkerType]):
    """A started and opened worker. Use as a context manager."""

    def __init__(self, worker: WorkerType, cores: frozenset[int]) -> None:
        super().__init__(_serve, (worker,), cores)

    def call(
        self,
        method: Callable[Concatenate[WorkerType, Parameters], Awaitable[Result]],
        *arguments: Parameters.args,
        **options: Parameters.kwargs,
    ) -> Result:
        """Call a method of the worker's class: `call(MyWorker.write, 5)`. Raises ContenderFailed
        with the worker's error. After that it can be called again."""
        (result,) = self._ask((method.__name__, arguments, options), CALL_S_MAX)
        return cast(Result, result)


def _serve(worker: Worker, pipe: Connection) -> None:
    uvloop.run(_serve_calls(worker, pipe))


async def _serve_calls(worker: Worker, pipe: Connection) -> None:
    await worker.open()
    pipe.send(b"opened")
    try:
        while True:
            name, arguments, options = await asyncio.to_thread(next_question, pipe)
            pipe.send(await _answer(getattr(worker, name)(*arguments, **options)))
    finally:
        await worker.close()


async def _answer(call: Awaitable[Any]) -> tuple[Any] | str:
    try:
        return (await call,)
    except Exception as error:  # noqa: BLE001 (whatever it is, the parent reports it)
        return describe(error)
