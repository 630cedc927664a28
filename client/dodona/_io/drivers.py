"""Drivers: what runs a client's protocols over a network. One for asyncio, one that blocks.

Owns: the carrying out of steps, and the thread behind the blocking driver. That thread runs one
event loop with one set of connections, whose frames all of the caller's threads share; a protocol
itself runs in its caller's thread, and only its calls cross over.
A driver belongs to the process that made it: a fork inherits its sockets but not its thread.
"""

import asyncio
import os
import threading
import time
import weakref
from typing import Any, ClassVar, Final

from dodona._core.messages import Reply
from dodona._core.routing import Routing
from dodona._core.steps import ORACLE, Calls, Pause, Post, Protocol, Result
from dodona._io.cluster_key import ClusterKey
from dodona._io.network import CLOSED, Gathering, Network
from dodona._io.peer import Peer
from dodona.errors import InvalidRequest

CLOSE_SECONDS_MAX: Final = 5.0


class AsyncioDriver:
    """Runs protocols in the event loop that it was made in."""

    peer_type: ClassVar[type[Peer]] = Peer

    def __init__(self, master_url: str, routing: Routing, key: ClusterKey | None = None) -> None:
        """Connects to nothing yet. Raises InvalidRequest on what is no URL."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._network = Network(master_url, routing, key, self.peer_type)
        self.generate_timestamp = self._network.generate
        """The shortest way to a timestamp, to be awaited in this driver's loop. May raise
        Unavailable."""

    async def run(self, protocol: Protocol[Result]) -> Result:
        """The protocol's result, or its error."""
        self._check_usable()
        replies: Any = None
        try:
            while True:
                step = protocol.send(replies)
                if type(step) is Calls:
                    requests = step.requests
                    if len(requests) > 1:
                        replies = await self._gather(step)
                    elif requests[0][0] == ORACLE:
                        replies = [await self._network.ask_oracle(requests[0][1])]
                    else:
                        replies = [await self._network.call(*requests[0])]
                else:
                    replies = []
                    if type(step) is Pause:
                        await asyncio.sleep(step.duration_ms / 1000)
                    elif type(step) is Post:
                        self._network.post(step)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        finally:
            protocol.close()

    async def close(self) -> None:
        """Fail what is pending. Repeating it is harmless."""
        await self._network.close()

    async def _gather(self, step: Calls) -> list[Reply]:
        done = self._loop.create_future()

        def wake() -> None:
            if not done.done():  # else the caller was cancelled
                done.set_result(None)

        gathering = Gathering(self._network, step, wake)
        await done
        return gathering.replies

    def _check_usable(self) -> None:
        # Not asyncio.get_running_loop(): it asks the kernel who we are, at each of our steps.
        if threading.get_ident() != self._thread_id or self._loop.is_closed():
            raise InvalidRequest("this client belongs to another event loop: make one in each loop")


class BlockingDriver:
    """Runs protocols in any thread of the process that made it."""

    peer_type: ClassVar[type[Peer]] = Peer

    def __init__(self, master_url: str, routing: Routing) -> None:
        """Connects to nothing yet. Raises InvalidRequest on what is no URL."""
        self._process_id = os.getpid()
        self._engine = _Engine(master_url, routing, self.peer_type)
        # A client that was never closed says goodbye all the same, at the interpreter's end too.
        self._finalizer = weakref.finalize(self, _close, self._engine, self._process_id)

    def run(self, protocol: Protocol[Result]) -> Result:
        """The protocol's result, or its error."""
        if os.getpid() != self._process_id:
            raise InvalidRequest(
                f"this client belongs to process {self._process_id}, of which this one is a fork: "
                "make a new client here"
            )
        replies: Any = None
        try:
            while True:
                step = protocol.send(replies)
                if type(step) is Calls:
                    replies = self._engine.exchange(step)
                else:
                    replies = []
                    if type(step) is Pause:
                        time.sleep(step.duration_ms / 1000)
                    elif type(step) is Post:
                        self._engine.post(step)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        finally:
            protocol.close()

    def close(self) -> None:
        """Fail what is pending, in every thread. Repeating it is harmless."""
        self._finalizer()


def _close(engine: "_Engine", process_id: int) -> None:
    if os.getpid() == process_id:  # else the connections are another process's
        engine.close()


class _Engine:
    """A thread, its event loop, and the network in it."""

    def __init__(self, master_url: str, routing: Routing, peer_type: type[Peer]) -> None:
        self._lock = threading.Lock()
        self._items: list[_Exchange | Post] = []
        self._is_drain_due = False
        self._is_closed = False
        self._loop = _new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="dodona-client", daemon=True)
        self._thread.start()
        try:
            making = asyncio.run_coroutine_threadsafe(
                _make_network(master_url, routing, peer_type), self._loop
            )
            self._network = making.result()
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    def exchange(self, step: Calls) -> list[Reply]:
        """The replies to the step's calls. Blocks the calling thread."""
        exchange = _Exchange(step)
        if not self._submit(exchange):
            return [CLOSED] * len(step.requests)
        return exchange.wait()

    def post(self, step: Post) -> None:
        """Have the messages sent."""
        self._submit(step)

    def close(self) -> None:
        """Fail what is pending, end the thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            closing = asyncio.run_coroutine_threadsafe(self._network.close(), self._loop)
        if threading.current_thread() is self._thread:  # collected there: it can't wait for itself
            closing.add_done_callback(lambda _: self._loop.stop())
            return
        try:
            closing.result(CLOSE_SECONDS_MAX)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_SECONDS_MAX)

    def _run_loop(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _submit(self, item: "_Exchange | Post") -> bool:
        """Hand it to the thread: one wake-up for all that come while it is on its way.
        → False if there is no thread any more."""
        with self._lock:
            if self._is_closed:
                return False
            self._items.append(item)
            if not self._is_drain_due:
                self._is_drain_due = True
                self._loop.call_soon_threadsafe(self._drain)
            return True

    def _drain(self) -> None:
        with self._lock:
            items, self._items = self._items, []
            self._is_drain_due = False
        for item in items:
            if type(item) is Post:
                self._network.post(item)
            elif type(item) is _Exchange:
                item.start(self._network)


class _Exchange:
    """One step's calls on their way through the thread. A raw lock is the cheapest thing that a
    thread can wait on."""

    __slots__ = ("_done", "_gathering", "_step")

    def __init__(self, step: Calls) -> None:
        self._step = step
        self._done = threading.Lock()
        self._done.acquire()
        self._gathering: Gathering | None = None

    def start(self, network: Network) -> None:
        self._gathering = Gathering(network, self._step, self._done.release)

    def wait(self) -> list[Reply]:
        self._done.acquire()
        assert self._gathering is not None
        return self._gathering.replies


async def _make_network(master_url: str, routing: Routing, peer_type: type[Peer]) -> Network:
    return Network(master_url, routing, peer_type=peer_type)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed: it halves the time of a round trip."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
