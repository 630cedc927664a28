"""Transactions over a change of the owner: what an owner says without an append, the fence
timestamp F of the commit protocol, and prepare timestamps.

Owns: R19 and R23, and two promises. A transaction that was reported as refused never commits. A
read at T misses nothing that commits at T or below. The log is a single record here. A take-over
has the fence in it, so an older owner appends nothing that counts. One tick ends the wait of every
successor and the lease of every older owner. Must not import: the replicated log.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from replication_model.step import Step

NONE: Final = 0
REFUSED: Final = 1
"""In memory only, as a poison is."""
LOCKED: Final = 2
APPENDED: Final = 3
DURABLE: Final = 4


class Host(Struct, frozen=True, gc=False):
    """An owner of the cell, and what it knows of the transaction."""

    epoch: int
    is_waiting: bool
    fence: int
    """F, or 0 before the oracle has answered."""
    transaction: int
    prepared: int
    """The prepare timestamp, or 0."""
    has_lease: bool


class Cell(Struct, frozen=True, gc=False):
    """All of it: the oracle, the document, one transaction, and what callers have seen."""

    clock: int
    """The newest timestamp that the oracle has issued."""
    epoch: int
    start: int
    """Of the transaction, or 0 before it begins."""
    is_refused: bool
    """A caller knows that the transaction is refused."""
    committed: int
    """The timestamp of the acknowledged record, or 0."""
    read: int
    """The newest T of a read that did not show the transaction."""
    hosts: tuple[Host, ...]

    def with_host(self, at: int, host: Host) -> "Cell":
        return replace(self, hosts=(*self.hosts[:at], host, *self.hosts[at + 1 :]))


class HandoverModel:
    """A cell as it is designed. A planted bug is a subclass."""

    title = "transactions over a change of the owner"
    refusal_needs_lease = True
    read_needs_lease = True
    has_fence = True

    def __init__(self, host_count: int = 3, timestamp_count: int = 9) -> None:
        self.host_count = host_count
        self.timestamp_count = timestamp_count

    # ---- decisions

    def may_ask_for_fence(self, host: Host) -> bool:
        """R23."""
        return not host.is_waiting

    def may_lock(self, host: Host) -> bool:
        """Whether a transaction may lock, and so ask for its prepare timestamp (R23)."""
        return host.fence > 0 and not host.is_waiting

    # ---- steps

    def first(self) -> Cell:
        return Cell(1, 1, 0, False, 0, 0, (Host(1, False, 1, NONE, 0, True),))

    def steps(self, state: Cell) -> Iterator[Step[Cell]]:
        if state.clock < self.timestamp_count and not state.start:
            start = state.clock + 1
            after = replace(state, clock=start, start=start)
            yield Step("the transaction begins at {}", (start,), after)
        if len(state.hosts) < self.host_count:
            yield from self._take_over(state)
        for at, host in enumerate(state.hosts):
            yield from self._ask_for_fence(state, at, host)
            yield from self._lock_or_refuse(state, at, host)
            yield from self._prepare(state, at, host)
            yield from self._read(state, at, host)
        yield from self._tick(state)

    def _take_over(self, state: Cell) -> Iterator[Step[Cell]]:
        """What is acknowledged is found. What is only appended may be found."""
        last = state.hosts[-1]
        found = {state.committed}
        if last.transaction == APPENDED:
            found.add(state.committed or last.prepared)
        epoch = state.epoch + 1
        for prepared in sorted(found):
            transaction = DURABLE if prepared else NONE
            host = Host(epoch, True, 0, transaction, prepared, False)
            after = replace(state, epoch=epoch, hosts=(*state.hosts, host))
            what = "with" if prepared else "without"
            yield Step("epoch {} takes over, {} the record", (epoch, what), after)

    def _ask_for_fence(self, state: Cell, at: int, host: Host) -> Iterator[Step[Cell]]:
        """The opening record is acknowledged, and the successor has F. From then on the recovered
        record counts."""
        if host.fence or host.epoch != state.epoch or not self.may_ask_for_fence(host):
            return
        clock = state.clock + self.has_fence
        if clock > self.timestamp_count:
            return
        fenced = replace(host, fence=clock if self.has_fence else 1, has_lease=True)
        committed = host.prepared if host.transaction == DURABLE else state.committed
        after = replace(state, clock=clock, committed=committed).with_host(at, fenced)
        action = "epoch {} has the fence timestamp {}" if self.has_fence else "epoch {} serves"
        yield self._checked(action, (host.epoch, clock), after)

    def _lock_or_refuse(self, state: Cell, at: int, host: Host) -> Iterator[Step[Cell]]:
        if not state.start or host.transaction not in (NONE, REFUSED):
            return
        is_new = state.start > host.fence or not (host.fence and self.has_fence)
        if host.transaction == NONE and self.may_lock(host) and is_new:
            after = state.with_host(at, replace(host, transaction=LOCKED))
            yield Step("epoch {} locks for the transaction", (host.epoch,), after)
        if host.transaction == NONE and host.fence and not host.is_waiting:
            after = state.with_host(at, replace(host, transaction=REFUSED))
            yield Step("epoch {} refuses the transaction, in memory", (host.epoch,), after)
        may_say = host.has_lease or not self.refusal_needs_lease
        if host.transaction == REFUSED and may_say and not state.is_refused:
            after = replace(state, is_refused=True)
            yield self._checked("epoch {} reports the refusal", (host.epoch,), after)

    def _prepare(self, state: Cell, at: int, host: Host) -> Iterator[Step[Cell]]:
        if host.transaction == LOCKED and state.clock < self.timestamp_count:
            clock = state.clock + 1
            appended = replace(host, transaction=APPENDED, prepared=clock)
            after = replace(state, clock=clock).with_host(at, appended)
            yield Step("epoch {} appends the record at {}", (host.epoch, clock), after)
        is_serving = host.fence and not host.is_waiting
        if host.transaction == APPENDED and host.epoch == state.epoch and is_serving:
            durable = replace(host, transaction=DURABLE)
            after = replace(state, committed=host.prepared).with_host(at, durable)
            details = (host.epoch, host.prepared)
            yield self._checked("epoch {} acknowledges the record at {}", details, after)

    def _read(self, state: Cell, at: int, host: Host) -> Iterator[Step[Cell]]:
        is_serving = host.fence and not host.is_waiting
        may_read = is_serving and (host.has_lease or not self.read_needs_lease)
        if may_read and host.transaction in (NONE, REFUSED) and state.read < state.clock:
            after = replace(state, read=state.clock)
            action = "epoch {} answers a read at {}, without the transaction"
            yield self._checked(action, (host.epoch, state.clock), after)

    def _checked(self, action: str, details: tuple[int, ...], after: Cell) -> Step[Cell]:
        violation = None
        if after.is_refused and after.committed:
            violation = f"reported as refused, and committed at {after.committed}"
        elif 0 < after.committed <= after.read:
            violation = f"a read at {after.read} missed the commit at {after.committed}"
        return Step(action, details, after, violation)

    def _tick(self, state: Cell) -> Iterator[Step[Cell]]:
        hosts = tuple(
            replace(it, is_waiting=False, has_lease=it.has_lease and it.epoch == state.epoch)
            for it in state.hosts
        )
        if hosts != state.hosts:
            yield Step("a tick passes", (), replace(state, hosts=hosts))

    def violation(self, state: Cell) -> str | None:
        """Each step that could break a promise checks it."""
        return None

    def pack(self, state: Cell) -> Cell:
        return state

    def unpack(self, packed: Cell) -> Cell:
        return packed
