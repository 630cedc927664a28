"""Combine many threads: one at a time serves the requests of all (flat combining).

Owns: the queue, which thread serves and which flushes, and the requests of all threads if that
fails. A thread puts its requests into the queue and tries to take the turn. The thread that gets
the turn serves the whole queue, and the others sleep. If there is something to flush, and no flush
runs, the same thread flushes. It does so without the turn: meanwhile other threads serve reads and
timestamps, and commits gather for the next flush. A thread that is done wakes another one if there
is work left.

The state of the cores is unknown after they have raised. It is also unknown after an interrupt has
ended a thread that had the turn or flushed. Then the cores are thrown away, and all callers that
wait get `unavailable` (the request may have been carried out or not). The next caller has the cores
recovered from the stores, as after a crash of a server. To open, throw away and close, there is a
separate thread for as long as that takes. Signal handlers raise in the main thread only, so nothing
interrupts that thread.
"""

import atexit
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from dodona._core.protocol.steps import Target
from dodona._io.refusals import CLOSED
from dodona_local.embedded_cores import Cores
from dodona_local.embedded_turns import Exchange, Flush, Turn
from dodona_local.interrupts import is_callers_own
from dodona_wire.errors import DiskFull, DodonaError, Unavailable
from dodona_wire.handlers import is_of_handler
from dodona_wire.messages.base import Failure
from dodona_wire.messages.families import Reply, Request
from dodona_wire.net.threads import begin_thread_soon

MENDING_STEP_S: Final = 0.001

WITHIN: Final = Failure(
    "invalid_request",
    "a signal handler or a finalizer can't use the client whose call it interrupts in this thread: "
    "set a flag there, and use the client after the call has ended",
    {"is_sent": False},
)
EXIT_S_MAX: Final = 15.0
"""The longest wait in seconds at the end of the process for a close. It is a little more than the
time to bring rows into chunks."""

_at_work: "Final[set[Combiner]]" = set()
_logger: Final = logging.getLogger("dodona.embedded")


class Interrupted(Exception):
    """An interrupt has ended the thread that used the cores."""


class Combiner:
    """The state that all threads share."""

    def __init__(
        self, open_cores: Callable[[], Cores], let_go: Callable[[], None] = lambda: None
    ) -> None:
        """Make a combiner. `open_cores` is called before the first exchange, and again after the
        cores have raised. `let_go` is called after a close, or after an open that failed. Both run
        in a separate thread."""
        self._open_cores = open_cores
        self._let_go_of_all = let_go
        self._cores: Cores | None = None
        self._turns: dict[int, Turn] = {}  # by 0, the turn that is taken, if any
        self._flush: Flush | None = None  # from its start until the cores know its end
        self._queue: deque[Exchange] = deque()
        self._served: list[Exchange] = []
        self._fault: BaseException | None = None  # why the cores must be thrown away
        self._is_new = True
        self._opening_error: BaseException | None = None
        self._is_closed = False
        self._is_over = False
        self._mending = threading.Lock()

    @property
    def is_closed(self) -> bool:
        """Return whether the combiner is closed, or about to be."""
        return self._is_closed

    def open(self) -> None:
        """Open the cores now. Raises the error of the attempt."""
        self._mend_until(lambda: not self._is_new)
        error, self._opening_error = self._opening_error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # otherwise the error's own traceback would keep the error

    def exchange(
        self, requests: Sequence[tuple[Target, Request]], timeout_ms: int | None = None
    ) -> list[Reply]:
        """Return the replies to these requests. Blocks the calling thread. After `timeout_ms` it
        stops waiting for other threads and for locked rows."""
        if self._is_closed or self._is_within():
            return [CLOSED if self._is_closed else WITHIN] * len(requests)
        exchange = Exchange(requests)
        exchange.work = self._work(exchange)  # type: ignore[assignment]  # it is a generator's
        until_s = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._queue.append(exchange)
        try:
            for _ in exchange.work:
                exchange.sleep()
                if time.monotonic() >= until_s:
                    exchange.is_given_up = True
                    break
        except BaseException:
            exchange.end(CLOSED)  # the caller has left, and its requests need no service
            raise
        return [_late(timeout_ms) if it is None else it for it in exchange.replies]

    def close(self) -> None:
        """Close the stores. Requests that wait, and later requests, are refused. A repeat is
        harmless, and continues a close that an interrupt ended."""
        self.begin_closing()
        if not self._is_within():  # otherwise this thread must first leave the cores
            self._mend_until(lambda: self._is_over)

    def begin_closing(self) -> None:
        """Begin to close, without a wait."""
        self._is_closed = True
        self._start_mending()

    def wait_closed(self, seconds: float) -> None:
        """Wait until a combiner that is closing is closed, for at most that many seconds."""
        until_s = time.monotonic() + seconds
        self._mend_until(lambda: self._is_over or time.monotonic() > until_s)

    def _is_within(self) -> bool:
        """Return whether this thread serves or flushes, further up its stack."""
        turn, flush = self._turns.get(0), self._flush
        return (turn is not None and turn.is_of_this_thread) or (
            flush is not None and flush.is_of_this_thread
        )

    # ---- a thread's work

    def _work(self, exchange: Exchange) -> Iterator[None]:
        """Work until the exchange's requests are answered. Yields when this thread can only wait,
        and then holds nothing."""
        mine: Flush | None = None
        while exchange.left_count or (mine is not None and mine is self._flush):
            turn = Turn(exchange)
            taken = self._turns.setdefault(0, turn)
            if taken is turn:
                flush = self._serve(exchange)
                del self._turns[0]
                self._wake_next()
                if flush is not None:
                    mine = flush
                    flush.run()
                    continue
            elif not taken.is_running:
                self._start_mending()
            if self._fault is not None or (self._cores is None and exchange.left_count):
                self._start_mending()
            if self._is_over:
                exchange.end(CLOSED)
                return
            if exchange.left_count or (mine is not None and mine is self._flush):
                yield

    def _serve(self, exchange: Exchange) -> Flush | None:
        """End a finished flush, and serve all exchanges in the queue. Return the flush that the
        caller must run, or None. An interrupt of the caller is raised: the turn then stays taken
        until another thread notices."""
        cores = self._cores
        if cores is None or self._fault is not None:
            return None
        try:
            self._end_flush(cores)
            if not exchange.left_count:
                return None
            batch = self._next_batch()
            cores.serve([asked for it in batch for asked in it.asked()])
            flush = None
            if cores.begin_flush():
                flush = self._flush = Flush(cores, exchange)
        except BaseException as error:
            if is_callers_own(error):
                raise
            self._fault = error
            return None
        self._served = [it for it in self._served if it.is_wanted]
        return flush

    def _next_batch(self) -> list[Exchange]:
        """Return the exchanges in the queue. At every time each is in the queue, or among the
        served, or in both."""
        batch, queue = [], self._queue
        while queue:
            first = queue[0]
            if first.is_wanted:
                self._served.append(first)
                batch.append(first)
            queue.popleft()
        return batch

    def _end_flush(self, cores: Cores) -> None:
        flush = self._flush
        if flush is None or flush.is_under_way:
            return
        if not flush.is_done:
            raise Interrupted("the thread of a flush was interrupted")
        if flush.error is not None:
            raise flush.error
        cores.end_flush()
        self._flush = None

    def _wake_next(self) -> None:
        """If there is work left, wake a thread that waits. This is only a hint: a sleeping thread
        looks for work from time to time."""
        cores, flush = self._cores, self._flush
        if flush is not None and flush.is_done:
            flush.by.wake()
        try:
            if self._queue:
                self._queue[0].wake()
            elif cores is not None and cores.is_flush_due:
                self._served[0].wake()
        except IndexError as error:  # no thread waits
            if is_of_handler(error):
                raise

    # ---- mending, in a separate thread, which no signal handler interrupts

    def _mend_until(self, is_so: Callable[[], bool]) -> None:
        pause_s = MENDING_STEP_S / 4
        while not is_so():
            self._start_mending()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MENDING_STEP_S * 4)

    def _start_mending(self) -> None:
        """Start a thread that mends, unless one runs or no thread can start now. A caller that
        waits tries again, and must not take such an error for the outcome of its call."""
        if not self._mending.locked():
            with suppress(Unavailable):
                begin_thread_soon(self._mend, "dodona-embedded")

    def _mend(self) -> None:
        if self._mending.acquire(blocking=False):
            _at_work.add(self)
            try:
                self._take_turn()
                if self._is_to_be_mended():
                    self._wait_for_flush()
                    self._mend_cores()
            finally:
                self._turns.pop(0, None)
                self._mending.release()
                _at_work.discard(self)
                for waiting in [*self._queue, *self._served]:
                    waiting.wake()

    def _take_turn(self) -> None:
        """Take the turn when it is free, or when its holder was interrupted."""
        turn = Turn(None)
        while (taken := self._turns.setdefault(0, turn)) is not turn:
            if not taken.is_running and self._turns.get(0) is taken:
                self._fault = self._fault or Interrupted("the thread of a call was interrupted")
                del self._turns[0]
            else:
                time.sleep(MENDING_STEP_S)

    def _is_to_be_mended(self) -> bool:
        """Return whether there is anything to mend. The caller that started this thread may have
        seen a state that has passed since."""
        if self._is_over:
            return False
        is_wanted = self._cores is None and (self._is_new or bool(self._queue))
        return self._is_closed or self._fault is not None or is_wanted

    def _wait_for_flush(self) -> None:
        """Wait for a flush that runs, because it uses the stores."""
        while (flush := self._flush) is not None and flush.is_under_way:
            time.sleep(MENDING_STEP_S)

    def _mend_cores(self) -> None:
        if self._is_closed:
            self._end()
            return
        if self._fault is not None:
            if not isinstance(self._fault, Interrupted):
                _logger.critical("recovering: its state is in doubt", exc_info=self._fault)
            self._throw_away(_failure_of(self._fault))
            self._fault = None
        if self._cores is None and (self._is_new or self._queue):
            self._open()

    def _open(self) -> None:
        try:
            self._cores = self._open_cores()
        except BaseException as error:  # noqa: BLE001 - whoever waits for it hears of it
            self._refuse(_failure_of_opening(error))
            if self._is_new:
                self._opening_error = error
                self._is_closed = True
                self._end()
        self._is_new = False

    def _end(self) -> None:
        self._finish()
        self._throw_away(Failure("unavailable", "the database was closed during the call"))
        self._refuse(CLOSED)
        self._let_go_of_all()
        self._is_new, self._is_over = False, True

    def _finish(self) -> None:
        """Finish the cores. If this fails nothing is lost, because the next open recovers."""
        if self._cores is not None and self._fault is None:
            try:
                self._end_flush(self._cores)
                self._cores.finish()
            except BaseException as error:
                _logger.critical("the database failed while it was closed", exc_info=error)

    def _throw_away(self, failure: Failure) -> None:
        cores, self._cores, self._flush = self._cores, None, None
        try:
            if cores is not None:
                cores.close()
        except BaseException as error:
            _logger.critical("the stores failed while they were closed", exc_info=error)
        served, self._served = self._served, []
        for exchange in served:
            exchange.end(failure)

    def _refuse(self, failure: Failure) -> None:
        """Refuse all exchanges in the queue: no core has seen their requests."""
        while self._queue:
            self._queue.popleft().end(failure)


def _wait_for_menders() -> None:
    """Wait at the end of the process for the threads that mend: they use libraries that are about
    to be unloaded."""
    until_s = time.monotonic() + EXIT_S_MAX
    while _at_work and time.monotonic() < until_s:
        time.sleep(MENDING_STEP_S)


atexit.register(_wait_for_menders)
os.register_at_fork(after_in_child=_at_work.clear)  # the threads belong to the parent


def _failure_of(error: BaseException) -> Failure:
    """Return the failure for callers that wait: the request may have been carried out or not."""
    if isinstance(error, DiskFull):
        attributes = {"cause": error.kind, **error.attributes}
        return Failure("unavailable", error.message, attributes)
    return Failure("unavailable", f"the database was interrupted by {_described(error)}")


def _failure_of_opening(error: BaseException) -> Failure:
    known = error if isinstance(error, DodonaError) else Unavailable(_described(error))
    return Failure(known.kind, known.message, known.attributes)


def _late(timeout_ms: int | None) -> Failure:
    return Failure("unavailable", f"no answer from the database in {timeout_ms} ms")


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
