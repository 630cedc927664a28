"""The thread that pings a blocking client's master transactions while they are open.

Owns: the thread. It is there while there is something to ping, and ends with the client. What is
pinged, and when, is `Pings`'s business.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from dodona._core.master_transaction import Lease, Pings

CLOSE_SECONDS_MAX: Final = 5.0


class Pinger:
    """One client's. Any thread may use it."""

    def __init__(self, run: Callable[[Any], Any], pings: Pings) -> None:
        """`run` is the driver's."""
        self._run = run
        self._pings = pings
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, lease: Lease) -> None:
        """Ping it from now on."""
        with self._news:
            self._pings.add(lease)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._ping_all, name="dodona-pinger", daemon=True
                )
                self._thread.start()
            self._news.notify()

    def close(self) -> None:
        """Ping nothing any more. The driver is closed already, so that no ping is waited for."""
        with self._news:
            self._is_closed = True
            self._news.notify()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_SECONDS_MAX)

    def _ping_all(self) -> None:
        while self._wait():
            self._run(self._pings.ping_due())

    def _wait(self) -> bool:
        """Until a ping is due. → False once there is nothing to ping."""
        with self._news:
            while not self._is_closed and (wait_ms := self._pings.wait_ms()) is not None:
                if wait_ms == 0:
                    return True
                self._news.wait(wait_ms / 1000)
            self._thread = None
            return False
