"""Planted bugs of epochs and replicas: R1 to R10.

Owns: the bugs. Must not import: the other chapters.
"""

from collections.abc import Iterator
from dataclasses import replace as with_bounds
from typing import Final

from msgspec.structs import replace

from replication_model.bounds import Bounds
from replication_model.document import with_candidate
from replication_model.logs import Log, epoch_of
from replication_model.planted.bug import PlantedBug, log_bug
from replication_model.replicas import leave
from replication_model.rules import Rules
from replication_model.state import (
    CANDIDATE,
    CONFIRMED,
    ENDED,
    IN_SET,
    LOST,
    NOT_BEGUN,
    OWNER,
    READ,
    STRANGER,
    Owner,
    Replica,
    State,
    with_view,
)
from replication_model.step import Step

THREE: Final = Bounds("3 replicas, 2 epochs", checks_reads=False)
FIXED: Final = Bounds(
    "3 replicas, 3 epochs, the set is fixed",
    epoch_count=3,
    may_change_set=False,
    checks_reads=False,
)
PAIR: Final = with_bounds(
    FIXED, title="2 replicas, 3 epochs, the set is fixed", replica_count=2, member_count=2
)
"""These look for lost writes only, so that a trace shows the worst that a bug does."""


class ComparesTheEpoch(Rules):
    """A stale read of the set passes, because the epoch is still the same."""

    takes_over = False

    def extra(self, state: State) -> Iterator[Step[State]]:
        if len(state.owners) >= self.bounds.epoch_count:
            return
        if not any(it.member & READ for it in state.replicas):
            seen = tuple(replace(it, member=it.member * (IN_SET | READ)) for it in state.replicas)
            after = replace(state, replicas=seen)
            yield Step("a candidate reads the document", (), after)
            return
        epoch = state.head.epoch + 1
        stale = tuple(replace(it, member=int(it.member & READ > 0)) for it in state.replicas)
        head = replace(state.head, epoch=epoch, is_released=False)
        owner = Owner(epoch, CANDIDATE, wait=NOT_BEGUN)
        after = with_candidate(State(head, state.owners, stale), owner)
        yield Step("the candidate writes epoch {} with the set that it read", (epoch,), after)


class KeepsItsEpoch(Rules):
    """A process that restarts finds its name in the document, and goes on."""

    def extra(self, state: State) -> Iterator[Step[State]]:
        owner = state.owners[-1]
        is_current = owner.epoch == state.head.epoch and owner.phase == OWNER
        has_room = len(state.owners) <= self.bounds.epoch_count
        if not is_current or owner.change or not has_room:
            return
        at = len(state.owners) - 1
        replicas = tuple(with_view(it, at, STRANGER) for it in state.replicas)
        stopped = State(state.head, state.owners, replicas).with_owner(
            at, Owner(owner.epoch, ENDED, owner.log)
        )
        after = with_candidate(stopped, Owner(owner.epoch, CANDIDATE))
        yield Step("the owner of epoch {} restarts", (owner.epoch,), after)


class BelievesInVictory(Rules):
    """A candidate whose compare was not answered reads its own epoch, and takes it for its own."""

    def extra(self, state: State) -> Iterator[Step[State]]:
        epoch = state.head.epoch
        if len(state.owners) < self.bounds.epoch_count and epoch > 1:
            after = with_candidate(state, Owner(epoch, CANDIDATE, wait=NOT_BEGUN))
            yield Step("a second process thinks that it has epoch {}", (epoch,), after)


class AppendsUnfenced(Rules):
    """Replicas store what an older epoch appends."""

    ended_may_acknowledge = True

    def accepts(self, replica: Replica, owner: Owner) -> bool:
        return replica.epoch >= owner.epoch

    def said(self, replica: Replica, at: int, owner: Owner) -> int:
        if replica.epoch > owner.epoch and owner.phase != CANDIDATE:
            return self.stored(replica, owner)
        return super().said(replica, at, owner)


class ForgetsEpochs(Rules):
    """A replica that restarts knows only the epochs of its entries."""

    ended_may_acknowledge = True

    def extra(self, state: State) -> Iterator[Step[State]]:
        for place, replica in enumerate(state.replicas):
            known = max((epoch_of(it) for it in replica.log), default=0)
            if known < replica.epoch:
                back = leave(self, replica, known, state.owners)
                details = (replica.log, known)
                yield Step("{} restarts in epoch {}", details, state.with_replica(place, back))


class FetchesUnfenced(Rules):
    """A candidate reads the log of a member that it has not fenced."""

    def may_fetch(self, replica: Replica, at: int, owner: Owner) -> bool:
        is_member = bool(replica.views[at].roles & CONFIRMED)
        return is_member and LOST < replica.epoch <= owner.epoch


class FetchesAnywhere(Rules):
    """A candidate takes the log of a replica outside the set."""

    candidate_fences_spares = True

    def may_fetch(self, replica: Replica, at: int, owner: Owner) -> bool:
        return replica.epoch == owner.epoch


class SaysStoredEarly(Rules):
    """A replica says `stored` before its sync. A restart takes the entry back."""

    ended_may_acknowledge = True

    def said(self, replica: Replica, at: int, owner: Owner) -> int:
        return max(super().said(replica, at, owner), replica.views[at].said)

    def extra(self, state: State) -> Iterator[Step[State]]:
        if state.head.loss_count:
            return
        head = replace(state.head, loss_count=1)
        for place, replica in enumerate(state.replicas):
            if len(replica.log) > 1:
                views = tuple(
                    replace(view, said=self.said(replica, at, owner)) if view.roles else view
                    for at, (view, owner) in enumerate(
                        zip(replica.views, state.owners, strict=True)
                    )
                )
                back = Replica(replica.epoch, replica.log[:-1], replica.member, views)
                after = replace(state.with_replica(place, back), head=head)
                yield Step("{} restarts without its last entry", (replica.log,), after)


class CountsEmptyDisks(Rules):
    """A replica with a new disk keeps its name, and its place in the set."""

    def extra(self, state: State) -> Iterator[Step[State]]:
        if state.head.loss_count:
            return
        head = replace(state.head, loss_count=1)
        for place, replica in enumerate(state.replicas):
            empty = replace(leave(self, replica, 0, state.owners), log=())
            after = replace(state.with_replica(place, empty), head=head)
            yield Step("{} comes back with an empty disk", (replica.log,), after)


class IgnoresThePrevious(Rules):
    """An append compares only the index with the replica's last entry."""

    def agreed(self, stored: Log, log: Log) -> int:
        return min(len(stored), len(log))


class CutsLate(Rules):
    """A late `align` cuts entries of its own epoch."""

    def extra(self, state: State) -> Iterator[Step[State]]:
        for owner in state.owners:
            for place, replica in enumerate(state.replicas):
                is_of_epoch = owner.phase == OWNER and replica.epoch == owner.epoch
                count = self.agreed(replica.log, owner.log)
                if is_of_epoch and count == len(replica.log) > owner.opening:
                    shorter = replace(replica, log=replica.log[: owner.opening])
                    after = state.with_replica(place, shorter)
                    yield Step("a late alignment cuts {}", (replica.log,), after)


BUGS: Final[tuple[PlantedBug, ...]] = (
    log_bug("R1", "a take-over compares the epoch only", ComparesTheEpoch, THREE),
    log_bug("R2", "a process that restarts keeps its epoch", KeepsItsEpoch, FIXED),
    log_bug("R3", "no answer of a take-over counts as victory", BelievesInVictory, PAIR),
    log_bug("R4", "a replica takes appends of an older epoch", AppendsUnfenced, THREE),
    log_bug("R4", "a replica forgets its epoch when it restarts", ForgetsEpochs, PAIR),
    log_bug("R5", "a log is fetched from a member without a fence", FetchesUnfenced, THREE),
    log_bug("R6", "a log is fetched from a replica outside the set", FetchesAnywhere, THREE),
    log_bug("R7", "a replica says stored before its sync", SaysStoredEarly, PAIR),
    log_bug("R8", "an empty disk keeps its place in the set", CountsEmptyDisks, PAIR),
    log_bug("R9", "an append does not compare the entry before it", IgnoresThePrevious, FIXED),
    log_bug("R10", "a late alignment cuts entries of its own epoch", CutsLate, PAIR),
)
