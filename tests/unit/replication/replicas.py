"""A replica without a process: its core, a store, and the order of effects that the runtime keeps.

Owns: `Rig`, which a test drives step by step, and `MemoryStore`, a store without a disk. What is
not flushed is lost in a crash, with the answers behind it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from dodona_replication.core.entries import make_entry
from dodona_replication.core.records import (
    EntriesAdded,
    EntriesDropped,
    LogBegun,
    LogCut,
    LogState,
    Record,
    Swept,
)
from dodona_replication.core.replica import ReplicaCore, ReplicaLimits
from dodona_wire.cores.effects import Append, Effect, ReadEntries, ReplyAtOnce, ReplyTo
from dodona_wire.messages.replicas import Entry, LogEntries, LogRequest
from dodona_wire.types import Now

CLUSTER, REPLICA, LOG = "home", "disk-1", "cell-7"
SECOND = 1_000_000


class Store(Protocol):
    """What a rig needs of a store."""

    def append(self, records: Sequence[Record]) -> None: ...
    def logs(self) -> dict[str, LogState]: ...
    def read(
        self, log: str, first_index: int, last_index: int, epoch: int, bytes_max: int
    ) -> tuple[Entry, ...]: ...


class MemoryStore:
    """Does what the records say to lists of entries."""

    def __init__(self) -> None:
        self._states: dict[str, LogState] = {}
        self._entries: dict[str, dict[int, Entry]] = {}

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, Swept):
                continue
            self._states.setdefault(record.log, LogState()).apply(record)
            entries = self._entries.setdefault(record.log, {})
            match record:
                case EntriesAdded(entries=added):
                    entries |= {it.index: it for it in added}
                case EntriesDropped(last_index=last_index):
                    self._keep(record.log, 0, last_index)
                case LogCut(first_index=first_index):
                    self._keep(record.log, first_index, 1 << 62)
                case LogBegun(entries=begun):
                    self._entries[record.log] = {it.index: it for it in begun}

    def _keep(self, log: str, first_index: int, last_index: int) -> None:
        kept = self._entries[log].items()
        self._entries[log] = {at: it for at, it in kept if first_index <= at <= last_index}

    def logs(self) -> dict[str, LogState]:
        return {name: state.copy() for name, state in self._states.items()}

    def state_of(self, log: str) -> LogState | None:
        """Without a copy, to look at only."""
        return self._states.get(log)

    def read(
        self, log: str, first_index: int, last_index: int, epoch: int, bytes_max: int
    ) -> tuple[Entry, ...]:
        found: list[Entry] = []
        entries = self._entries.get(log, {})
        for index in range(first_index, last_index + 1):
            entry = entries.get(index)
            if entry is None or entry.epoch > epoch:
                break
            if found and sum(len(it.records) for it in (*found, entry)) > bytes_max:
                break
            found.append(entry)
        return tuple(found)


class Rig:
    """A core over a store. An answer is in `answers`, by the number that `ask` returned."""

    def __init__(self, store: Store | None = None, limits: ReplicaLimits | None = None) -> None:
        self.store: Store = store or MemoryStore()
        self.now = Now(100 * SECOND, 1_700_000_000 * SECOND)
        self.answers: dict[int, Any] = {}
        self._limits = limits
        self._asked_count = 0
        self._held: list[Effect] = []
        self.core = self._recovered()

    def _recovered(self) -> ReplicaCore:
        return ReplicaCore(CLUSTER, REPLICA, self.store.logs(), self.now, self._limits)

    def ask(self, body: Any) -> int:
        """Ask the core, and carry out what does not wait for the store."""
        self._asked_count += 1
        self.core.handle(self._asked_count, body, self.now)
        self.carry_out()
        return self._asked_count

    def carry_out(self) -> None:
        for effect in self.core.take_effects():
            if type(effect) is Append or (self._held and type(effect) is not ReplyAtOnce):
                self._held.append(effect)
            else:
                self._deliver(effect)

    def flush(self) -> None:
        """Make all records durable, and let their answers leave."""
        held, self._held = self._held, []
        if records := [it.record for it in held if isinstance(it, Append)]:
            self.store.append(records)
        for effect in held:
            if isinstance(effect, Append):
                self.core.handle_durable(effect.record, self.now)
            else:
                self._deliver(effect)

    def crash(self, store: Store | None = None) -> None:
        """Lose what is not flushed, and start again."""
        self._held = []
        self.store = store or self.store
        self.core = self._recovered()

    def get(self, body: Any) -> Any:
        """Return the answer to a request, after a flush."""
        number = self.ask(body)
        self.flush()
        return self.answers[number]

    def wait(self, us: int) -> None:
        """Let time pass, with the ticks that the runtime would make."""
        end = Now(self.now.instant_us + us, self.now.unix_us + us)
        while (at_us := self.core.next_deadline()) is not None and at_us <= end.instant_us:
            passed_us = max(0, at_us - self.now.instant_us)
            self.now = Now(self.now.instant_us + passed_us, self.now.unix_us + passed_us)
            self.core.tick(self.now)
            self.carry_out()
        self.now = end

    def _deliver(self, effect: Effect) -> None:
        if isinstance(effect, ReadEntries):
            _, *page = (getattr(effect, it) for it in effect.__struct_fields__)
            self.answers[effect.route] = LogEntries(self.store.read(*page))
        else:
            assert isinstance(effect, ReplyTo | ReplyAtOnce)
            self.answers[effect.route] = effect.body


def entries(*epochs: int, first_index: int = 1) -> tuple[Entry, ...]:
    """Entries with these epochs."""
    return tuple(
        [
            make_entry(index, epoch, f"{index} of {epoch}".encode())
            for index, epoch in enumerate(epochs, start=first_index)
        ]
    )


def request(kind: type[LogRequest], epoch: int, *fields: Any, log: str = LOG, **more: Any) -> Any:
    """A request to the rig's replica."""
    return kind(CLUSTER, log, REPLICA, epoch, *fields, **more)
