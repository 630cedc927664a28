"""An owner of a log without a network: a test hears each effect, and gives each answer.

Owns: `Owning`. Its replicas are real cores over stores in memory, which answer when the test says.
"""

from typing import Any

from dodona_replication.core.coordination import Applied
from dodona_replication.core.document import Document, Revisioned, owner_id
from dodona_replication.core.owner import Owner
from dodona_replication.core.owner_effects import (
    Acknowledged,
    AskCoordinator,
    AskReplica,
    Ended,
    Identity,
    OwnerLimits,
    Replay,
)
from dodona_replication.core.replica import ReplicaCore
from dodona_replication.core.take_over import TakeOver
from dodona_wire.cores.effects import Append, ReadEntries
from dodona_wire.messages.base import Failure
from dodona_wire.messages.replicas import Entry, LogEntries, StoreEntries
from dodona_wire.types import Now
from unit.replication.replicas import CLUSTER, LOG, SECOND, MemoryStore

AWAY = Failure("unavailable", "no answer")
MS = 1_000


class Owning:
    """One process, and the replicas `a` to `d`, of which the first three are the set."""

    def __init__(self, *, is_released: bool = True, lease_ms: int = 750) -> None:
        self.now = Now(100 * SECOND, 1_700_000_000 * SECOND)
        self.limits = OwnerLimits(lease_ms=lease_ms)
        self.identity = Identity(CLUSTER, LOG, owner_id("node-1", bytes(8)))
        self.stores = {it: MemoryStore() for it in "abcd"}
        self.cores = {it: self._core(it) for it in self.stores}
        document = Document.initial(("a", "b", "c"), 2)
        if not is_released:
            document = document.take_over(owner_id("node-0", bytes(8)))
        self.document = Revisioned(document, 5)
        self.away: set[str] = set()
        """Replicas that do not answer."""
        self.held: set[str] = set()
        """Replicas whose answers to stores wait for `release_held`."""
        self._waiting: list[tuple[AskReplica, Any, int]] = []
        self.stays: type[Any] | None = None
        """Requests of this kind get no answer."""
        self.asked: list[AskReplica] = []
        self.replayed: list[Entry] = []
        self.compares: list[Any] = []
        self.acknowledged: list[int] = []
        self.ended: list[Ended] = []
        self.owner: Any = None
        """A `TakeOver`, and then an `Owner`."""

    def _core(self, name: str) -> ReplicaCore:
        return ReplicaCore(CLUSTER, name, self.stores[name].logs(), self.now)

    def take_over(self) -> None:
        self.owner = TakeOver(self.identity, self.document, self.limits, self.now)
        self.drive()

    def open(self) -> Owner:
        """Take over, with all answers, up to a log that is open."""
        self.take_over()
        self.apply()
        self.become_owner()
        self.wait(1000)
        assert self.owner.is_open(self.now)
        return self.owner  # type: ignore[no-any-return]  # it was made here

    def become_owner(self) -> None:
        assert self.owner.is_recovered
        self.owner = Owner(self.owner, b"opened", self.now)
        self.drive()

    def apply(self) -> None:
        """The coordinator applies the newest compare, and answers."""
        compare = self.compares[-1]
        self.document = Revisioned(compare.document, self.document.revision + 1)
        self.owner.handle_answer(compare, Applied(self.document.revision), self.now)
        self.drive()

    def append(self, records: bytes = b"x") -> int:
        index = self.owner.append(records, self.now)
        self.drive()
        return int(index)

    def wait(self, ms: int) -> None:
        """Let time pass, in steps of 10 ms."""
        for _ in range(ms // 10):
            self.now = Now(self.now.instant_us + 10 * MS, self.now.unix_us + 10 * MS)
            due_us = self.owner.next_deadline()
            if due_us is not None and due_us <= self.now.instant_us:
                self.owner.tick(self.now)
            self.drive()

    def drive(self) -> None:
        """Carry out effects until there are none."""
        while effects := self.owner.take_effects():
            for effect in effects:
                match effect:
                    case AskReplica():
                        self._answer(effect)
                    case AskCoordinator(compare=compare):
                        self.compares.append(compare)
                    case Replay(entries=entries):
                        self.replayed += entries
                    case Acknowledged(index=index):
                        self.acknowledged.append(index)
                    case Ended():
                        self.ended.append(effect)

    def asked_count(self, kind: type[Any]) -> int:
        """How many requests of this kind were sent."""
        return sum(type(it.request) is kind for it in self.asked)

    def _answer(self, asked: AskReplica) -> None:
        self.asked.append(asked)
        if self.stays is not None and isinstance(asked.request, self.stays):
            return
        reply = AWAY if asked.replica in self.away else self.ask(asked)
        answer = asked, reply, self.now.instant_us
        if asked.replica in self.held and isinstance(asked.request, StoreEntries):
            self._waiting.append(answer)
        else:
            self.owner.handle_reply(*answer, self.now)

    def release_held(self) -> None:
        """Give the answers that wait."""
        self.held = set()
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            self.owner.handle_reply(*answer, self.now)
        self.drive()

    def ask(self, asked: AskReplica) -> Any:
        """A replica answers, after it has made all durable."""
        core, store = self.cores[asked.replica], self.stores[asked.replica]
        core.handle(None, asked.request, self.now)
        reply: Any = None
        for effect in core.take_effects():
            if isinstance(effect, Append):
                store.append([effect.record])
                core.handle_durable(effect.record, self.now)
            elif isinstance(effect, ReadEntries):
                _, *page = (getattr(effect, it) for it in effect.__struct_fields__)
                reply = LogEntries(store.read(*page))
            else:
                reply = getattr(effect, "body", None)
        return reply

    def last_index(self, replica: str) -> int:
        state = self.stores[replica].logs().get(LOG)
        return 0 if state is None else state.tail.last_index
