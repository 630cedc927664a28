"""Run the Python work of a thread in the event loop, in short turns beside the loop's own work.

Owns: how much of the loop's time this may take, and how the thread gets the items that the loop
makes. Two threads that both run Python never run side by side. They pass the interpreter's lock to
and fro, and each time a core has to wake first. A node that takes rows at its full pace while it
flushes is a third faster if one thread does both (decision 034).

Invariants:
- A turn takes about as long as all other work took since the last turn. So rows come in no faster
  than older rows leave for chunks. A turn is one step at least, and hardly longer than
  `TURN_MS_MAX`.
- At most `AHEAD_MAX` items are ready. So a slow disk holds up the maker, and memory does not fill.
- A thread whose work is cancelled gets an error. So it does not take a part of the items for all.
"""

import asyncio
import time
from _queue import SimpleQueue
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, Generic, TypeVar

T = TypeVar("T")

TURN_MS_MAX: Final = 3
AHEAD_MAX: Final = 4


class GivenUp(Exception):
    """The process is about to end, so the work was cancelled."""


class Turns(Generic[T]):
    """The items of an iterable, made in a loop's thread, and iterated over, once, in another
    thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, items: Iterable[T]) -> None:
        self._loop = loop
        self._items = iter(items)
        self._made: SimpleQueue[T | BaseException] = SimpleQueue()
        self._ahead_count = 0
        self._is_waiting = False
        """Whether the thread has enough items for now."""
        self._is_over = False
        self._ended_s = time.monotonic()

    def give_up(self) -> None:
        """Make no more items. A thread that waits for the next one gets `GivenUp`. Any thread may
        call this."""
        self._is_over = True
        self._made.put(GivenUp())

    # In the thread

    def __iter__(self) -> Iterator[T]:
        """Yield the items. Raises what the maker raised, and GivenUp."""
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
        with suppress(RuntimeError):  # the loop is closed: its owner calls `give_up`
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
