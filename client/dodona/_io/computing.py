"""What takes long to compute, in a thread where no signal arrives.

Owns: `compute`, `TooLong`. Python runs signal handlers in the main thread. DuckDB that computes
there looks for signals, and replaces whatever a handler raised by an error of its own, without a
word of it. So the caller waits, which a handler may interrupt at any time, and another thread
computes: what the handler raised reaches the caller as it is, and what is computed for nobody is
interrupted. The caller may be interrupted between any two steps, so that nothing may depend on a
lock that it takes.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from dodona._io.threads import begin_thread, begin_thread_soon
from dodona.errors import DodonaError

Result = TypeVar("Result")
DESCRIPTORS: Final = 8
"""Of what may be opened, so many are to be left: DuckDB ends the process where it finds none."""
INTERRUPT_SECONDS: Final = 0.05
"""How often: an interruption before anything is computed is lost."""
LOOK_SECONDS: Final = 1.0
"""How long somebody sleeps before a look: another who waits may have been interrupted."""
END_SECONDS_MAX: Final = 5.0
"""How long an interrupted caller waits for the end. DuckDB notices an interruption in less."""


class TooLong(Exception):
    """It was not computed in its time. No TimeoutError: that may be of the caller's handler."""


def compute(
    function: Callable[[], Result], interrupt: Callable[[], None], wait_s: float | None = None
) -> Result:
    """The function's result, or its error. `interrupt` has it end with an error.

    Raises TooLong after about `wait_s`, and what a signal handler raises meanwhile.
    """
    computing = _Computing(function, interrupt)
    try:
        begin_thread(computing.run, "dodona-query")
        computing.wait(wait_s)
    finally:  # also if a handler raised
        if not computing.is_over:
            computing.end()
    return computing.result()


class _Computing(Generic[Result]):
    """One computation, from its beginning to its end."""

    def __init__(self, function: Callable[[], Result], interrupt: Callable[[], None]) -> None:
        self._function = function
        self._interrupt = interrupt
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._over = threading.Lock()  # held until it is
        self._over.acquire()
        self.is_over = False
        self._is_ended = False

    def run(self) -> None:
        """In a thread of its own."""
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - its caller hears of it
            self._error = error
        finally:
            self.is_over = True
            self._over.release()

    def wait(self, seconds: float | None) -> None:
        """Until it is over, but no longer than that."""
        until_s = math.inf if seconds is None else time.monotonic() + seconds
        while not self.is_over and (left_s := until_s - time.monotonic()) > 0:
            if self._over.acquire(True, min(left_s, LOOK_SECONDS)):
                self._over.release()  # for the other who waits

    def end(self) -> None:
        """Have it interrupted until it ends, and wait for that for a while. The caller may be
        interrupted again while it waits: so it is not the caller who does it."""
        self._is_ended = True
        begin_thread_soon(self._interrupt_until_over, "dodona-query-end")
        self.wait(END_SECONDS_MAX)

    def _interrupt_until_over(self) -> None:
        while not self.is_over:
            self._interrupt()
            self.wait(INTERRUPT_SECONDS)

    def result(self) -> Result:
        """Raises what it raised, or TooLong if it was ended before."""
        if self._results:
            return self._results[0]
        error, self._error = self._error, None
        if self._is_ended and (error is None or isinstance(error, DodonaError)):
            raise TooLong from error
        assert error is not None, "it is over, and has neither a result nor an error"
        try:
            raise error
        finally:
            del error  # its traceback has this frame: no cycle of them
