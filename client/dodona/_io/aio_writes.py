"""Writes of the asyncio API, which begin when they are called.

Owns: what happens to a write that is never awaited. A commit, or the publication of a load, must
include it or raise its error.
- Writes of a transaction: the client nearly always knows the table, and the call itself buffers the
  rows. If it must ask the master about the table first, a task does that. Later writes wait for the
  task. So do reads and the commit, and the commit raises the error of such a write.
- Writes of a load are tasks that run side by side. The publication waits for all of them.
- Changes of a master transaction are tasks that run one after the other.
Invariant: writes of a transaction take place in the order of their calls.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from functools import partial, wraps
from itertools import islice
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from dodona._core.protocol import steps
from dodona._core.protocol.arguments import value_as_now
from dodona._core.protocol.steps import Step
from dodona._io.bounds import AsyncRun
from dodona._io.callers import placed
from dodona_wire.errors import Unavailable

Arguments = ParamSpec("Arguments")
Kind = TypeVar("Kind", bound=type)
Result = TypeVar("Result")
Tasks = list["asyncio.Task[Any]"]

_awaited: Final[set["asyncio.Task[Any]"]] = set()
"""The tasks that a caller awaits now."""


class Write(Coroutine[Any, Any, Result]):
    """A write that was called. Await it to learn when it is done, or leave it."""

    def __init__(
        self, task: "asyncio.Task[Result] | None", left: Tasks, *, goes_on: bool = True
    ) -> None:
        """Wrap the task of the write. Without a task, the write is done. With `goes_on`, the write
        continues even if the caller that awaits it is cancelled."""
        self._task = task
        self._left = left
        self._goes_on = goes_on
        self._steps: Generator[Any, Any, Any] | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        task = self._task
        if task is None:
            return None
        _awaited.add(task)
        try:
            awaited = asyncio.shield(task) if self._goes_on else task
            return (yield from awaited.__await__())
        finally:
            _awaited.discard(task)
            if task.done() and task in self._left:
                self._left.remove(task)  # its caller has the result
            del self, task, awaited  # the traceback of the task's error refers to this frame

    def send(self, value: Any) -> Any:
        """Send a value, as to a coroutine. `asyncio.create_task` needs this method."""
        self._steps = self._steps or self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error inside, as in a coroutine."""
        if self._steps is None and self._task is not None and not self._goes_on:
            self._task.cancel()  # its caller was cancelled before it awaited the write
        self._steps = self._steps or self.__await__()
        return self._steps.throw(*error)

    def close(self) -> None:
        """Close the object, as a coroutine. The write continues."""
        if self._steps is not None:
            self._steps.close()


class _Begun:
    """The writes of one transaction or load that no caller has awaited to their end."""

    def __init__(self) -> None:
        self._left: Tasks = []

    async def settle(self, timeout_ms: int | None = None) -> None:
        """Wait until all writes are done. Raises the error of a write if no caller has seen it.
        Raises Unavailable after `timeout_ms`."""
        if not self._left:
            return
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while self._left:
                    await self._settle(self._left[0])
        except TimeoutError as error:
            raise _too_long(timeout_ms) from error

    async def _settle(self, task: "asyncio.Task[Any]") -> None:
        await asyncio.wait([task])
        if task in self._left:
            self._left.remove(task)
        try:
            if not task.cancelled():  # a caller that awaited it may have been cancelled
                task.result()
        finally:
            del task  # the traceback of its error refers to this frame

    def drop(self) -> None:
        """Drop all writes, and cancel those that no caller awaits. An awaited write continues, and
        its caller learns that the transaction or load is closed."""
        for task in self._left:
            if task not in _awaited:
                task.cancel()
                task.add_done_callback(_retrieve)
        self._left.clear()


def _too_long(timeout_ms: int | None) -> Unavailable:
    text = f"An earlier write got no answer in {timeout_ms} ms."
    return Unavailable(text, timeout_ms=timeout_ms)


def _retrieve(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()  # take the error: the write was dropped


class LoadWrites(_Begun):
    """The writes of one load."""

    def as_now(self, argument: Any) -> Any:
        """Return an argument of a write for later. Data may be large, and is not copied."""
        return argument

    def begin(self, writing: Coroutine[Any, Any, Result]) -> Coroutine[Any, Any, Result]:
        """Begin the write now, as a task. Without a running event loop, it begins when the caller
        runs one."""
        try:
            task = asyncio.get_running_loop().create_task(writing)
        except RuntimeError:
            return writing
        self._left.append(task)
        return Write(task, self._left, goes_on=False)


class TreeWrites(_Begun):
    """The changes of one master transaction. They run one after the other. They also wait for the
    earlier changes of the transactions around it and inside it."""

    def __init__(self, around: "TreeWrites | None" = None) -> None:
        super().__init__()
        self._family: WeakSet[TreeWrites] = WeakSet() if around is None else around._family
        self._family.add(self)

    def as_now(self, argument: Any) -> Any:
        """Return an argument of a change as it is now: the caller may change it before the
        master gets it."""
        return value_as_now(argument)

    async def wait(self, timeout_ms: int | None) -> None:
        """Wait until all earlier changes are done, also those that failed. Raises Unavailable after
        `timeout_ms`."""
        if earlier := self._earlier():
            timeout_s = None if timeout_ms is None else timeout_ms / 1000
            if (await asyncio.wait(earlier, timeout=timeout_s))[1]:
                raise _too_long(timeout_ms)

    def _earlier(self) -> Tasks:
        return [task for it in self._family for task in it._left]

    def begin(self, writing: Coroutine[Any, Any, Result]) -> Coroutine[Any, Any, Result]:
        """Begin the change, as a load does, but behind all earlier changes."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return writing
        task = loop.create_task(_behind(self._earlier(), writing))
        task.add_done_callback(lambda _: writing.close())  # in case it was cancelled before
        self._left.append(task)
        return Write(task, self._left, goes_on=False)


class _Begins(Protocol):
    """An object whose methods begin at their calls."""

    @property
    def _writes(self) -> LoadWrites | TreeWrites: ...


Owner = TypeVar("Owner", bound=_Begins)


def begun_at_call(
    method: Callable[Concatenate[Owner, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Owner, Arguments], Coroutine[Any, Any, Result]]:
    """Begin a write at its call. A commit or a publication includes it without an await."""

    @wraps(method)
    def call(
        self: Owner, /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Coroutine[Any, Any, Result]:
        begin, as_now = self._writes.begin, self._writes.as_now
        late: Any = partial(method, self, *map(as_now, arguments))
        with placed(sys._getframe(1)):
            return begin(late(**{name: as_now(it) for name, it in named.items()}))

    return call


def begun_at_calls(*names: str) -> Callable[[Kind], Kind]:
    """Begin these methods of a class at their calls, also those that it inherits."""

    def changed(kind: Kind) -> Kind:
        for name in names:
            setattr(kind, name, begun_at_call(getattr(kind, name)))
        return kind

    return changed


async def _behind(earlier: Tasks, writing: Coroutine[Any, Any, Result]) -> Result:
    if earlier:
        await asyncio.wait(earlier)
    earlier.clear()
    return await writing


class Writes(_Begun):
    """The writes of one transaction."""

    def __init__(self, run: AsyncRun, rows_max: int) -> None:
        """`rows_max` is the most rows of a transaction: more are not looked at."""
        super().__init__()
        self._run = run
        self._rows_max = rows_max
        self._rows: list[Any] = []
        """The rows of the next write."""

    def kept(self, rows: Iterable[Any]) -> Iterable[Any]:
        """Return the rows in a list of our own, for the write that begins next."""
        if type(rows) is not list:
            if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
                return rows  # the write refuses it
            rows = map(value_as_now, rows) if isinstance(rows, Iterator) else rows
            rows = islice(rows, self._rows_max + 1)
        self._rows = [*rows]
        return self._rows

    def _keep(self) -> None:
        """Copy the rows, since the write must wait. Its caller may change them meanwhile."""
        rows, self._rows = self._rows, []
        rows[:] = [*map(value_as_now, rows)]

    def begin(self, protocol: steps.Protocol[None], timeout_ms: int | None = None) -> Write[None]:
        """Buffer rows, which are `kept`, by this protocol: now, if the table is known. Then the
        call raises the errors of the write. Else a task does it, with the rows as they are now.
        `timeout_ms` limits the questions to the master."""
        if self._left:
            going_on = self._after(self._left[-1], protocol, timeout_ms)
        else:
            try:
                step = next(protocol)
            except StopIteration:
                return Write(None, self._left)
            going_on = self._run(_resumed(protocol, step), timeout_ms)
        self._keep()
        task = asyncio.ensure_future(going_on)
        self._left.append(task)
        return Write(task, self._left)

    async def _after(
        self,
        earlier: "asyncio.Task[None]",
        protocol: steps.Protocol[None],
        timeout_ms: int | None,
    ) -> None:
        await asyncio.wait([earlier])
        await self._run(protocol, timeout_ms)


def _resumed(protocol: steps.Protocol[None], step: Step) -> steps.Protocol[None]:
    """Return the rest of a protocol that has made its first step."""
    try:
        while True:
            step = protocol.send((yield step))
    except StopIteration:
        return
    finally:
        protocol.close()
