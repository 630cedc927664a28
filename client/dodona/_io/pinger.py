"""The thread that does a blocking client's chores: what has to be said again and again.

Owns: the thread. It is there while there is something to do, and ends with the client. What is
done, and when, is the chores' business: pings of master transactions, renewals of held snapshots.

Callers may be interrupted between any two steps, and finalizers may call in at any: so nothing is
locked. They leave items in a queue. Who does the chores is settled by the threads that are begun
for it, among themselves.
The driver is not kept: what is held of a client that nobody has any more is nobody's either.
"""

import threading
from _queue import Empty, SimpleQueue
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakMethod

from dodona._core.protocol import steps
from dodona_wire.net.threads import begin_thread

CLOSE_SECONDS_MAX: Final = 5.0

Item = TypeVar("Item")
Taken = TypeVar("Taken", contravariant=True)


class Chores(Protocol[Taken]):
    """What there is to do for some items, as long as they are in use."""

    def add(self, item: Taken, /) -> None: ...

    def wait_ms(self) -> int | None:
        """How long until something is due. None if nothing will be."""
        ...

    def do_due(self) -> steps.Protocol[None]: ...


class Pinger(Generic[Item]):
    """One client's. Any thread may use it."""

    def __init__(self, run: Callable[[Any], Any], chores: Chores[Item]) -> None:
        """`run` is the driver's, a method."""
        self._run = WeakMethod(run)
        self._chores = chores
        self._news: SimpleQueue[Item | None] = SimpleQueue()  # None: look whether it is closed
        self._doers: dict[int, int] = {}  # at 0 the thread that does them, if there is one
        self._thread: threading.Thread | None = None  # the last one that was begun
        self._is_closed = False

    def watch(self, item: Item) -> None:
        """Do what is due for it from now on."""
        self._news.put(item)
        if not self._doers:
            self._thread = begin_thread(self._do_all, "dodona-pinger")

    def close(self) -> None:
        """Do nothing any more. The driver is closed already, so that no answer is waited for."""
        self._is_closed = True
        self._news.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS_MAX)

    # ---- in a thread of its own

    def _do_all(self) -> None:
        """One thread at a time. What comes while it is about to end is seen by it, or by the next
        one, which is begun then."""
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
        """→ whether there is still a driver to do it."""
        run = self._run()
        if run is None:
            self._is_closed = True
            return False
        run(self._chores.do_due())
        return True

    def _wait(self) -> bool:
        """Until something is due. → False once nothing will be."""
        self._take(0)
        while not self._is_closed and (wait_ms := self._chores.wait_ms()) is not None:
            if wait_ms == 0:
                return True
            self._take(wait_ms / 1000)
        return False

    def _take(self, wait_s: float) -> None:
        """What is new: if nothing is there, wait for it so long."""
        with suppress(Empty):
            item = self._news.get(wait_s > 0, wait_s)
            while True:
                if item is not None:
                    self._chores.add(item)
                item = self._news.get_nowait()
