"""The thread behind a blocking client: one event loop, one set of connections.

Owns: the thread, and how calls get into it and replies out of it. All of the caller's threads share
its connections, and its frames.

A signal handler can raise in the caller's thread between any two steps, and a finalizer can call in
at any of them. So nothing here is locked: what one thread hands to another is handed over in one
step of the interpreter. Whoever waits looks from time to time whether the thread knows of its call,
since a caller that was interrupted may have left it asleep. What a finalizer asks for waits for
nothing: it may run in the thread of another client, or under a lock that the thread here needs.
"""

import asyncio
import os
import threading
import time
from _queue import SimpleQueue
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from dodona._core.protocol.routing import Routing
from dodona._core.protocol.steps import Calls, Post
from dodona._io.loops import new_event_loop
from dodona._io.network import CLOSED, Gathering, Network
from dodona_wire.messages.base import Failure
from dodona_wire.messages.families import Reply
from dodona_wire.net.exits import at_last
from dodona_wire.net.native_threads import check_threads
from dodona_wire.net.peer import Peer
from dodona_wire.net.threads import begin_thread

CLOSE_SECONDS_MAX: Final = 5.0
LOOK_SECONDS: Final = 0.05
"""How long a caller waits before it looks whether its call was taken."""

WITHIN: Final = Failure(
    "invalid_request",
    "a finalizer that runs in the client's own thread can't use the client: leave a note there, "
    "and act on it elsewhere",
    {"is_sent": False},
)


_engines: "Final[set[Engine]]" = set()
"""Whose threads have not ended."""


def _close_all() -> None:
    """Clients that were never closed say goodbye all the same, at the interpreter's end."""
    own = [it for it in [*_engines] if it.process_id == os.getpid()]
    for it in own:
        it.begin_closing()
    for it in own:
        it.close()


at_last(_close_all)


class Engine:
    """A thread, its event loop, and the network in it."""

    def __init__(self, master_url: str, routing: Routing, peer_type: type[Peer]) -> None:
        """Raises InvalidRequest on what is no URL, or if threads are greenlets, and Overloaded if
        this process may open no more files."""
        check_threads()
        self.process_id = os.getpid()
        self._items: deque[_Exchange | Post] = deque()
        self._is_drain_due = False
        self._is_closed = False
        self._is_over = False
        self._over = threading.Lock()  # held until it is
        self._over.acquire()
        self._thread_id = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._network: Network | None = None
        self._closing: asyncio.Task[None] | None = None
        made: SimpleQueue[BaseException | None] = SimpleQueue()
        make = partial(_make_network, master_url, routing, peer_type)
        try:
            begin_thread(partial(self._run, make, made), "dodona-client")
            error = made.get()
        except BaseException:
            self._is_closed = True  # the thread ends as soon as it sees that
            raise
        if error is not None:
            raise error

    def exchange(self, step: Calls) -> list[Reply]:
        """The replies to the step's calls. Blocks the calling thread."""
        if self._is_closed:
            return [CLOSED] * len(step.requests)
        if threading.get_ident() == self._thread_id:
            return [WITHIN] * len(step.requests)
        exchange = _Exchange(step)
        self._submit(exchange)
        while not exchange.done.acquire(True, LOOK_SECONDS):
            if self._is_over:
                return exchange.replies_of_ended()
            if self._items:
                self._wake()
        return exchange.replies()

    def post(self, step: Post) -> None:
        """Have the messages sent."""
        if not self._is_closed:
            self._submit(step)

    def close(self) -> None:
        """Fail what is pending, end the thread. Repeating it is harmless."""
        self.begin_closing()
        if threading.get_ident() == self._thread_id:
            return  # collected there: it can't wait for itself
        until_s = time.monotonic() + CLOSE_SECONDS_MAX
        if not self._wait_over(until_s):
            self._call(self._stop)
            self._wait_over(until_s + CLOSE_SECONDS_MAX)

    def begin_closing(self) -> None:
        """As `close`, and don't wait for it."""
        self._is_closed = True
        self._call(self._begin_closing)

    def _wait_over(self, until_s: float) -> bool:
        while not self._is_over and time.monotonic() < until_s:
            if self._over.acquire(True, LOOK_SECONDS):
                self._over.release()
        return self._is_over

    def _submit(self, item: "_Exchange | Post") -> None:
        """Hand it to the thread: one wake-up for all that come while it is on its way. An interrupt
        between the last two lines leaves it asleep: so whoever waits looks after it."""
        self._items.append(item)
        if not self._is_drain_due:
            self._is_drain_due = True
            self._wake()

    def _wake(self) -> None:
        self._call(self._drain)

    def _call(self, function: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(function)

    # ---- in the thread

    def _run(
        self,
        make: Callable[[], Coroutine[Any, Any, Network]],
        made: "SimpleQueue[BaseException | None]",
    ) -> None:
        self._thread_id = threading.get_ident()
        _engines.add(self)
        loop: asyncio.AbstractEventLoop | None = None
        try:
            loop = new_event_loop()
            self._network = loop.run_until_complete(make())
            self._loop = loop
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            made.put(error)
            if loop is not None:
                loop.close()
            _engines.discard(self)
            return
        made.put(None)
        try:
            if self._is_closed:  # its caller was interrupted
                loop.call_soon(self._begin_closing)
            loop.run_forever()
        finally:
            loop.close()
            _engines.discard(self)
            self._is_over = True
            self._over.release()

    def _drain(self) -> None:
        self._is_drain_due = False
        items, network = self._items, self._network
        assert network is not None
        while items:
            item = items.popleft()
            if type(item) is Post:
                network.post(item)
            elif type(item) is _Exchange:
                item.start(network)

    def _begin_closing(self) -> None:
        if self._closing is None:
            assert self._network is not None
            self._drain()
            self._closing = asyncio.ensure_future(self._network.close())
            self._closing.add_done_callback(lambda _: self._stop())

    def _stop(self) -> None:
        assert self._loop is not None
        self._loop.stop()


class _Exchange:
    """One step's calls on their way through the thread. A raw lock is the cheapest thing that a
    thread can wait on."""

    __slots__ = ("_gathering", "_step", "done")

    def __init__(self, step: Calls) -> None:
        self._step = step
        self.done = threading.Lock()
        self.done.acquire()
        self._gathering: Gathering | None = None

    def start(self, network: Network) -> None:
        self._gathering = Gathering(network, self._step, self.done.release)

    def replies(self) -> list[Reply]:
        assert self._gathering is not None
        return self._gathering.replies

    def replies_of_ended(self) -> list[Reply]:
        """What there is by the end of the thread."""
        return [CLOSED] * len(self._step.requests) if self._gathering is None else self.replies()


async def _make_network(master_url: str, routing: Routing, peer_type: type[Peer]) -> Network:
    return Network(master_url, routing, peer_type=peer_type)
