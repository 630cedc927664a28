"""Compute for a long time, in a thread that gets no signals.

Owns: `compute`, `TooLong`, and the threads of each computation. Python runs signal handlers in the
main thread. If DuckDB computes there, it looks for signals, and replaces the error of a handler by
an error of its own. So the caller waits, and a second thread computes. Then the error of a handler
reaches the caller unchanged.

A signal may interrupt the caller between any two steps. So a third thread oversees the computation.
It begins the computation, and interrupts it if the caller asks for that or has gone. It waits until
the computing thread has ended, and the caller waits for that.
At the end of the process, Python stops each thread where it is. If DuckDB computes then, it ends
the process with SIGABRT. It also writes on standard error about each object that the thread refers
to. So an exit waits, too, and the overseeing thread refers to no object at its end.
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
"""The number of file descriptors that must be free. DuckDB ends the process if it finds none."""
INTERRUPT_SECONDS: Final = 0.05
"""The time between two interrupts. An interrupt that comes before the computation begins is
lost."""
END_SECONDS_MAX: Final = 5.0
"""How long an interrupted caller waits for the end. DuckDB notices an interrupt in less time."""
EXIT_SECONDS_MAX: Final = 60.0
"""How long an exit of the process waits for computations to end."""
EXIT_LOOK_SECONDS: Final = 0.005


class TooLong(Exception):
    """A computation did not end in time. It is no TimeoutError, because a handler of the caller may
    raise that."""


def compute(
    function: Callable[[], Result], interrupt: Callable[[], None], wait_s: float | None = None
) -> Result:
    """Return the result of a function that computes in another thread, or raise its error.
    `interrupt` makes the function end with an error.

    Raises TooLong after about `wait_s`, and the error of a signal handler that runs meanwhile."""
    computing = _Computing(function, interrupt)
    try:
        try:
            computing.begin()
            computing.wait(wait_s)
        finally:  # also if a signal handler raised an error
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
        """One claim. The overseeing thread takes it, or a caller that ends the computation before
        it begins."""
        self._news: SimpleQueue[bool] = SimpleQueue()
        """News for the overseeing thread. True: the function has returned. False: interrupt it."""
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._is_ended = self._is_left = self._is_silent = self._is_over = False
        self._over = threading.Lock()  # held until the computation is over
        self._over.acquire()

    # ---- in the caller's thread, where a signal handler may raise between any two steps

    def begin(self) -> None:
        """Begin the overseeing thread. Raises RuntimeError if no more threads can begin."""
        begin_bare_thread(self._oversee)

    def wait(self, seconds: float | None) -> None:
        """Wait until the computation is over, for at most this many seconds."""
        if not self._is_over:
            timeout_s = -1 if seconds is None else min(max(seconds, 0), threading.TIMEOUT_MAX)
            self._over.acquire(timeout=timeout_s)

    def end(self) -> None:
        """Interrupt the computation until it is over, and wait for that for at most
        END_SECONDS_MAX."""
        if self._is_over:
            return
        self._is_ended = True
        self.stop()
        self.wait(END_SECONDS_MAX)

    def result(self) -> Result:
        """Return the result. Raises the error of the function, or TooLong if the caller ended it
        before."""
        if self._results:
            return self._results[0]
        error, self._error = self._error, None
        if self._is_ended and (error is None or isinstance(error, DodonaError)):
            raise TooLong from error
        assert error is not None, "it is over, and has neither a result nor an error"
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame: avoid a reference cycle

    def leave(self) -> None:
        """Note that the caller needs no more: it has the result, or was interrupted while it ended
        this. Drop the error, because its traceback refers to DuckDB."""
        self._is_left = True
        if not self._is_over:
            self.stop()
        self._drop_outcome()

    # ---- in any thread

    def stop(self) -> None:
        """Interrupt the computation until it ends. If it has not begun, it never will."""
        if self._is_claimed():
            self._is_over = True
        else:
            self._news.put(False)

    def stop_silently(self) -> None:
        """Stop the computation at the end of the process. A caller that waits for it runs in a
        daemon thread, which Python stops. It stays asleep, because it could only report an
        error."""
        if not self._is_silent:
            self._is_silent = True
            self.stop()

    def _is_claimed(self) -> bool:
        """Return whether this call takes the claim. Only the first call does."""
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
            if self._is_left:  # the caller may have dropped the outcome before it was set
                self._drop_outcome()
            self._news.put(True)


def _nothing() -> Any:
    """Replaces a function that must not be referred to any more."""


_at_work: "Final[set[_Computing[Any]]]" = set()
"""The computations whose threads have not ended."""


def _end_all() -> None:
    """End all computations at the end of the process. Functions that Python calls later may still
    compute."""
    until_s = time.monotonic() + EXIT_SECONDS_MAX
    while _at_work and time.monotonic() < until_s:
        for it in [*_at_work]:
            it.stop_silently()
        time.sleep(EXIT_LOOK_SECONDS)


atexit.register(_end_all)
os.register_at_fork(after_in_child=_at_work.clear)  # a fork does not have these threads
