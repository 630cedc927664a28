"""Calls between processes, over the simulated network and in the frames of the production wire.

Owns: addresses, request ids, time-outs, and what a caller is told when a process is gone. A call
ends exactly once: with its reply, or with a Failure of kind `unavailable`. Only a call that was
never sent says so (`is_sent: False`), as in production: the client builds on it. A connection may
be half open: its caller believes that it is up, and hears nothing until the call's time is over.
"""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from dodona_wire.messages.base import Failure
from dodona_wire.messages.cells import CellMessage
from dodona_wire.messages.codec import ONE_WAY, encode_frame
from dodona_wire.messages.data import WriteArrow, WriteNonAtomic
from dodona_wire.messages.families import Reply, Request
from simulator.network import Links, Network
from simulator.world import World

# Catalog requests travel as JSON in production; here everything goes in the one frame format.
_decode_requests = msgspec.msgpack.Decoder(list[tuple[int, Request | CellMessage]]).decode
_decode_replies = msgspec.msgpack.Decoder(list[tuple[int, Reply]]).decode

KEPT_US_MAX = 1_000_000

SENT_ONCE = (WriteNonAtomic, WriteArrow)
"""What has no name to be known again by: nobody promises that a repeat is harmless. Connections
repeat nothing, and clients do not either once it may have arrived."""

Route = tuple[str, int]
"""The port that asked, and its request id."""
Resume = Callable[[Reply], None]


class Server(Protocol):
    """Whoever listens at an address."""

    name: str

    def receive(self, route: Route, body: Request | CellMessage) -> None: ...


def process_at(address: str) -> str:
    """The name of the process whose address that is, or was."""
    return address.partition(":")[0]


class Transport:
    """Who listens where, and who waits for what."""

    def __init__(self, world: World, network: Network) -> None:
        self.world = world
        self.network = network
        self.random = world.stream("transport")
        self.servers: dict[str, Server] = {}
        self._displaced: dict[str, tuple[Server, tuple[str, ...]]] = {}
        """Servers that another process has replaced, and whose connections still lead to them."""
        self.ports: dict[str, Port] = {}
        self.unheard = Links()
        """From caller to server: half-open connections; what is asked over them gets lost."""
        self.unanswered = Links()
        """From caller to server: connections whose answers get lost."""
        self.request_counts: dict[str, int] = {}
        self.fault_counts: Counter[str] = Counter()
        self._last_id = ONE_WAY

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def bind(self, address: str, server: Server) -> None:
        assert address not in self.servers
        self.servers[address] = server

    def displace(self, address: str, sources: tuple[str, ...]) -> None:
        """Another process will listen there; for these callers nothing changes yet."""
        assert address not in self._displaced
        self._displaced[address] = self.servers.pop(address), sources

    def unbind(self, address: str, server: Server) -> None:
        """The process is gone: callers whose connection broke learn it soon, others time out."""
        displaced, sources = self._displaced.get(address, (None, ()))
        if server is displaced:
            del self._displaced[address]
        else:
            del self.servers[address]
        for name, port in self.ports.items():
            if (name in sources) == (server is displaced):
                port.lose(address)

    def _server(self, source: str, address: str) -> Server | None:
        displaced, sources = self._displaced.get(address, (None, ()))
        return displaced if source in sources else self.servers.get(address)

    def calm(self) -> None:
        """From now on every connection is what it seems to be."""
        self.unheard.clear()
        self.unanswered.clear()
        self.network.calm()

    def seems_up(self, source: str, address: str) -> bool:
        """Whether the caller can't notice that nobody is at the address any more."""
        link = (source, process_at(address))
        is_half_open = link in self.unheard or link in self.unanswered
        return is_half_open or self.network.is_silent(*link)

    def request(
        self, source: str, address: str, request_id: int, body: Request | CellMessage
    ) -> None:
        target = process_at(address)
        if (source, target) in self.unheard:
            self.fault_counts["request unheard"] += 1
            return
        payload = encode_frame([(request_id, body)])

        def deliver(source: str, _: str, payload: bytes) -> None:
            self._receive_request(source, address, payload)

        may_repeat = not isinstance(body, SENT_ONCE)
        self.network.send(source, target, payload, deliver, may_repeat=may_repeat)

    def _receive_request(self, source: str, address: str, payload: bytes) -> None:
        server = self._server(source, address)
        if server is None:
            self._maybe_keep(source, address, payload)
            return
        for request_id, body in _decode_requests(payload):
            kind = type(body).__name__
            self.request_counts[kind] = self.request_counts.get(kind, 0) + 1
            server.receive((source, request_id), body)

    def _maybe_keep(self, source: str, address: str, payload: bytes) -> None:
        """Nobody is there. Some of what was sent to the dead reaches whoever rises."""
        if self.random.random() < self.network.late_rate:
            self.fault_counts["datagram late"] += 1
            delay_us = self.random.randrange(KEPT_US_MAX)
            receive = self._receive_request
            self.world.after(delay_us, lambda: receive(source, address, payload))

    def reply(self, source: str, route: Route, body: Reply) -> None:
        port, request_id = route
        if (port, source) in self.unanswered:
            self.fault_counts["answer lost"] += request_id != ONE_WAY
        elif request_id != ONE_WAY:
            payload = encode_frame([(request_id, body)])
            self.network.send(source, port, payload, self._receive_reply)

    def _receive_reply(self, _: str, target: str, payload: bytes) -> None:
        port = self.ports.get(target)
        if port is not None:
            for request_id, body in _decode_replies(payload):
                port.settle(request_id, body)


class Port:
    """One process's calls in flight. A restarted process has a new port under the old name."""

    def __init__(self, transport: Transport, name: str, timeout_us: int) -> None:
        assert timeout_us > 0
        self.name = name
        self._transport = transport
        self._timeout_us = timeout_us
        self._pending: dict[int, tuple[str, Resume]] = {}
        self._deadlines: deque[tuple[int, int]] = deque()
        self._is_sweeping = False
        transport.ports[name] = self

    def close(self) -> None:
        """The process is gone: nobody is resumed any more."""
        self._pending.clear()
        if self._transport.ports.get(self.name) is self:
            del self._transport.ports[self.name]

    def call(self, address: str | None, body: Request, resume: Resume) -> None:
        """Send a request; `resume` is called once, in a later event."""
        transport = self._transport
        request_id = transport.next_id()
        self._pending[request_id] = (address or "", resume)
        if address is None or self._is_refused(address):
            never_sent = Failure("unavailable", "can't connect", {"is_sent": False})
            delay_us = transport.random.randrange(1, 5_000)
            transport.world.after(delay_us, lambda: self.settle(request_id, never_sent))
            return
        transport.request(self.name, address, request_id, body)
        self._deadlines.append((transport.world.now_us + self._timeout_us, request_id))
        if not self._is_sweeping:
            self._is_sweeping = True
            transport.world.after(self._timeout_us, self._sweep)

    def _is_refused(self, address: str) -> bool:
        """Nobody listens there, and that shows: half of the time one finds out too late."""
        transport = self._transport
        if address in transport.servers or transport.seems_up(self.name, address):
            return False
        return transport.random.random() < 0.5

    def post(self, address: str | None, body: Any) -> None:
        """Send a one-way message: nobody is told what became of it."""
        if address is not None:
            self._transport.request(self.name, address, ONE_WAY, body)

    def settle(self, request_id: int, body: Reply) -> None:
        """The first answer counts, all later ones are nobody's."""
        waiting = self._pending.pop(request_id, None)
        if waiting is not None:
            waiting[1](body)

    def lose(self, address: str) -> None:
        """The process at the address died. Half of the connections notice, if they can at all."""
        if self._transport.seems_up(self.name, address):
            return
        lost = [each for each, (target, _) in self._pending.items() if target == address]
        random = self._transport.random
        for request_id in lost:
            if random.random() < 0.5:
                failure = Failure("unavailable", "the connection was lost")
                self._settle_later(random.randrange(1, 5_000), request_id, failure)

    def _settle_later(self, delay_us: int, request_id: int, failure: Failure) -> None:
        self._transport.world.after(delay_us, lambda: self.settle(request_id, failure))

    def _sweep(self) -> None:
        """Fail what is overdue. One timer serves all calls: their time-outs are equal."""
        now_us = self._transport.world.now_us
        while self._deadlines:
            deadline_us, request_id = self._deadlines[0]
            if request_id in self._pending and deadline_us > now_us:
                self._transport.world.after(deadline_us - now_us, self._sweep)
                return
            self._deadlines.popleft()
            self.settle(request_id, Failure("unavailable", "no answer in time"))
        self._is_sweeping = False
