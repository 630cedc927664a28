"""Drivers: what runs a client's protocols over a network. One for asyncio, one that blocks.

Owns: the carrying out of steps. A blocking caller's protocol runs in its own thread, and only its
calls cross over to the client's (`engine`).
A driver belongs to the process that made it: a fork inherits its sockets but not its thread.
"""

import asyncio
import os
import time
import weakref
from collections.abc import Coroutine
from typing import Any, ClassVar

from dodona._core.protocol.deadline import bounded
from dodona._core.protocol.routing import Routing
from dodona._core.protocol.steps import ORACLE, Calls, Pause, Post, Protocol, Result
from dodona._io.engine import Engine
from dodona._io.network import Gathering, Network
from dodona._io.sessions import instant_us
from dodona._io.tracebacks import forget_locals
from dodona_wire.errors import DodonaError, InvalidRequest
from dodona_wire.messages.families import Reply
from dodona_wire.net.cluster_key import ClusterKey
from dodona_wire.net.peer import Peer
from dodona_wire.types import Timestamp


class AsyncioDriver:
    """Runs protocols in the event loop that it was made in."""

    peer_type: ClassVar[type[Peer]] = Peer

    def __init__(self, master_url: str, routing: Routing, key: ClusterKey | None = None) -> None:
        """Connects to nothing yet. Raises InvalidRequest on what is no URL."""
        self._loop = asyncio.get_running_loop()
        self._network = Network(master_url, routing, key, self.peer_type)

    def generate_timestamp(self) -> Coroutine[Any, Any, Timestamp]:
        """The shortest way to a timestamp. Raises InvalidRequest; awaiting it, Unavailable."""
        if asyncio._get_running_loop() is not self._loop:  # a tenth of what its like costs
            check_loop(self._loop)
        return self._network.generate()

    async def run(self, protocol: Protocol[Result], timeout_ms: int | None = None) -> Result:
        """The protocol's result, or its error, in about `timeout_ms` at most."""
        check_loop(self._loop)
        if timeout_ms is not None:
            protocol = bounded(protocol, timeout_ms, instant_us)
        replies: Any = None
        try:
            while True:
                step = protocol.send(replies)
                if type(step) is Calls:
                    requests = step.requests
                    if len(requests) > 1 or step.timeout_ms is not None:
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
        except DodonaError as error:
            forget_locals(error)
            raise
        finally:
            protocol.close()

    async def close(self) -> None:
        """Fail what is pending. Repeating it is harmless."""
        check_loop(self._loop)
        await self._network.close()

    async def _gather(self, step: Calls) -> list[Reply]:
        done = self._loop.create_future()

        def wake() -> None:
            if not done.done():  # else the caller was cancelled
                done.set_result(None)

        gathering = Gathering(self._network, step, wake)
        await done
        return gathering.replies


def check_loop(own: asyncio.AbstractEventLoop) -> None:
    """That the caller runs in this loop, in the process that made it. Raises InvalidRequest."""
    try:
        is_own = asyncio.get_running_loop() is own
    except RuntimeError:
        is_own = False
    if not is_own:
        raise InvalidRequest("this client belongs to another event loop: make one in each loop")


class BlockingDriver:
    """Runs protocols in any thread of the process that made it."""

    peer_type: ClassVar[type[Peer]] = Peer

    def __init__(self, master_url: str, routing: Routing) -> None:
        """Connects to nothing yet. Raises InvalidRequest on what is no URL."""
        self._engine = Engine(master_url, routing, self.peer_type)
        # At the end of the process it is closed as well, but waited for: see `engine`.
        weakref.finalize(self, _let_go, self._engine).atexit = False

    def run(self, protocol: Protocol[Result], timeout_ms: int | None = None) -> Result:
        """The protocol's result, or its error, in about `timeout_ms` at most."""
        if os.getpid() != (owner := self._engine.process_id):
            raise InvalidRequest(
                f"this client belongs to process {owner}, of which this one is a fork: "
                "make a new client here"
            )
        if timeout_ms is not None:
            protocol = bounded(protocol, timeout_ms, instant_us)
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
        except DodonaError as error:
            forget_locals(error)
            raise
        finally:
            protocol.close()

    def close(self) -> None:
        """Fail what is pending, in every thread. Repeating it is harmless, and goes on with what
        an interrupt ended."""
        if os.getpid() == self._engine.process_id:  # else the connections are another process's
            self._engine.close()


def _let_go(engine: Engine) -> None:
    """Of a client that nobody has any more."""
    if os.getpid() == engine.process_id:
        engine.begin_closing()
