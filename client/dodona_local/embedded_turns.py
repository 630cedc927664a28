"""Define what threads hold in the combiner, so that an interrupt leaves nothing held for ever.

Owns: an exchange, the turn with the cores, and a flush, and how to see that their holder has ended.
A signal handler may raise between any two steps of a call, even before a step that releases a lock.
So each held object names the generator that holds it. A generator that holds something does not
yield. If it is not running, an interrupt has ended it, and its objects are free. To take, to
release and to check are each one step of the interpreter.
"""

import threading
from collections.abc import Sequence
from functools import partial
from types import GeneratorType
from typing import Final

from dodona._core.protocol.steps import Target
from dodona_local.embedded_cores import Asked, Cores
from dodona_local.interrupts import is_callers_own
from dodona_wire.handlers import is_of_handler
from dodona_wire.messages.base import Failure
from dodona_wire.messages.families import Reply, Request

WAIT_SECONDS: Final = 0.02
"""How long a thread sleeps before it looks for work itself: some answers only need time to pass."""


class Exchange:
    """One thread's requests and their replies so far."""

    __slots__ = (
        "_requests",
        "_signal",
        "is_given_up",
        "left_count",
        "replies",
        "thread_id",
        "work",
    )

    work: "GeneratorType[None, None, None]"
    """The generator that waits and serves for the thread. It is set before it begins."""

    def __init__(self, requests: Sequence[tuple[Target, Request]]) -> None:
        self.replies: list[Reply | None] = [None] * len(requests)
        self.left_count = len(requests)
        self.is_given_up = False
        """Whether the thread has stopped waiting, because its time was over."""
        self.thread_id = threading.get_ident()
        self._requests = requests
        self._signal = threading.Lock()
        self._signal.acquire()

    @property
    def is_wanted(self) -> bool:
        """Return whether the thread waits for replies."""
        return self.left_count > 0 and not self.is_given_up

    def asked(self) -> list[Asked]:
        """Return the requests, each with the function that takes its reply."""
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
        """Answer all open requests with this failure."""
        for place in range(len(self.replies)):
            self._take(place, failure)

    def wake(self) -> None:
        """Wake the thread, so that it looks for its replies, or serves."""
        try:
            self._signal.release()
        except RuntimeError as error:  # another thread has just woken it
            if is_of_handler(error):
                raise

    def sleep(self) -> None:
        self._signal.acquire(timeout=WAIT_SECONDS)


class Turn:
    """The right to use the cores, taken once. The thread that mends has no exchange. No signal
    handler runs in it, so nothing interrupts it."""

    __slots__ = ("_exchange", "_thread_id")

    def __init__(self, exchange: Exchange | None) -> None:
        self._exchange = exchange
        self._thread_id = threading.get_ident() if exchange is None else exchange.thread_id

    @property
    def is_running(self) -> bool:
        """Return whether the holder runs. False for a turn that is still held means that its holder
        was interrupted."""
        return self._exchange is None or self._exchange.work.gi_running

    @property
    def is_of_this_thread(self) -> bool:
        """Return whether the caller is inside the turn, in a signal handler or a finalizer."""
        return self._thread_id == threading.get_ident() and self.is_running


class Flush:
    """A flush of some cores, by the thread that began it."""

    __slots__ = ("by", "cores", "error", "is_done")

    def __init__(self, cores: Cores, by: Exchange) -> None:
        self.cores = cores
        self.by = by
        self.is_done = False
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run the flush. Blocks. Raises exceptions of the caller itself; the flush is then never
        done."""
        try:
            self.cores.flush()
        except BaseException as error:
            if is_callers_own(error):
                raise
            self.error = error
        self.is_done = True

    @property
    def is_under_way(self) -> bool:
        return not self.is_done and self.by.work.gi_running

    @property
    def is_of_this_thread(self) -> bool:
        """Return whether the caller is inside the flush."""
        return self.by.thread_id == threading.get_ident() and self.is_under_way
