"""Runs the client's protocols under virtual time: the fourth driver, beside the three real ones.

Owns: one client process: its port, clock and timestamp source, and the tasks that run in it. A task
may be killed at any moment, as a caller's process may; what it had sent stays sent.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any

from dodona._core.protocol.routing import Routing
from dodona._core.protocol.steps import MASTER, ORACLE, Calls, Pause, Post, Step, Target
from dodona.types import CellId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import GenerateTimestamps
from dodona_wire.messages.families import Reply, Request
from simulator.host import CoreStopped
from simulator.oracle import TimestampSource
from simulator.servers import MASTER_ADDRESS
from simulator.transport import Port, Transport
from simulator.world import Clock

AnyProtocol = Generator[Step, list[Reply], Any]

_unanswered = Failure("unavailable", "not waited for")


class ClientProcess:
    """Where protocols run. Its instants and wall clock are its own."""

    def __init__(
        self, transport: Transport, name: str, proxies: Sequence[str], timeout_us: int
    ) -> None:
        self.name = name
        self.world = transport.world
        self.random = self.world.stream(f"client/{name}")
        self.clock = Clock(self.world, self.random.randrange(10**12))
        self.port = Port(transport, name, timeout_us)
        self.oracle = TimestampSource(self.world, self.port, proxies)
        self.routing = Routing()
        self._paused_until_us = 0

    def pause(self, duration_us: int) -> None:
        """The process stands still: its tasks go on later, whatever came for them meanwhile."""
        self._paused_until_us = self.world.now_us + duration_us

    def spare(self) -> None:
        """End a pause early: what it held up still comes when it was to end."""
        self._paused_until_us = self.world.now_us

    def pause_left_us(self) -> int:
        return max(0, self._paused_until_us - self.world.now_us)

    def instant_us(self) -> int:
        return self.clock.now().instant_us

    def unix_us(self) -> int:
        return self.clock.now().unix_us

    def call(self, target: Target, body: Request, receive: Callable[[Reply], None]) -> None:
        """Send one request to where the target is now."""
        if target == ORACLE:
            assert isinstance(body, GenerateTimestamps)
            self.oracle.ask(body.count, receive)
        else:
            self.port.call(self._address(target), body, receive)

    def post(self, target: Target, body: Request) -> None:
        self.port.post(self._address(target), body)

    def _address(self, target: Target) -> str | None:
        return MASTER_ADDRESS if target == MASTER else self.routing.addresses.get(CellId(target))


class Task:
    """One protocol on its way to its end."""

    def __init__(self, process: ClientProcess, protocol: AnyProtocol) -> None:
        self._process = process
        self._protocol = protocol
        self.is_over = False
        process.world.after(0, lambda: self._resume(None))

    def kill(self) -> None:
        """The caller is gone. Nothing of what it awaits reaches it."""
        if not self.is_over:
            self.is_over = True
            self._protocol.close()

    def _resume(self, replies: list[Reply] | None) -> None:
        """Go on to the next step that takes time. None begins the protocol."""
        process = self._process
        if pause_us := process.pause_left_us():
            process.world.after(pause_us, lambda: self._resume(replies))
            return
        while not self.is_over:
            try:
                step = next(self._protocol) if replies is None else self._protocol.send(replies)
            except StopIteration:
                self.is_over = True
                return
            except Exception as error:
                raise CoreStopped(process.name, error) from error
            match step:
                case Pause():
                    delay_us = process.clock.delay_of(step.duration_ms * 1000)
                    process.world.after(delay_us, lambda: self._resume([]))
                    return
                case Calls(requests=(_, *_)):
                    _Gathering(process, step, self._resume)
                    return
                case Post():
                    for target, body in step.requests:
                        process.post(target, body)
            replies = []


class _Gathering:
    """The replies to one step's calls, as they come in."""

    def __init__(
        self, process: ClientProcess, step: Calls, resume: Callable[[list[Reply]], None]
    ) -> None:
        self._replies: list[Reply] = [_unanswered] * len(step.requests)
        self._missing_count = len(step.requests)
        self._is_over_at_refusal = step.is_over_at_refusal
        self._resume = resume
        for index, (target, body) in enumerate(step.requests):
            process.call(target, body, self._receiver(index))

    def _receiver(self, index: int) -> Callable[[Reply], None]:
        return lambda reply: self._take(index, reply)

    def _take(self, index: int, reply: Reply) -> None:
        if self._missing_count == 0:
            return
        self._replies[index] = reply
        self._missing_count -= 1
        is_refusal = isinstance(reply, Failure) and reply.kind != "unavailable"
        if is_refusal and self._is_over_at_refusal:
            self._missing_count = 0
        if self._missing_count == 0:
            self._resume(self._replies)
