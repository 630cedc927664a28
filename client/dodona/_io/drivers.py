"""Drivers run the protocols of a client over a network: one for asyncio, and one that blocks.

Owns: how each step of a protocol is carried out. The protocol of a blocking caller runs in the
caller's thread. Only its calls go to the thread of the client (`engine`).
A driver belongs to the process that created it. A fork inherits its sockets, but not its thread.
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
from dodona._io.refusals import check_loop
from dodona._io.sessions import instant_us
from dodona._io.tracebacks import forget_locals
from dodona_wire.errors import DodonaError, InvalidRequest
from dodona_wire.messages.families import Reply
from dodona_wire.net.cluster_key import ClusterKey
from dodona_wire.net.peer import Peer
from dodona_wire.types import Timestamp


class AsyncioDriver:
    """Runs protocols in the event loop that it was created in."""

    peer_type: ClassVar[type[Peer]] = Peer

    def __init__(self, master_url: str, routing: Routing, key: ClusterKey | None = None) -> None:
        """Create the driver, and connect to nothing yet. Raises InvalidRequest if the URL is not
        valid."""
        self._loop = asyncio.get_running_loop()
        self._network = Network(master_url, routing, key, self.peer_type)

    def generate_timestamp(self) -> Coroutine[Any, Any, Timestamp]:
        """Return a fresh timestamp, without a protocol. Raises InvalidRequest. To await it raises
        Unavailable."""
        if asyncio._get_running_loop() is not self._loop:  # ten times as fast as the check below
            check_loop(self._loop)
        return self._network.generate()

    async def run(self, protocol: Protocol[Result], timeout_ms: int | None = None) -> Result:
        """Run a protocol, in about `timeout_ms` at most. Returns its result, or raises its
        error."""
        check_loop(self._loop)
        if timeout_ms is not None:
            protocol = bounded(protocol, timeout_ms, instant_us)
        replies: Any = None
        try:
            while True:
                step = protocol.send(replies)
                if type(step) is Calls:
                    requests = step.requests
                    if len(requests) > 1 or step.timeout_ms is not None or step.meanwhile:
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
        """Close all connections. Pending calls fail. Repeating the call is harmless."""
        check_loop(self._loop)
        await self._network.close()

    async def _gather(self, step: Calls) -> list[Reply]:
        done = self._loop.create_future()

        def wake() -> None:
            if not done.done():  # otherwise the caller was cancelled
                done.set_result(None)

        gathering = Gathering(self._network, step, wake)
        if step.meanwhile is not None:
            await asyncio.sleep(0)  # the requests leave in this iteration of the loop
            step.meanwhile()
        await done
        return gathering.replies


class BlockingDriver:
    """Runs protocols in any thread of the process that created it."""

    peer_type: ClassVar[type[Peer]] = Peer

    def __init__(self, master_url: str, routing: Routing) -> None:
        """Create the driver, and connect to nothing yet. Raises InvalidRequest if the URL is not
        valid."""
        self._engine = Engine(master_url, routing, self.peer_type)
        # At the end of the process, `engine` closes it, too, and waits for the end.
        weakref.finalize(self, _let_go, self._engine).atexit = False

    def run(self, protocol: Protocol[Result], timeout_ms: int | None = None) -> Result:
        """Run a protocol, in about `timeout_ms` at most. Returns its result, or raises its
        error."""
        if os.getpid() != (owner := self._engine.process_id):
            raise InvalidRequest(
                f"Process {owner} created this client, and this process is a fork of it. "
                "Create a new client here."
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
        """Close all connections. Pending calls fail, in every thread. Repeating the call is
        harmless, and completes a close that was interrupted."""
        if os.getpid() == self._engine.process_id:  # else another process has the connections
            self._engine.close()


def _let_go(engine: Engine) -> None:
    """Close the engine of a client that the program has dropped."""
    if os.getpid() == engine.process_id:
        engine.begin_closing()
