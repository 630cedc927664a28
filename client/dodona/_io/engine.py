"""The thread behind a blocking client: one event loop, and one set of connections.

Owns: the thread, and how calls get into it and replies get out. All threads of the caller share its
connections and its frames.

A signal handler can raise an error in the caller's thread between any two steps. A finalizer can
call this module at any step. So no locks are used here: one thread passes an object to another in
one step of the interpreter. An interrupted caller may leave the thread asleep. So a caller that
waits checks from time to time whether the thread knows of its call. The request of a finalizer
waits for nothing. It may run in the thread of another client, or under a lock that this thread
needs.
"""

import asyncio
import os
import threading
import time
from _queue import SimpleQueue
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from dodona._core.protocol.routing import Routing
from dodona._core.protocol.steps import Calls, Post
from dodona._io.loops import new_event_loop
from dodona._io.network import Gathering, Network
from dodona._io.refusals import CLOSED
from dodona_wire.handlers import is_of_handler
from dodona_wire.messages.base import Failure
from dodona_wire.messages.families import Reply
from dodona_wire.net.exits import at_last
from dodona_wire.net.native_threads import check_threads
from dodona_wire.net.peer import Peer
from dodona_wire.net.threads import begin_thread

CLOSE_SECONDS_MAX: Final = 5.0
LOOK_SECONDS: Final = 0.05
"""How long a caller waits before it checks whether the thread took its call."""

WITHIN: Final = Failure(
    "invalid_request",
    "A finalizer that runs in the client's own thread can't use the client. Record the work in the "
    "finalizer, and do it in another thread.",
    {"is_sent": False},
)


_engines: "Final[set[Engine]]" = set()
"""The engines whose threads have not ended."""


def _close_all() -> None:
    """Close clients that the program never closed, at the end of the interpreter."""
    own = [it for it in [*_engines] if it.process_id == os.getpid()]
    for it in own:
        it.begin_closing()
    for it in own:
        it.close()


at_last(_close_all)


class Engine:
    """A thread, its event loop, and the network in it."""

    def __init__(self, master_url: str, routing: Routing, peer_type: type[Peer]) -> None:
        """Begin the thread. Raises InvalidRequest if the URL is not valid, or if threads are
        greenlets. Raises Overloaded if this process can open no more files."""
        check_threads()
        self.process_id = os.getpid()
        self._items: deque[_Exchange | Post] = deque()
        self._is_drain_due = False
        self._is_closed = False
        self._is_over = False
        self._over = threading.Lock()  # held until the thread has ended
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
            self._is_closed = True  # the thread ends when it sees this
            raise
        if error is not None:
            raise error

    def exchange(self, step: Calls) -> list[Reply]:
        """Return the replies to the calls of a step. Blocks the calling thread."""
        if self._is_closed:
            return [CLOSED] * len(step.requests)
        if threading.get_ident() == self._thread_id:
            return [WITHIN] * len(step.requests)
        exchange = _Exchange(step)
        self._submit(exchange)
        if step.meanwhile is not None:
            step.meanwhile()
        while not exchange.done.acquire(True, LOOK_SECONDS):
            if self._is_over:
                return exchange.replies_of_ended()
            if self._items:
                self._wake()
        return exchange.replies()

    def post(self, step: Post) -> None:
        """Send the messages of a step."""
        if not self._is_closed:
            self._submit(step)

    def close(self) -> None:
        """Close the network and end the thread. Pending calls fail. Repeating the call is
        harmless."""
        self.begin_closing()
        if threading.get_ident() == self._thread_id:
            return  # the garbage collector ran there, and the thread can't wait for itself
        until_s = time.monotonic() + CLOSE_SECONDS_MAX
        if not self._wait_over(until_s):
            self._call(self._stop)
            self._wait_over(until_s + CLOSE_SECONDS_MAX)

    def begin_closing(self) -> None:
        """Begin to close, and do not wait for the end."""
        self._is_closed = True
        self._call(self._begin_closing)

    def _wait_over(self, until_s: float) -> bool:
        while not self._is_over and time.monotonic() < until_s:
            if self._over.acquire(True, LOOK_SECONDS):
                self._over.release()
        return self._is_over

    def _submit(self, item: "_Exchange | Post") -> None:
        """Pass an item to the thread. One wake-up serves all items that come while it is on its
        way. An interrupt between the last two lines leaves the thread asleep. So a caller that
        waits wakes it."""
        self._items.append(item)
        if not self._is_drain_due:
            self._is_drain_due = True
            self._wake()

    def _wake(self) -> None:
        self._call(self._drain)

    def _call(self, function: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(function)
            except RuntimeError as error:  # the loop has ended
                if is_of_handler(error):
                    raise

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
            if self._is_closed:  # the caller of `__init__` was interrupted
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
    """The calls of one step on their way through the thread. A raw lock is the fastest object on
    which a thread can wait."""

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
        """Return the replies that are there when the thread has ended."""
        return [CLOSED] * len(self._step.requests) if self._gathering is None else self.replies()


async def _make_network(master_url: str, routing: Routing, peer_type: type[Peer]) -> Network:
    return Network(master_url, routing, peer_type=peer_type)
