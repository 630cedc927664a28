"""What takes long to compute, in a thread where no signal arrives.

Owns: `compute`, `TooLong`, and the threads of each computation. Python runs signal handlers in the
main thread. DuckDB that computes there looks for signals, and replaces what a handler raised by an
error of its own. So the caller waits, and a second thread computes: what a handler raises reaches
the caller as it is.

The caller may be interrupted between any two steps. So a third thread oversees the computation: it
begins it, interrupts it when the caller asks for that or has gone, and waits until its thread has
ended. The caller waits for that. At the end of the process, Python stops a thread wherever it is:
DuckDB then ends the process with SIGABRT if it computes, and writes on standard error about each
object that the thread refers to. So an exit waits, too, and the thread that oversees refers to
nothing at its end.
"""

import atexit
import os
import threading
import time
from _queue import Empty, SimpleQueue
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from dodona_wire.errors import DodonaError
from dodona_wire.net.threads import begin_bare_thread

Result = TypeVar("Result")
DESCRIPTORS: Final = 8
"""Of what may be opened, so many are to be left: DuckDB ends the process where it finds none."""
INTERRUPT_SECONDS: Final = 0.05
"""How often: an interruption before anything is computed is lost."""
END_SECONDS_MAX: Final = 5.0
"""How long an interrupted caller waits for the end. DuckDB notices an interruption in less."""
EXIT_SECONDS_MAX: Final = 60.0
"""How long an exit of the process waits for it."""
EXIT_LOOK_SECONDS: Final = 0.005


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
        try:
            computing.begin()
            computing.wait(wait_s)
        finally:  # also if a handler raised
            computing.end()
        return computing.result()
    finally:
        computing.leave()


class _Computing(Generic[Result]):
    """One computation, from its beginning to its end."""

    def __init__(self, function: Callable[[], Result], interrupt: Callable[[], None]) -> None:
        self._function = function
        self._interrupt = interrupt
        self._claims = [True]
        """Taken by the thread that oversees it, or by a caller that ends it before it begins."""
        self._news: SimpleQueue[bool] = SimpleQueue()
        """For the thread that oversees it: whether it is computed; if not, it is to end."""
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._is_ended = self._is_left = self._is_silent = self._is_over = False
        self._over = threading.Lock()  # held until it is
        self._over.acquire()

    # ---- in the caller's thread, where a signal handler may raise between any two steps

    def begin(self) -> None:
        """Raises RuntimeError if there can be no more threads."""
        begin_bare_thread(self._oversee)

    def wait(self, seconds: float | None) -> None:
        """Until it is over, but no longer than that."""
        if not self._is_over:
            timeout_s = -1 if seconds is None else min(max(seconds, 0), threading.TIMEOUT_MAX)
            self._over.acquire(timeout=timeout_s)

    def end(self) -> None:
        """If it is not over, interrupt it until it is, and wait for that for a while."""
        if self._is_over:
            return
        self._is_ended = True
        self.stop()
        self.wait(END_SECONDS_MAX)

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

    def leave(self) -> None:
        """The caller has what it wants, or was interrupted while it ended this. An error's
        traceback refers to DuckDB: drop it."""
        self._is_left = True
        if not self._is_over:
            self.stop()
        self._drop_outcome()

    # ---- in any thread

    def stop(self) -> None:
        """Have it interrupted until it ends. If it has not begun, it never will."""
        if self._is_claimed():
            self._is_over = True
        else:
            self._news.put(False)

    def stop_silently(self) -> None:
        """At the end of the process. A caller that waits for it is in a daemon's thread, which
        Python stops: it stays there, since it could only complain."""
        if not self._is_silent:
            self._is_silent = True
            self.stop()

    def _is_claimed(self) -> bool:
        """By this call. Only one is the first."""
        with suppress(IndexError):
            return self._claims.pop()
        return False

    def _drop_outcome(self) -> None:
        self._results.clear()
        self._error = None

    # ---- in threads of its own, where no signal handler runs

    def _oversee(self) -> None:
        if not self._is_claimed():
            return
        _at_work.add(self)
        try:
            thread = threading.Thread(target=self._work, name="dodona-query", daemon=True)
            thread.start()
            self._interrupt_until_computed()
            thread.join()
        except BaseException as error:  # noqa: BLE001 - its caller hears of it
            self._error = error
        finally:
            self._function = self._interrupt = _nothing
            if not self._is_silent:
                self._is_over = True
                self._over.release()
            _at_work.discard(self)

    def _interrupt_until_computed(self) -> None:
        pause_s, is_computed = None, False
        while not is_computed:
            with suppress(Empty):
                is_computed = self._news.get(timeout=pause_s)
            if not is_computed:
                self._interrupt()
                pause_s = INTERRUPT_SECONDS

    def _work(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - its caller hears of it
            self._error = error
        finally:
            if self._is_left:  # this may be after the caller has dropped it
                self._drop_outcome()
            self._news.put(True)


def _nothing() -> Any:
    """In the place of what is not referred to any more."""


_at_work: "Final[set[_Computing[Any]]]" = set()
"""Those whose threads have not ended."""


def _end_all() -> None:
    """At the end of the process. Other functions that Python calls then may compute after it."""
    until_s = time.monotonic() + EXIT_SECONDS_MAX
    while _at_work and time.monotonic() < until_s:
        for it in [*_at_work]:
            it.stop_silently()
        time.sleep(EXIT_LOOK_SECONDS)


atexit.register(_end_all)
os.register_at_fork(after_in_child=_at_work.clear)  # the threads are the parent's
