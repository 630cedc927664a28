"""Writes of an asyncio transaction, which are buffered when they are called.

Owns: what happens to a write that is never awaited: a commit must not leave it out without a word.
Nearly always the table is known, and then the call itself buffers. Where the master has to be asked
about the table first, that goes on in a task, later writes wait for it, and so does whatever needs
the buffer: reads, and the commit, which raises what such a write could not do.
Invariant: writes are buffered in the order of their calls.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any

from dodona._core import steps
from dodona._core.steps import Step
from dodona._io.bounds import AsyncRun
from dodona.errors import Unavailable

Make = Callable[[Iterable[Any]], steps.Protocol[None]]


class Write(Coroutine[Any, Any, None]):
    """A write that was called. Await it to learn when it is buffered, or leave it."""

    def __init__(self, task: "asyncio.Task[None] | None", left: "list[asyncio.Task[None]]") -> None:
        self._task = task
        self._left = left
        self._steps: Generator[Any, Any, None] | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        task = self._task
        if task is not None:
            try:
                yield from asyncio.shield(task).__await__()
            finally:
                if task.done() and task in self._left:
                    self._left.remove(task)  # its caller knows what became of it
                del self, task  # which has an error, whose traceback has this frame

    def send(self, value: Any) -> Any:
        """As a coroutine's, for `asyncio.create_task`."""
        self._steps = self._steps or self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """As a coroutine's."""
        self._steps = self._steps or self.__await__()
        return self._steps.throw(*error)

    def close(self) -> None:
        """As a coroutine's: the write goes on."""
        if self._steps is not None:
            self._steps.close()


class Writes:
    """Of one transaction."""

    def __init__(self, run: AsyncRun) -> None:
        self._run = run
        self._left: list[asyncio.Task[None]] = []

    def begin(self, make: Make, rows: Iterable[Any], timeout_ms: int | None = None) -> Write:
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

    async def settle(self, timeout_ms: int | None = None) -> None:
        """Until all are buffered. Raises what one of them did, and nobody has heard of; Unavailable
        after `timeout_ms`."""
        if not self._left:
            return
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while self._left:
                    await Write(self._left[0], self._left)
        except TimeoutError as error:
            text = f"an earlier write has waited for the master for {timeout_ms} ms"
            raise Unavailable(text, server="master", timeout_ms=timeout_ms) from error

    def drop(self) -> None:
        """Nobody needs them any more."""
        for task in self._left:
            task.cancel()
        self._left.clear()

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
