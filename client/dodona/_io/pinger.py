"""The thread that does the periodic work of a blocking client.

Owns: the thread. It exists while there is work, and ends with the client. The chores decide what to
do and when: they ping master transactions, and renew the leases of held snapshots and loads.

Signals may interrupt callers between any two steps, and finalizers may call in at any step. So no
locks are used here. Callers put items into a queue. The threads that are begun for the work settle
among themselves which of them does it.
This module does not keep the driver alive, so the program can drop a client with all that belongs
to it.
"""

import threading
from _queue import Empty, SimpleQueue
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakMethod

from dodona._core.protocol import steps
from dodona._io.bounds import Driver
from dodona_wire.net.threads import begin_thread

CLOSE_SECONDS_MAX: Final = 5.0

Item = TypeVar("Item")
Taken = TypeVar("Taken", contravariant=True)


class Chores(Protocol[Taken]):
    """The periodic work for some items, while they are in use."""

    def add(self, item: Taken, /) -> None: ...

    def wait_ms(self) -> int | None:
        """Return how long until some work is due, in ms. None if no work will be due."""
        ...

    def do_due(self) -> steps.Protocol[None]: ...


def close_all(driver: Driver, *pingers: "Pinger[Any]") -> None:
    """Close a client: its driver first, so that the threads of the pingers wait for no answer."""
    driver.close()
    for pinger in pingers:
        pinger.close()


class Pinger(Generic[Item]):
    """Does the periodic work of one client. Any thread may use it."""

    def __init__(self, run: Callable[[Any], Any], chores: Chores[Item]) -> None:
        """Take the work, and `run`, which must be a method of the driver."""
        self._run = WeakMethod(run)
        self._chores = chores
        self._news: SimpleQueue[Item | None] = SimpleQueue()  # None: check `_is_closed`
        self._doers: dict[int, int] = {}  # at key 0 the thread that does the work, if any
        self._thread: threading.Thread | None = None  # the thread that began last
        self._is_closed = False

    def watch(self, item: Item) -> None:
        """Do the periodic work of this item from now on."""
        self._news.put(item)
        if not self._doers:
            self._thread = begin_thread(self._do_all, "dodona-pinger")

    def close(self) -> None:
        """Stop all periodic work. The driver is closed already, so the thread waits for no
        answer."""
        self._is_closed = True
        self._news.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS_MAX)

    # ---- in a thread of its own

    def _do_all(self) -> None:
        """Work while there is an item, in one thread at a time. If an item comes while this thread
        is about to end, this thread sees it, or the next thread, which begins then."""
        me = threading.get_ident()
        while self._doers.setdefault(0, me) == me:
            try:
                while self._wait() and self._do_due():
                    pass
            finally:
                del self._doers[0]
            if self._is_closed or self._news.empty():
                return

    def _do_due(self) -> bool:
        """Do the work that is due. Returns False if the driver is gone."""
        run = self._run()
        if run is None:
            self._is_closed = True
            return False
        run(self._chores.do_due())
        return True

    def _wait(self) -> bool:
        """Wait until some work is due. Returns False once no work will be."""
        self._take(0)
        while not self._is_closed and (wait_ms := self._chores.wait_ms()) is not None:
            if wait_ms == 0:
                return True
            self._take(wait_ms / 1000)
        return False

    def _take(self, wait_s: float) -> None:
        """Take new items from the queue. If there are none, wait for one for at most `wait_s`."""
        with suppress(Empty):
            item = self._news.get(wait_s > 0, wait_s)
            while True:
                if item is not None:
                    self._chores.add(item)
                item = self._news.get_nowait()
