"""A client process's source of timestamps: the production batcher in front of the proxies.

Owns: which proxy is asked, and what happens when it does not answer: the batch is asked for again,
from the next proxy, until its time is up. As `dodona._io.oracle` does over sockets.
"""

from collections.abc import Callable, Sequence
from typing import Final

from dodona.errors import DataCorrupted
from dodona_wire.cores.batcher import Batcher
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import Reply
from simulator.host import CoreStopped
from simulator.transport import Port
from simulator.world import World

BATCH_US_MAX: Final = 10_000_000
BACKOFF_US_MAX: Final = 200_000

Receive = Callable[[Reply], None]


class TimestampSource:
    """At most one request in flight; a caller's reply is its own share of a range."""

    def __init__(self, world: World, port: Port, addresses: Sequence[str]) -> None:
        assert addresses
        self._world = world
        self._random = world.stream(f"oracle/{port.name}")
        self._port = port
        self._addresses = addresses
        self._index = self._random.randrange(len(addresses))
        self._batcher: Batcher[Receive] = Batcher()
        self._deadline_us = 0

    def ask(self, count: int, receive: Receive) -> None:
        """`receive` is called once, in a later event, with a TimestampRange or a Failure."""
        self._batcher.add(receive, count)
        self._send_next()

    def _send_next(self) -> None:
        count = self._batcher.next_batch_count()
        if count is not None:
            self._deadline_us = self._world.now_us + BATCH_US_MAX
            self._send(count)

    def _send(self, count: int) -> None:
        address = self._addresses[self._index]
        self._port.call(address, GenerateTimestamps(count), lambda reply: self._take(count, reply))

    def _take(self, count: int, reply: Reply) -> None:
        if isinstance(reply, TimestampRange):
            try:
                shares = self._batcher.split(reply.first)
            except DataCorrupted as error:
                raise CoreStopped(self._port.name, error) from error
            for receive, first, share_count in shares:
                receive(TimestampRange(first, share_count))
        elif self._world.now_us < self._deadline_us:
            self._index = (self._index + 1) % len(self._addresses)
            delay_us = self._random.randrange(1, BACKOFF_US_MAX)
            self._world.after(delay_us, lambda: self._send(count))
            return
        else:
            for receive in self._batcher.fail():
                receive(Failure("unavailable", "no proxy answers"))
        self._send_next()
