"""A coordinator under virtual time: a simulated etcd, and the ports of processes that ask it.

Owns: what can go wrong between a process and etcd. The network loses, delays and clogs requests
and answers, so a compare is applied and its answer lost, or it is applied long after its caller
gave up. A leader is missing for a while. A watch is forgotten, as after a compaction, and its
events come late, repeatedly and in any order. Production reads are linearizable: `stale_rate` shows
what reads of a member that lags would do.
Must not import: any core but that of `dodona_replication`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from dodona_replication.core.coordination import Answer, Applied, InDoubt, NewestSeen, Refused
from dodona_replication.core.document import Document, Revisioned
from dodona_wire.errors import Unavailable
from simulator.network import Network
from simulator.world import World

CALL_US_MAX: Final = 2_000_000
"""How long a port waits for an answer."""
RENEW_US: Final = 1_000_000
"""How often a port asks for its watches again."""
NAME: Final = "etcd"


class Read(msgspec.Struct, frozen=True, tag=True):
    number: int
    log: str


class ReadAll(msgspec.Struct, frozen=True, tag=True):
    number: int


class Compare(msgspec.Struct, frozen=True, tag=True):
    number: int
    log: str
    revision: int | None
    document: Document


class Watch(msgspec.Struct, frozen=True, tag=True):
    log: str


class Found(msgspec.Struct, frozen=True, tag=True):
    number: int
    current: Revisioned | None


class FoundAll(msgspec.Struct, frozen=True, tag=True):
    number: int
    documents: dict[str, Revisioned]


class Compared(msgspec.Struct, frozen=True, tag=True):
    """`revision`: that of the document if the compare was applied."""

    number: int
    revision: int | None
    current: Revisioned | None


class NoLeader(msgspec.Struct, frozen=True, tag=True):
    """Nothing was done, and nothing will be."""

    number: int


class Event(msgspec.Struct, frozen=True, tag=True):
    log: str
    current: Revisioned


Request = Read | ReadAll | Compare | Watch
Reply = Found | FoundAll | Compared | NoLeader | Event


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """Rates from 0 to 1. The network has rates of its own."""

    stale_rate: float = 0.0
    """Of reads, which production never sends so: a member answers that lags behind."""
    forgotten_rate: float = 0.0
    """Of events: all watches of the log are forgotten instead."""


class SimulatedEtcd:
    """One cluster of etcd. What it has done is the truth for tests."""

    def __init__(self, world: World, network: Network) -> None:
        self.history: dict[str, list[Revisioned]] = {}
        """All documents of each log."""
        self.applied = set[tuple[str, int]]()
        """The compares that were applied: the port that sent each, and its number there."""
        self._world = world
        self._network = network
        self._random = world.stream("etcd")
        self._options = CoordinatorOptions()
        self._revision = 0
        self._leader_back_us = 0
        self._watchers: dict[str, dict[str, Callable[[Reply], None]]] = {}

    def storm(self, options: CoordinatorOptions) -> None:
        """From now on these rates hold."""
        self._options = options

    def lose_leader(self, duration_us: int) -> None:
        """From now on there is no leader for a while."""
        self._leader_back_us = max(self._leader_back_us, self._world.now_us + duration_us)

    def newest(self, log: str) -> Revisioned | None:
        history = self.history.get(log)
        return history[-1] if history else None

    def ask(self, source: str, request: Request, receive: Callable[[Reply], None]) -> None:
        """Send a request over the network. `receive` is called with each reply that arrives."""
        self._network.send(
            source,
            NAME,
            msgspec.json.encode(request),
            lambda *_: self._arrive(source, request, receive),
            may_repeat=False,  # a connection of TCP repeats nothing
        )

    def _arrive(self, source: str, request: Request, receive: Callable[[Reply], None]) -> None:
        wait_us = self._leader_back_us - self._world.now_us
        if wait_us <= 0:
            self._answer(source, request, receive)
            return
        match self._random.randrange(3):
            case 0:  # the proposal waits, and is made even if its caller has given up
                self._world.after(wait_us, lambda: self._arrive(source, request, receive))
            case 1 if not isinstance(request, Watch):
                self._send(source, NoLeader(request.number), receive)
            case _:
                pass

    def _answer(self, source: str, request: Request, receive: Callable[[Reply], None]) -> None:
        match request:
            case Read(number, log):
                self._send(source, Found(number, self._seen(log)), receive)
            case ReadAll(number):
                seen = {log: it for log in self.history if (it := self._seen(log)) is not None}
                self._send(source, FoundAll(number, seen), receive)
            case Compare(number, log, revision, document):
                current = self.newest(log)
                if (current.revision if current else None) == revision:
                    self._apply(log, document)
                    self.applied.add((source, number))
                    self._send(source, Compared(number, self._revision, None), receive)
                else:
                    self._send(source, Compared(number, None, current), receive)
            case Watch(log):
                self._watchers.setdefault(log, {})[source] = receive
                if current := self.newest(log):
                    self._send(source, Event(log, current), receive)

    def _seen(self, log: str) -> Revisioned | None:
        history = self.history.get(log, [])
        if history and self._random.random() < self._options.stale_rate:
            return self._random.choice(history)
        return self.newest(log)

    def _apply(self, log: str, document: Document) -> None:
        # Revisions belong to the whole of etcd: other keys leave gaps.
        self._revision += self._random.randrange(1, 3)
        current = Revisioned(document, self._revision)
        self.history.setdefault(log, []).append(current)
        if self._random.random() < self._options.forgotten_rate:
            self._watchers.pop(log, None)
        for source, receive in self._watchers.get(log, {}).items():
            self._send(source, Event(log, current), receive)

    def _send(self, target: str, reply: Reply, receive: Callable[[Reply], None]) -> None:
        self._network.send(
            NAME,
            target,
            msgspec.json.encode(reply),
            lambda *_: receive(reply),
            may_repeat=isinstance(reply, Event),
        )


ReceiveRead = Callable[[Revisioned | Unavailable | None], None]
ReceiveAll = Callable[[dict[str, Revisioned] | Unavailable], None]
ReceiveAnswer = Callable[[Answer | Unavailable], None]


class CoordinatorPort:
    """One process's way to the coordinator. Each call is answered exactly once, in a later event,
    unless the port is closed first."""

    def __init__(self, world: World, etcd: SimulatedEtcd, name: str) -> None:
        self.name = name
        self._world = world
        self._etcd = etcd
        self._waiting: dict[int, Callable[[Reply | None], None]] = {}
        self._watches: dict[str, list[tuple[NewestSeen, Callable[[Revisioned], None]]]] = {}
        self._number = 0
        self.is_closed = False

    def read(self, log: str, receive: ReceiveRead) -> None:
        """`receive` gets the document, None, or Unavailable."""

        def take(reply: Reply | None) -> None:
            receive(reply.current if isinstance(reply, Found) else Unavailable("no answer"))

        self._ask(partial(Read, log=log), take)

    def read_all(self, receive: ReceiveAll) -> None:
        """`receive` gets all documents by log, or Unavailable."""

        def take(reply: Reply | None) -> None:
            receive(reply.documents if isinstance(reply, FoundAll) else Unavailable("no answer"))

        self._ask(ReadAll, take)

    def compare(
        self, log: str, revision: int | None, document: Document, receive: ReceiveAnswer
    ) -> int:
        """`receive` gets the answer, or Unavailable if the compare is never applied. → the call's
        number."""

        def take(reply: Reply | None) -> None:
            receive(_answer_of(reply))

        return self._ask(partial(Compare, log=log, revision=revision, document=document), take)

    def watch(self, log: str, after_revision: int, receive: Callable[[Revisioned], None]) -> None:
        """`receive` gets documents of rising revisions, at last the newest one."""
        self._watches.setdefault(log, []).append((NewestSeen(after_revision), receive))
        self._renew(log)

    def close(self) -> None:
        """The process is gone: nothing arrives any more. What it sent may still be done."""
        self.is_closed = True
        self._waiting.clear()
        self._watches.clear()

    def _ask(
        self, request_of: Callable[[int], Request], take: Callable[[Reply | None], None]
    ) -> int:
        self._number += 1
        number = self._number
        self._waiting[number] = take
        self._etcd.ask(self.name, request_of(number), self._receive)
        self._world.after(CALL_US_MAX, lambda: self._finish(number, None))
        return number

    def _finish(self, number: int, reply: Reply | None) -> None:
        if (take := self._waiting.pop(number, None)) is not None:
            take(reply)

    def _receive(self, reply: Reply) -> None:
        if isinstance(reply, Event):
            for seen, receive in self._watches.get(reply.log, ()):
                if seen.take(reply.current):
                    receive(reply.current)
        else:
            self._finish(reply.number, reply)

    def _renew(self, log: str) -> None:
        if not self.is_closed:
            self._etcd.ask(self.name, Watch(log), self._receive)
            self._world.after(RENEW_US, lambda: self._renew(log))


def _answer_of(reply: Reply | None) -> Answer | Unavailable:
    match reply:
        case Compared(revision=int(revision)):
            return Applied(revision)
        case Compared(current=current):
            return Refused(current)
        case NoLeader():
            return Unavailable("etcd has no leader")
    return InDoubt("no answer")
