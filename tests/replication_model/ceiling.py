"""The ceiling of timestamps, as records of the master's log, over failovers.

Owns: T1 to T3, and the promise that each timestamp is above all that were issued before, by any
master. The set stays as it is: the replicated log by itself is `log_model`. Clocks are free: a
master may raise the ceiling, or take a timestamp, by any amount at any time. So clocks may differ,
and run backwards. Must not import: the replicated log.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from replication_model.step import Step

NOT_BEGUN = -1
RAISES_MAX = 2
"""How far one step raises a ceiling at most. More steps raise it further."""


class Answers(Struct, frozen=True, gc=False, order=True):
    """What one master may still count of a replica that has left its epoch."""

    ceiling: int = 0
    lease: int = 0


class Store(Struct, frozen=True, gc=False, order=True):
    """A replica of the master's log: its epoch, and the last ceiling in the log."""

    epoch: int
    ceiling: int
    answers: tuple[Answers, ...]


class Master(Struct, frozen=True, gc=False):
    """A master that the document named at some time."""

    epoch: int
    has_log: bool = False
    appended: int = 0
    """The ceiling that it has appended."""
    acknowledged: int = 0
    """The ceiling that all replicas have."""
    next_unused: int = 0
    wait: int = NOT_BEGUN


class Oracle(Struct, frozen=True, gc=False):
    """All of it: the document's epoch, the largest issued timestamp, masters, replicas."""

    epoch: int
    issued: int
    masters: tuple[Master, ...]
    stores: tuple[Store, ...]

    def with_master(self, at: int, master: Master) -> "Oracle":
        masters = (*self.masters[:at], master, *self.masters[at + 1 :])
        return replace(self, masters=masters)

    def with_store(self, at: int, store: Store) -> "Oracle":
        stores = [*self.stores[:at], store, *self.stores[at + 1 :]]
        return replace(self, stores=tuple(sorted(stores)))


class CeilingModel:
    """Timestamps as they are designed. A planted bug is a subclass."""

    title = "the ceiling of timestamps"

    def __init__(self, master_count: int = 3, store_count: int = 2, top: int = 6) -> None:
        self.master_count = master_count
        self.store_count = store_count
        self.top = top
        """No ceiling is above it."""

    # ---- decisions

    def first_wait(self) -> int:
        return NOT_BEGUN

    def takes_appends(self, store: Store, master: Master) -> bool:
        return store.epoch == master.epoch

    def may_fetch(self, store: Store, master: Master) -> bool:
        return store.epoch == master.epoch

    def are_enough(self, have: Sequence[bool]) -> bool:
        return all(have)

    def first_unused(self, ceiling: int) -> range:
        """Where a master may begin that found this ceiling (T2)."""
        return range(ceiling, ceiling + 1)

    def needs_lease(self) -> bool:
        return True

    def bound(self, master: Master) -> int:
        """Timestamps are issued below this one (T1)."""
        return master.acknowledged

    def ceilings_after(self, ceiling: int) -> list[int]:
        """What a master may append next (T3)."""
        return [*range(ceiling + 1, min(ceiling + RAISES_MAX, self.top) + 1)]

    def lease_after_tick(self, lease: int) -> int:
        return max(lease - 1, 0)

    # ---- steps

    def first(self) -> Oracle:
        store = Store(1, 2, (Answers(),))
        return Oracle(1, 0, (Master(1, True, 2, 2, 1, 0),), (store,) * self.store_count)

    def steps(self, state: Oracle) -> Iterator[Step[Oracle]]:
        if len(state.masters) < self.master_count:
            yield self._take_over(state)
        for at, master in enumerate(state.masters):
            yield from self._fence(state, at, master)
            if master.has_log:
                yield from self._arrive(state, master)
                yield from self._acknowledge(state, at, master)
                yield from self._raise(state, at, master)
                yield from self._issue(state, at, master)
            else:
                yield from self._fetch(state, at, master)
        yield from self._tick(state)

    def _take_over(self, state: Oracle) -> Step[Oracle]:
        epoch = state.epoch + 1
        masters = (*state.masters, Master(epoch, wait=self.first_wait()))
        stores = tuple(replace(it, answers=(*it.answers, Answers())) for it in state.stores)
        after = Oracle(epoch, state.issued, masters, stores)
        return Step("a master takes over: epoch {}", (epoch,), after)

    def _fence(self, state: Oracle, at: int, master: Master) -> Iterator[Step[Oracle]]:
        for place, store in enumerate(state.stores):
            if store.epoch < master.epoch:
                answers = tuple(
                    Answers(self._said(store, index, it), 1) if it.epoch == store.epoch else known
                    for index, (it, known) in enumerate(
                        zip(state.masters, store.answers, strict=True)
                    )
                )
                fenced = Store(master.epoch, store.ceiling, answers)
                after = state.with_store(place, fenced)
                if master.wait == NOT_BEGUN:
                    after = after.with_master(at, replace(master, wait=1))
                yield Step("epoch {} fences the ceiling {}", (master.epoch, store.ceiling), after)

    def _said(self, store: Store, at: int, master: Master) -> int:
        if self.takes_appends(store, master):
            return store.ceiling if master.has_log else 0
        return store.answers[at].ceiling

    def _fetch(self, state: Oracle, at: int, master: Master) -> Iterator[Step[Oracle]]:
        for store in state.stores:
            if not self.may_fetch(store, master):
                continue
            wait = 1 if master.wait == NOT_BEGUN else master.wait
            for ceiling in range(store.ceiling + 1, min(store.ceiling + 2, self.top) + 1):
                for first in self.first_unused(store.ceiling):
                    taken = Master(master.epoch, True, ceiling, 0, first, wait)
                    details = (master.epoch, first, ceiling)
                    after = state.with_master(at, taken)
                    yield Step("epoch {} begins at {}, with the ceiling {}", details, after)

    def _arrive(self, state: Oracle, master: Master) -> Iterator[Step[Oracle]]:
        for place, store in enumerate(state.stores):
            if self.takes_appends(store, master) and store.ceiling != master.appended:
                stored = replace(store, ceiling=master.appended)
                details = (master.appended, master.epoch)
                after = state.with_store(place, stored)
                yield Step("the ceiling {} of epoch {} arrives", details, after)

    def _acknowledge(self, state: Oracle, at: int, master: Master) -> Iterator[Step[Oracle]]:
        if master.appended == master.acknowledged or master.wait:
            return
        have = [self._said(it, at, master) == master.appended for it in state.stores]
        if self.are_enough(have):
            details = (master.epoch, master.appended)
            after = state.with_master(at, replace(master, acknowledged=master.appended))
            yield Step("epoch {} has the ceiling {}", details, after)

    def _raise(self, state: Oracle, at: int, master: Master) -> Iterator[Step[Oracle]]:
        if master.appended == master.acknowledged:
            for ceiling in self.ceilings_after(master.appended):
                after = state.with_master(at, replace(master, appended=ceiling))
                yield Step("epoch {} appends the ceiling {}", (master.epoch, ceiling), after)

    def _issue(self, state: Oracle, at: int, master: Master) -> Iterator[Step[Oracle]]:
        has_lease = all(it.epoch == master.epoch or it.answers[at].lease > 0 for it in state.stores)
        if master.wait or not (has_lease or not self.needs_lease()):
            return
        for timestamp in range(master.next_unused, self.bound(master)):
            issued = replace(state, issued=max(state.issued, timestamp))
            after = issued.with_master(at, replace(master, next_unused=timestamp + 1))
            is_above = timestamp > state.issued
            violation = None if is_above else f"{timestamp} is issued after {state.issued}"
            yield Step("epoch {} issues {}", (master.epoch, timestamp), after, violation)

    def _tick(self, state: Oracle) -> Iterator[Step[Oracle]]:
        masters = tuple(replace(it, wait=it.wait - (it.wait > 0)) for it in state.masters)
        stores = tuple(
            replace(
                store,
                answers=tuple(
                    Answers(it.ceiling, self.lease_after_tick(it.lease)) for it in store.answers
                ),
            )
            for store in state.stores
        )
        after = Oracle(state.epoch, state.issued, masters, tuple(sorted(stores)))
        if after != state:
            yield Step("a tick passes", (), after)

    def violation(self, state: Oracle) -> str | None:
        """Each step that issues a timestamp checks it."""
        return None

    def pack(self, state: Oracle) -> Oracle:
        return state

    def unpack(self, packed: Oracle) -> Oracle:
        return packed
