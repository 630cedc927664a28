"""What a thread needs of Python, made by the event loop in short turns beside its own work.

Owns: how much of the loop's time that may take, and the way of what is made to the thread. Two
threads that both run Python never run side by side: they hand the interpreter's lock to and fro,
and each time a core has to wake first. A node that takes rows at its full pace while it flushes is
a third faster if one thread does both (decision 034).

Invariants:
- A turn takes about as long as all else took since the last one: rows come in no faster than older
  ones leave for chunks. It is a step at least, and hardly longer than `TURN_MS_MAX`.
- No more than `AHEAD_MAX` things lie ready: a disk that is slow holds the maker up, and no memory.
- Who is given up hears of it: what was made of something by then is not taken for all of it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

T = TypeVar("T")

TURN_MS_MAX: Final = 3
AHEAD_MAX: Final = 4


class GivenUp(Exception):
    """The process is about to end, and nobody waits for this."""


class Turns(Generic[T]):
    """Makes the items of an iterable in a loop's thread; iterated over, once, in another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, items: Iterable[T]) -> None:
        self._loop = loop
        self._items = iter(items)
        self._made: SimpleQueue[T | BaseException] = SimpleQueue()
        self._ahead_count = 0
        self._is_waiting = False
        """Whether the thread has enough for now."""
        self._is_over = False
        self._ended_s = time.monotonic()

    def give_up(self) -> None:
        """From any thread: make no more of them. Who waits for the next one gets `GivenUp`."""
        self._is_over = True
        self._made.put(GivenUp())

    # In the thread

    def __iter__(self) -> Iterator[T]:
        """Raises what making them raised, and GivenUp."""
        self._tell(self._turn)
        try:
            while not isinstance(item := self._made.get(), BaseException):
                self._tell(self._count_taken)
                yield item
        finally:
            self._is_over = True
        if not isinstance(item, StopIteration):
            raise item

    def _tell(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: whoever closed it gives up on this
            self._loop.call_soon_threadsafe(callback)

    # In the loop

    def _count_taken(self) -> None:
        self._ahead_count -= 1
        if self._is_waiting:
            self._is_waiting = False
            self._turn()

    def _turn(self) -> None:
        began_s = time.monotonic()
        until_s = began_s + min(began_s - self._ended_s, TURN_MS_MAX / 1000)
        while not (self._is_over or self._is_waiting):
            self._make()
            self._is_waiting = self._ahead_count >= AHEAD_MAX
            if time.monotonic() >= until_s:
                break
        self._ended_s = time.monotonic()
        if not (self._is_over or self._is_waiting):
            self._loop.call_soon(self._turn)

    def _make(self) -> None:
        self._ahead_count += 1
        try:
            self._made.put(next(self._items))
        except BaseException as error:  # noqa: BLE001 - the thread's to judge
            self._is_over = True
            self._made.put(error)
