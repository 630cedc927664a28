"""Flat combining: many threads, one of which serves all of them at a time.

Owns: the queue, who serves, who flushes, and what becomes of everybody when that fails. A thread
puts its requests into the queue and tries to take the turn. Whoever gets it serves the whole queue;
the others sleep. If that left something to flush, and nobody flushes, the same thread does: without
the turn, so that reads and timestamps are served meanwhile, and commits gather for the next flush.
Whoever is done wakes one who is not, if there is work left.

When the cores raise, or an interrupt ends a thread that has the turn or flushes, they are in an
unknown state: they are thrown away, those who wait for an answer are told `unavailable` (it may
have happened or not), and the next one has them recovered from the stores, as a server does that
was killed. Opening, throwing away and closing is done in a thread of its own, which is there as
long as it takes: signal handlers raise in the main thread only, so that nothing interrupts it.
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
from dodona._io.network import CLOSED
from dodona_local.embedded_cores import Cores
from dodona_local.embedded_turns import Exchange, Flush, Turn
from dodona_local.interrupts import is_callers_own
from dodona_wire.errors import DiskFull, DodonaError, Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.messages.families import Reply, Request
from dodona_wire.net.threads import begin_thread_soon

MENDING_STEP_S: Final = 0.001

WITHIN: Final = Failure(
    "invalid_request",
    "a signal handler or a finalizer can't use the client whose call it interrupts in this thread: "
    "leave a note there, and act on it when the call has ended",
    {"is_sent": False},
)
EXIT_S_MAX: Final = 15.0
"""How long the end of the process waits for what is being closed: a little longer than that may
take to bring rows into chunks."""

_at_work: "Final[set[Combiner]]" = set()
_logger: Final = logging.getLogger("dodona.embedded")


class Interrupted(Exception):
    """An interrupt ended whoever used the cores."""


class Combiner:
    """What all threads share."""

    def __init__(
        self, open_cores: Callable[[], Cores], let_go: Callable[[], None] = lambda: None
    ) -> None:
        """`open_cores` is called before the first exchange, and again after something has raised;
        `let_go` when all is closed, or was not opened. Both in a thread of their own."""
        self._open_cores = open_cores
        self._let_go_of_all = let_go
        self._cores: Cores | None = None
        self._turns: dict[int, Turn] = {}  # at 0 the one that is taken, if it is
        self._flush: Flush | None = None  # from its beginning until the cores know of its end
        self._queue: deque[Exchange] = deque()
        self._served: list[Exchange] = []
        self._fault: BaseException | None = None  # why the cores are to be thrown away
        self._is_new = True
        self._opening_error: BaseException | None = None
        self._is_closed = False
        self._is_over = False
        self._mending = threading.Lock()

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._is_closed

    def open(self) -> None:
        """Open the cores now. Raises what the attempt does."""
        self._mend_until(lambda: not self._is_new)
        error, self._opening_error = self._opening_error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # else the traceback, which is the error's, would keep it

    def exchange(
        self, requests: Sequence[tuple[Target, Request]], timeout_ms: int | None = None
    ) -> list[Reply]:
        """The replies to these requests. Blocks the calling thread, for no longer than
        `timeout_ms` while others work or hold rows."""
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
            exchange.end(CLOSED)  # nobody waits: it need not be served any more
            raise
        return [_late(timeout_ms) if it is None else it for it in exchange.replies]

    def close(self) -> None:
        """Close the stores. Requests that are waiting, and later ones, are refused. Repeating it
        is harmless, and goes on with what an interrupt ended."""
        self.begin_closing()
        if not self._is_within():  # else this thread is to let go of them first
            self._mend_until(lambda: self._is_over)

    def begin_closing(self) -> None:
        """Have it closed, and don't wait."""
        self._is_closed = True
        self._start_mending()

    def wait_closed(self, seconds: float) -> None:
        """Of one that is being closed: until it is, but no longer than that."""
        until_s = time.monotonic() + seconds
        self._mend_until(lambda: self._is_over or time.monotonic() > until_s)

    def _is_within(self) -> bool:
        """Whether this thread is serving or flushing, further up its stack."""
        turn, flush = self._turns.get(0), self._flush
        return (turn is not None and turn.is_of_this_thread) or (
            flush is not None and flush.is_of_this_thread
        )

    # ---- a thread's work

    def _work(self, exchange: Exchange) -> Iterator[None]:
        """All there is to do until its requests are answered. Yields when there is nothing but to
        wait; only then it holds nothing."""
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
        """End a flush that is done, serve all who are in the queue. → the flush that the caller is
        to run, if there is one. What the caller is interrupted by is raised: then it has the turn
        for good, until somebody sees that."""
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
        """Whoever is in the queue. At every moment each is there, or among the served, or both."""
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
            raise Interrupted("whoever flushed was interrupted")
        if flush.error is not None:
            raise flush.error
        cores.end_flush()
        self._flush = None

    def _wake_next(self) -> None:
        """If there is work left, have somebody do it who waits for it. Only a hint: whoever sleeps
        looks for work from time to time."""
        cores, flush = self._cores, self._flush
        if flush is not None and flush.is_done:
            flush.by.wake()
        try:
            if self._queue:
                self._queue[0].wake()
            elif cores is not None and cores.is_flush_due:
                self._served[0].wake()
        except IndexError:  # nobody waits
            pass

    # ---- in a thread of its own, which no signal handler interrupts

    def _mend_until(self, is_so: Callable[[], bool]) -> None:
        pause_s = MENDING_STEP_S / 4
        while not is_so():
            self._start_mending()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MENDING_STEP_S * 4)

    def _start_mending(self) -> None:
        """Unless it is being done, or there can be no thread just now: whoever waits looks again,
        and must not take that for the outcome of his call."""
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
        """From nobody, or from whoever has it and is gone."""
        turn = Turn(None)
        while (taken := self._turns.setdefault(0, turn)) is not turn:
            if not taken.is_running and self._turns.get(0) is taken:
                self._fault = self._fault or Interrupted("whoever was served was interrupted")
                del self._turns[0]
            else:
                time.sleep(MENDING_STEP_S)

    def _is_to_be_mended(self) -> bool:
        """Whoever began this may have seen something that was over a moment later."""
        if self._is_over:
            return False
        is_wanted = self._cores is None and (self._is_new or bool(self._queue))
        return self._is_closed or self._fault is not None or is_wanted

    def _wait_for_flush(self) -> None:
        """The stores are in use."""
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
        self._throw_away(Failure("unavailable", "the database was closed meanwhile"))
        self._refuse(CLOSED)
        self._let_go_of_all()
        self._is_new, self._is_over = False, True

    def _finish(self) -> None:
        """Nothing is lost if this fails: the next one recovers."""
        if self._cores is not None and self._fault is None:
            try:
                self._end_flush(self._cores)
                self._cores.finish()
            except BaseException as error:
                _logger.critical("the database did not end well", exc_info=error)

    def _throw_away(self, failure: Failure) -> None:
        cores, self._cores, self._flush = self._cores, None, None
        try:
            if cores is not None:
                cores.close()
        except BaseException as error:
            _logger.critical("the stores did not close well", exc_info=error)
        served, self._served = self._served, []
        for exchange in served:
            exchange.end(failure)

    def _refuse(self, failure: Failure) -> None:
        """All who are in the queue: their requests reached nobody."""
        while self._queue:
            self._queue.popleft().end(failure)


def _wait_for_menders() -> None:
    """At the end of the process: they use libraries that must not be taken away under them."""
    until_s = time.monotonic() + EXIT_S_MAX
    while _at_work and time.monotonic() < until_s:
        time.sleep(MENDING_STEP_S)


atexit.register(_wait_for_menders)
os.register_at_fork(after_in_child=_at_work.clear)  # the threads are the parent's


def _failure_of(error: BaseException) -> Failure:
    """What those are told who wait for an answer: it may have happened or not."""
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
