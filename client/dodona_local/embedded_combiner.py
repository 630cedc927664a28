"""Flat combining: many threads, one of which serves all of them at a time.

Owns: the queue, who serves, who flushes, and what becomes of everybody when that fails. A thread
puts its requests into the queue and tries to take the lock. Whoever gets it serves the whole queue;
the others sleep. If that left something to flush, and nobody flushes, the same thread does: without
the lock, so that reads and timestamps are served meanwhile, and commits gather for the next flush.
Whoever is done wakes one who is not, if there is work left.

When something raises, the cores are in an unknown state: they are thrown away, those who wait for
an answer are told `unavailable` (it may have happened or not), and the next one recovers from the
stores, as a server does that was killed.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from dodona._core.messages import Failure, Reply, Request
from dodona._core.steps import Target
from dodona._io.network import CLOSED
from dodona.errors import DodonaError
from dodona_local.embedded_cores import Asked, Cores

WAIT_SECONDS: Final = 0.02
"""How long a thread sleeps before it looks for itself: some answers only time brings about."""

_logger: Final = logging.getLogger("dodona.embedded")


class _Exchange:
    """One thread's requests and their replies so far."""

    __slots__ = ("_requests", "_signal", "left_count", "replies")

    def __init__(self, requests: Sequence[tuple[Target, Request]]) -> None:
        self.replies: list[Reply | None] = [None] * len(requests)
        self.left_count = len(requests)
        self._requests = requests
        self._signal = threading.Lock()
        self._signal.acquire()

    def asked(self) -> list[Asked]:
        """The requests, each with the place for its answer."""
        return [
            (target, body, partial(self._take, place))
            for place, (target, body) in enumerate(self._requests)
        ]

    def _take(self, place: int, reply: Reply) -> None:
        if self.replies[place] is None:
            self.replies[place] = reply
            self.left_count -= 1
            if self.left_count == 0:
                self.wake()

    def end(self, failure: Failure) -> None:
        """Whatever is unanswered by now will stay so."""
        for place in range(len(self.replies)):
            self._take(place, failure)

    def wake(self) -> None:
        """Have the thread look again: at its answers, or at the lock."""
        with suppress(RuntimeError):  # somebody else woke it just now
            self._signal.release()

    def sleep(self) -> None:
        self._signal.acquire(timeout=WAIT_SECONDS)


class Combiner:
    """What all threads share."""

    def __init__(self, open_cores: Callable[[], Cores]) -> None:
        """`open_cores` is called now, and again after something has raised."""
        self._open_cores = open_cores
        self._cores: Cores | None = open_cores()
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()  # held while a thread flushes: taken after the other
        self._queue: deque[_Exchange] = deque()
        self._served: list[_Exchange] = []
        self._is_closed = False

    def exchange(self, requests: Sequence[tuple[Target, Request]]) -> list[Reply]:
        """The replies to these requests. Blocks the calling thread."""
        exchange = _Exchange(requests)
        self._queue.append(exchange)
        while exchange.left_count:
            if self._lock.acquire(blocking=False):
                try:
                    cores = self._serve()
                finally:
                    self._lock.release()
                self._wake_next()
                if cores is not None:
                    self._flush(cores)
                    self._wake_next()
            if exchange.left_count:
                exchange.sleep()
        return [reply for reply in exchange.replies if reply is not None]

    def close(self) -> None:
        """Close the stores. Requests that are waiting, and later ones, are refused."""
        with self._lock:
            self._is_closed = True
            self._finish()
            self._let_go(self._cores, "the database was closed meanwhile")
        self._wake_next()

    # ---- with the lock

    def _serve(self) -> Cores | None:
        """Serve all who are in the queue. → the cores, if the caller is to flush."""
        batch = [self._queue.popleft() for _ in range(len(self._queue))]
        self._served += batch
        cores = self._ready_cores(batch)
        if cores is None:
            return None
        try:
            cores.serve([asked for exchange in batch for asked in exchange.asked()])
            is_to_flush = cores.begin_flush()
        except BaseException as error:
            self._throw_away(cores, error)
            if isinstance(error, Exception):
                return None
            raise  # an interrupt is the caller's
        self._served = [exchange for exchange in self._served if exchange.left_count]
        if is_to_flush:
            self._flush_lock.acquire()
        return cores if is_to_flush else None

    def _ready_cores(self, batch: list[_Exchange]) -> Cores | None:
        """The cores, recovered if need be. Without any, the batch was refused: it reached none."""
        failure = CLOSED
        if not self._is_closed:
            try:
                self._cores = self._cores or self._open_cores()
                return self._cores
            except DodonaError as error:
                failure = Failure(error.kind, error.message, error.attributes)
        for exchange in batch:
            exchange.end(failure)
        self._served = []
        return None

    def _end_flush(self, cores: Cores, error: BaseException | None) -> None:
        if self._cores is not cores:
            return  # thrown away meanwhile: those who waited were told
        try:
            if error is not None:
                raise error
            cores.end_flush()
        except BaseException as failure:
            self._throw_away(cores, failure)
            if not isinstance(failure, Exception):
                raise
        self._served = [exchange for exchange in self._served if exchange.left_count]

    def _finish(self) -> None:
        """Nothing is lost if this fails: the next one recovers."""
        if self._cores is not None:
            with self._flush_lock:
                try:
                    self._cores.finish()
                except Exception as error:
                    _logger.critical("the database did not end well", exc_info=error)

    def _throw_away(self, cores: Cores, error: BaseException) -> None:
        if isinstance(error, Exception):
            _logger.critical("recovering the database: its state is in doubt", exc_info=error)
        self._let_go(cores, f"the database was interrupted by {type(error).__name__}: {error}")

    def _let_go(self, cores: Cores | None, reason: str) -> None:
        self._cores = None
        if cores is not None:
            with self._flush_lock:  # the stores may be in use
                cores.close()
        served, self._served = self._served, []
        for exchange in served:
            exchange.end(Failure("unavailable", reason))

    # ---- without it

    def _flush(self, cores: Cores) -> None:
        failure: BaseException | None = None
        try:
            cores.flush()
        except BaseException as error:  # noqa: BLE001 - it is dealt with under the lock
            failure = error
        finally:
            self._flush_lock.release()
        with self._lock:
            self._end_flush(cores, failure)

    def _wake_next(self) -> None:
        """If there is work left, have somebody do it who waits for it. Only a hint: whoever sleeps
        looks for work from time to time."""
        cores = self._cores
        with suppress(IndexError):  # nobody waits
            if self._queue:
                self._queue[0].wake()
            elif cores is not None and cores.is_flush_due:
                self._served[0].wake()
