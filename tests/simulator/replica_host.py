"""A log replica under virtual time: its core, and a disk that loses what is not synced at a crash.

Owns: when what the core recorded is durable, and when the core is called by the clock.
Must not import: any core but those of `dodona_replication`.
"""

from collections.abc import Callable
from typing import Any, Final

from dodona_replication.core.records import Record
from dodona_replication.core.replica import ReplicaCore
from dodona_wire.cores.effects import Append, Effect, ReadEntries, ReplyAtOnce
from dodona_wire.messages.replicas import LogEntries
from simulator.network import Network
from simulator.world import Clock, World
from unit.replication.replicas import MemoryStore

CLUSTER: Final = "home"
LOG: Final = "cell-1"
FLUSH_US_MAX: Final = 8_000


class ReplicaHost:
    """One replica: a process and its disk, whose name is the id of the replica."""

    def __init__(self, world: World, network: Network, name: str) -> None:
        self.name = name
        self.store = MemoryStore()
        self.is_lost = False
        self._world, self._network = world, network
        self._random = world.stream(f"replica/{name}")
        self._clock = Clock(world, self._random.randrange(1 << 40))
        self._held: list[Effect] = []
        self._flush_due = self._is_tick_due = False
        self._incarnation = 0
        self.core = self._recovered()

    def _recovered(self) -> ReplicaCore:
        return ReplicaCore(CLUSTER, self.name, self.store.logs(), self._clock.now())

    def receive(self, request: Any, answer: Callable[[Any], None]) -> None:
        if self.is_lost:
            return
        self.core.handle(answer, request, self._clock.now())
        self._carry_out()

    def _carry_out(self) -> None:
        for effect in self.core.take_effects():
            if isinstance(effect, Append) or (self._held and not isinstance(effect, ReplyAtOnce)):
                self._held.append(effect)
            else:
                self._deliver(effect)
        if self._held and not self._flush_due:
            self._flush_due = True
            incarnation = self._incarnation
            self._world.after(
                self._random.randrange(1, FLUSH_US_MAX), lambda: self._flush(incarnation)
            )
        self._set_timer()

    def _set_timer(self) -> None:
        """Call the core when a candidate that waits for a silence is due."""
        due_us = self.core.next_deadline()
        if due_us is not None and not self._is_tick_due:
            self._is_tick_due = True
            self._world.after(max(1, self._clock.delay_until(due_us)), self._tick)

    def _tick(self) -> None:
        self._is_tick_due = False
        if not self.is_lost:
            self.core.tick(self._clock.now())
            self._carry_out()

    def _flush(self, incarnation: int) -> None:
        if incarnation != self._incarnation:
            return
        self._flush_due = False
        held, self._held = self._held, []
        records: list[Record] = [it.record for it in held if isinstance(it, Append)]
        self.store.append(records)
        for effect in held:
            if isinstance(effect, Append):
                self.core.handle_durable(effect.record, self._clock.now())
            else:
                self._deliver(effect)
        self._carry_out()

    def _deliver(self, effect: Effect) -> None:
        if isinstance(effect, ReadEntries):
            _, *page = (getattr(effect, it) for it in effect.__struct_fields__)
            effect.route(LogEntries(self.store.read(*page)))
        else:
            effect.route(effect.body)  # type: ignore[union-attr]  # it is an answer

    def crash(self) -> None:
        """Lose what is not durable, and start again."""
        self._held, self._flush_due = [], False
        self._incarnation += 1
        self.core = self._recovered()

    def has(self, index: int) -> bool:
        """Whether it has an entry durably, or began behind it."""
        state = self.store.state_of(LOG)
        if state is None:
            return index == 0
        return state.tail.first_index > index or state.tail.last_index >= index
