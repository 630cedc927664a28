"""Writes of the asyncio API, which begin when they are called.

Owns: what happens to a write that is never awaited: a commit, or the publication of a load, must
not leave it out without a word. Of a transaction nearly always the table is known, and then the
call itself buffers. Where the master has to be asked about the table first, that goes on in a task,
later writes wait for it, and so does whatever needs the buffer: reads, and the commit, which raises
what such a write could not do. Writes of a load are tasks beside each other, and the publication
waits for all of them. What a master transaction changes are tasks one after the other.
Invariant: writes of a transaction take place in the order of their calls.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any, Final, TypeVar
from weakref import WeakSet

from dodona._core.protocol import steps
from dodona._core.protocol.steps import Step
from dodona._io.bounds import AsyncRun
from dodona_wire.errors import Unavailable

Result = TypeVar("Result")
Make = Callable[[Iterable[Any]], steps.Protocol[None]]
Tasks = list["asyncio.Task[Any]"]

_awaited: Final[set["asyncio.Task[Any]"]] = set()
"""Those of which somebody hears at this moment."""


class Write(Coroutine[Any, Any, Result]):
    """A write that was called. Await it to learn when it is done, or leave it."""

    def __init__(
        self, task: "asyncio.Task[Result] | None", left: Tasks, *, goes_on: bool = True
    ) -> None:
        """`goes_on`: also if whoever awaits it is cancelled. Without a task it is done."""
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
                self._left.remove(task)  # its caller knows what became of it
            del self, task, awaited  # which has an error, whose traceback has this frame

    def send(self, value: Any) -> Any:
        """As a coroutine's, for `asyncio.create_task`."""
        self._steps = self._steps or self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """As a coroutine's."""
        if self._steps is None and self._task is not None and not self._goes_on:
            self._task.cancel()  # whoever was to await it was cancelled before
        self._steps = self._steps or self.__await__()
        return self._steps.throw(*error)

    def close(self) -> None:
        """As a coroutine's: the write goes on."""
        if self._steps is not None:
            self._steps.close()


class _Begun:
    """Those of one transaction or load that nobody has awaited to their end."""

    def __init__(self) -> None:
        self._left: Tasks = []

    async def settle(self, timeout_ms: int | None = None) -> None:
        """Until all are done. Raises what one of them did, and nobody has heard of; Unavailable
        after `timeout_ms`."""
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
            if not task.cancelled():  # by whoever awaited it
                task.result()
        finally:
            del task  # which has an error, whose traceback has this frame

    def drop(self) -> None:
        """Nobody needs them any more. What somebody awaits goes on: he hears that it is closed."""
        for task in self._left:
            if task not in _awaited:
                task.cancel()
                task.add_done_callback(_retrieve)
        self._left.clear()


def _too_long(timeout_ms: int | None) -> Unavailable:
    text = f"an earlier write has waited for an answer for {timeout_ms} ms"
    return Unavailable(text, timeout_ms=timeout_ms)


def _retrieve(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()  # of a write that is of no account


class LoadWrites(_Begun):
    """Of one load."""

    def begin(self, writing: Coroutine[Any, Any, Result]) -> Coroutine[Any, Any, Result]:
        """Begin it now. Whoever runs an event loop by hand does so when he runs it."""
        try:
            task = asyncio.get_running_loop().create_task(writing)
        except RuntimeError:
            return writing
        self._left.append(task)
        return Write(task, self._left, goes_on=False)


class TreeWrites(_Begun):
    """Of one master transaction: one after the other, and after those of the transactions around
    it and in it."""

    def __init__(self, around: "TreeWrites | None" = None) -> None:
        super().__init__()
        self._family: WeakSet[TreeWrites] = WeakSet() if around is None else around._family
        self._family.add(self)

    async def wait(self, timeout_ms: int | None) -> None:
        """Until all are done that were begun before, whatever came of them. Raises Unavailable
        after `timeout_ms`."""
        if earlier := self._earlier():
            timeout_s = None if timeout_ms is None else timeout_ms / 1000
            if (await asyncio.wait(earlier, timeout=timeout_s))[1]:
                raise _too_long(timeout_ms)

    def _earlier(self) -> Tasks:
        return [task for it in self._family for task in it._left]

    def begin(self, writing: Coroutine[Any, Any, Result]) -> Coroutine[Any, Any, Result]:
        """As a load's."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return writing
        task = loop.create_task(_behind(self._earlier(), writing))
        task.add_done_callback(lambda _: writing.close())  # it may have been cancelled before
        self._left.append(task)
        return Write(task, self._left, goes_on=False)


async def _behind(earlier: Tasks, writing: Coroutine[Any, Any, Result]) -> Result:
    if earlier:
        await asyncio.wait(earlier)
    earlier.clear()
    return await writing


class Writes(_Begun):
    """Of one transaction."""

    def __init__(self, run: AsyncRun) -> None:
        super().__init__()
        self._run = run

    def begin(self, make: Make, rows: Iterable[Any], timeout_ms: int | None = None) -> Write[None]:
        """Buffer now, if that is possible. Raises what the write does, if it is. `timeout_ms`
        bounds what it asks the master."""
        if self._left:
            copies = [dict(it) if isinstance(it, Mapping) else it for it in rows]
            going_on = self._after(self._left[-1], make(copies), timeout_ms)
        else:
            protocol = make(rows)
            try:
                step = next(protocol)
            except StopIteration:
                return Write(None, self._left)
            going_on = self._run(_resumed(protocol, step), timeout_ms)
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
    """The rest of one that has made its first step."""
    try:
        while True:
            step = protocol.send((yield step))
    except StopIteration:
        return
    finally:
        protocol.close()
