"""Planted bugs of acknowledging, of changes of the set, and of cuts: R11 to R17, R20, R24, R25.

Owns: the bugs. Must not import: the other chapters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace as with_bounds
from typing import Final

from msgspec.structs import replace

from replication_model.bounds import Bounds
from replication_model.document import applied
from replication_model.leases import may_read
from replication_model.logs import CUT, HOLE, Log, cut_count, has_all
from replication_model.planted.bug import PlantedBug, log_bug
from replication_model.replicas import member_count
from replication_model.rules import Rules
from replication_model.state import (
    APPLIED,
    CONFIRMED,
    NONE,
    OWNER,
    PROPOSED,
    SENT,
    STRANGER,
    Owner,
    Replica,
    State,
    with_view,
)
from replication_model.step import Step

THREE: Final = Bounds("3 replicas, 2 epochs", checks_reads=False)
FIXED: Final = Bounds("3 replicas, 3 epochs, the set is fixed", epoch_count=3, may_change_set=False)
PAIR: Final = with_bounds(
    FIXED, title="2 replicas, 3 epochs, the set is fixed", replica_count=2, member_count=2
)
GROWING: Final = Bounds("2 replicas and a spare, 2 epochs", member_count=2, checks_reads=False)
CUTTING: Final = Bounds(
    "1 replica and a spare, the log is cut",
    replica_count=2,
    member_count=1,
    member_count_max=2,
    copies_min=1,
    write_count=2,
    may_cut=True,
)
GIVEN_UP: Final = 3
"""A change that its owner takes for refused, though it may yet be applied."""
GIVEN_UP_APPLIED: Final = 4


class OpensWithoutRecord(Rules):
    """A successor serves what it has fetched. A later one may find less."""

    def acknowledged_at_start(self, log: Log) -> int:
        return len(log)

    def extra(self, state: State) -> Iterator[Step[State]]:
        known = state.head.acknowledged
        for at, owner in enumerate(state.owners):
            shown = owner.log[: owner.acknowledged]
            if may_read(self, state, at, owner) and not has_all(known, shown):
                is_lost = not has_all(shown, known)
                head = state.head if is_lost else replace(state.head, acknowledged=shown)
                violation = "an acknowledged write is lost" if is_lost else None
                after = replace(state, head=head)
                yield Step("a read shows the recovered {}", (shown,), after, violation)


class CountsAMajority(Rules):
    """A successor may read the one member that lacks the entry."""

    def are_enough(self, have: Sequence[bool]) -> bool:
        return sum(have) * 2 > len(have)


class DropsInMind(Rules):
    """An owner stops counting a member before the document says so."""

    def may_drop(self, member_count: int) -> bool:
        return False

    def extra(self, state: State) -> Iterator[Step[State]]:
        for at, owner in enumerate(state.owners):
            is_current = owner.phase == OWNER and owner.epoch == state.head.epoch
            size = member_count(at, state.replicas)
            if not is_current or owner.change or size <= self.bounds.copies_min:
                continue
            for place, replica in enumerate(state.replicas):
                if replica.views[at].roles & CONFIRMED:
                    after = state.with_replica(place, with_view(replica, at, STRANGER))
                    details = (owner.epoch, replica.log)
                    yield Step("epoch {} goes on without {}", details, after)


class GoesBelowTheMinimum(Rules):
    """A set of one is allowed."""

    def may_drop(self, member_count: int) -> bool:
        return member_count > 1


class AddsAnyLearner(Rules):
    """A learner joins before everything is copied."""

    def may_join(self, replica: Replica, owner: Owner) -> bool:
        return True


class AddsEarlyInRecovery(Rules):
    """During recovery nothing is acknowledged, so a learner needs little."""

    def may_join(self, replica: Replica, owner: Owner) -> bool:
        return self.agreed(replica.log, owner.log) >= owner.acknowledged


class CountsLearnersLate(Rules):
    """A learner counts after the answer of the compare, and not before it is sent."""

    def possible(self, at: int, owner: Owner, replicas: Sequence[Replica]) -> list[Replica]:
        return [it for it in replicas if it.views[at].roles & CONFIRMED]


class PingsLearnersLate(CountsLearnersLate):
    """The fence of a learner that is not pinged does not end the lease."""

    ended_may_read = True


class BelievesInDefeat(Rules):
    """No answer of a compare counts as refused."""

    def extra(self, state: State) -> Iterator[Step[State]]:
        for at, owner in enumerate(state.owners):
            if owner.change == APPLIED:
                after = _without_proposal(state, at).with_owner(at, replace(owner, change=NONE))
                yield Step("epoch {} takes its change for refused", (owner.epoch,), after)


def _without_proposal(state: State, at: int) -> State:
    replicas = tuple(
        with_view(it, at, replace(it.views[at], roles=it.views[at].roles & ~PROPOSED))
        for it in state.replicas
    )
    return State(state.head, state.owners, replicas)


class BelievesAnOldRead(Rules):
    """A read of the old revision counts as refused. The compare arrives after the read."""

    def extra(self, state: State) -> Iterator[Step[State]]:
        for at, owner in enumerate(state.owners):
            if owner.change == SENT:
                after = state.with_owner(at, replace(owner, change=GIVEN_UP))
                yield Step("epoch {} reads the old set, and gives up", (owner.epoch,), after)
            if owner.change == GIVEN_UP and owner.epoch == state.head.epoch:
                after = applied(state, at, GIVEN_UP_APPLIED)
                yield Step("the set of epoch {} changes late", (owner.epoch,), after)


class ReadsTheUnacknowledged(Rules):
    """A read shows an entry that a successor may not find."""

    ended_may_read = True

    def extra(self, state: State) -> Iterator[Step[State]]:
        known = state.head.acknowledged
        for at, owner in enumerate(state.owners):
            is_longer = len(owner.log) > owner.acknowledged and has_all(owner.log, known)
            if is_longer and may_read(self, state, at, owner):
                head = replace(state.head, acknowledged=owner.log)
                counted = replace(owner, acknowledged=len(owner.log))
                after = replace(state, head=head).with_owner(at, counted)
                yield Step("a read shows {}", (owner.log,), after)


class CutsBeforeTheCheckpointIsSafe(Rules):
    """The log is cut at a checkpoint that is only appended."""

    def cut_end(self, owner: Owner) -> int:
        return len(owner.log)

    def extra(self, state: State) -> Iterator[Step[State]]:
        for owner in state.owners:
            count = cut_count(owner.log)
            for place, replica in enumerate(state.replicas):
                is_behind = cut_count(replica.log) < len(replica.log) <= count
                if owner.phase == OWNER and replica.epoch == owner.epoch and is_behind:
                    cut = replace(replica, log=(HOLE,) * len(replica.log))
                    after = state.with_replica(place, cut)
                    yield Step("{} is cut, without the checkpoint", (replica.log,), after)


class LeavesAGap(Rules):
    """A learner behind the cut gets what is left of the log, without the checkpoint before it."""

    def extra(self, state: State) -> Iterator[Step[State]]:
        for owner in state.owners:
            count = cut_count(owner.log)
            for place, replica in enumerate(state.replicas):
                have = len(replica.log)
                is_behind = have < count and self.agreed(replica.log, owner.log) == have
                if replica.epoch == owner.epoch and is_behind:
                    gap = (HOLE,) * (count - have) + owner.log[count : count + 1]
                    after = state.with_replica(place, replace(replica, log=replica.log + gap))
                    yield Step("{} gets what is left of the log", (replica.log,), after)


class BeginsAgain(Rules):
    """A late `begin` drops what a learner has stored since."""

    def extra(self, state: State) -> Iterator[Step[State]]:
        for owner in state.owners:
            if owner.phase != OWNER or owner.log[0] != CUT:
                continue
            count = cut_count(owner.log) + 1
            for place, replica in enumerate(state.replicas):
                has_more = self.agreed(replica.log, owner.log) == len(replica.log) > count
                if replica.epoch == owner.epoch and has_more:
                    after = state.with_replica(place, replace(replica, log=owner.log[:count]))
                    yield Step("a late begin reaches {}", (replica.log,), after)


SPLIT: Final = with_bounds(GROWING, splits_compares=True)
PINGED: Final = with_bounds(
    GROWING,
    title="2 replicas and a spare, explicit pings",
    has_pings=True,
    write_count=0,
    checks_reads=True,
)
CUT_PAIR: Final = with_bounds(
    CUTTING, title="2 replicas, the log is cut", member_count=2, copies_min=1
)

BUGS: Final[tuple[PlantedBug, ...]] = (
    log_bug("R11", "a successor serves without an opening record", OpensWithoutRecord, FIXED),
    log_bug("R12", "a majority of the set is enough", CountsAMajority, FIXED),
    log_bug("R13", "a member is not counted before the set changes", DropsInMind, THREE),
    log_bug("R14", "a set gets smaller than copies_min", GoesBelowTheMinimum, THREE),
    log_bug("R15", "a learner joins before everything is copied", AddsAnyLearner, GROWING),
    log_bug(
        "R15",
        "a learner joins during recovery, without the whole tail",
        AddsEarlyInRecovery,
        with_bounds(GROWING, epoch_count=3),
    ),
    log_bug("R16", "a learner counts only after the answer", CountsLearnersLate, GROWING),
    log_bug("R16", "a learner is pinged only after the answer", PingsLearnersLate, PINGED),
    log_bug("R17", "no answer of a change counts as refused", BelievesInDefeat, GROWING),
    log_bug("R17", "a read of the old set counts as refused", BelievesAnOldRead, SPLIT),
    log_bug("R20", "a read shows what is not acknowledged", ReadsTheUnacknowledged, PAIR),
    log_bug(
        "R24",
        "a log is cut at a checkpoint that is not acknowledged",
        CutsBeforeTheCheckpointIsSafe,
        CUT_PAIR,
    ),
    log_bug("R25", "a learner behind the cut has a gap", LeavesAGap, CUTTING),
    log_bug("R25", "a late begin drops later entries", BeginsAgain, CUTTING),
)
