"""The thread that does a blocking client's chores: what has to be said again and again.

Owns: the thread. It is there while there is something to do, and ends with the client. What is
done, and when, is the chores' business: pings of master transactions, renewals of held snapshots.
"""

import threading
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from dodona._core import steps

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
        """`run` is the driver's."""
        self._run = run
        self._chores = chores
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_running = False  # or about to end: the thread is kept, for who waits for its end
        self._is_closed = False

    def watch(self, item: Item) -> None:
        """Do what is due for it from now on."""
        with self._news:
            self._chores.add(item)
            if not self._is_running:
                self._is_running = True
                self._thread = threading.Thread(
                    target=self._do_all, name="dodona-pinger", daemon=True
                )
                self._thread.start()
            self._news.notify()

    def close(self) -> None:
        """Do nothing any more. The driver is closed already, so that no answer is waited for."""
        with self._news:
            self._is_closed = True
            self._news.notify()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_SECONDS_MAX)

    def _do_all(self) -> None:
        while self._wait():
            self._run(self._chores.do_due())

    def _wait(self) -> bool:
        """Until something is due. → False once nothing will be."""
        with self._news:
            while not self._is_closed and (wait_ms := self._chores.wait_ms()) is not None:
                if wait_ms == 0:
                    return True
                self._news.wait(wait_ms / 1000)
            self._is_running = False
            return False
