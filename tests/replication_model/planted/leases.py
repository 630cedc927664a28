"""Planted bugs of leases, waits and releases: R18, R21, R22, R31.

Owns: the bugs. Must not import: the other chapters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace as with_bounds
from typing import Final

from msgspec.structs import replace

from replication_model.bounds import Bounds
from replication_model.leases import ticked
from replication_model.planted.bug import PlantedBug, log_bug
from replication_model.rules import Rules
from replication_model.state import (
    NOT_BEGUN,
    OWNER,
    RELEASED,
    Owner,
    Replica,
    State,
    View,
)
from replication_model.step import Step

FIXED: Final = Bounds("3 replicas, 3 epochs, the set is fixed", epoch_count=3, may_change_set=False)
PAIR: Final = with_bounds(
    FIXED, title="2 replicas, 3 epochs, the set is fixed", replica_count=2, member_count=2
)
GROWING: Final = Bounds("2 replicas and a spare, 2 epochs", member_count=2)
PINGED: Final = Bounds(
    "2 replicas, explicit pings, a lease of 2 ticks",
    replica_count=2,
    member_count=2,
    may_change_set=False,
    lease_ticks=2,
    wait_ticks=2,
    has_pings=True,
)
MOVED: Final = Bounds(
    "2 replicas, planned moves",
    replica_count=2,
    member_count=2,
    may_change_set=False,
    may_release=True,
)


class NeedsNoLease(Rules):
    ended_may_read = True

    def lease_of(self, ticks: Sequence[int]) -> int:
        return 1


class NeedsAMajority(Rules):
    """The replica that a successor has fenced is not asked."""

    ended_may_read = True

    def lease_of(self, ticks: Sequence[int]) -> int:
        return sorted(ticks, reverse=True)[len(ticks) // 2] if ticks else 0


class CountsFromTheAnswer(Rules):
    """A late answer gives a whole lease."""

    def lease_by_ping(self, owner: Owner) -> int:
        return self.bounds.lease_ticks if owner.ping != NOT_BEGUN else 0


class DoesNotWait(Rules):
    def first_wait(self, is_released: bool) -> int:
        return 0


class WaitsFromTheSending(Rules):
    """The fence may arrive after the wait."""

    def first_wait(self, is_released: bool) -> int:
        return self.bounds.wait_ticks


class WaitsFromASpare(Rules):
    """The fence of a replica outside the set begins the wait."""

    candidate_fences_spares = True

    def wait_by_fence(self, replica: Replica, at: int, owners: Sequence[Owner]) -> int:
        return self.bounds.wait_ticks


class WaitsForTheRest(Rules):
    """The wait is shortened by the time for which the fenced member has answered nothing. A learner
    that was just proposed has answered nothing at all."""

    def lease_at_pong(self, view: View) -> int:
        return self.bounds.lease_ticks

    def lease_at_leaving(self, view: View) -> int:
        return view.lease

    def wait_by_fence(self, replica: Replica, at: int, owners: Sequence[Owner]) -> int:
        if not replica.views[at].roles:
            return NOT_BEGUN
        pairs = zip(owners, replica.views, strict=True)
        return max(view.lease for it, view in pairs if it.epoch < owners[at].epoch)


class ForgetsItsAnswers(WaitsForTheRest):
    """A replica that restarts says that it has answered nothing."""

    def extra(self, state: State) -> Iterator[Step[State]]:
        for place, replica in enumerate(state.replicas):
            if any(it.lease for it in replica.views):
                views = tuple(replace(it, lease=0) for it in replica.views)
                after = state.with_replica(place, replace(replica, views=views))
                yield Step("{} restarts, and forgets its answers", (replica.log,), after)


class StopsItsClock(Rules):
    """The clock of a suspended owner stands still."""

    def extra(self, state: State) -> Iterator[Step[State]]:
        for at, owner in enumerate(state.owners):
            after = ticked(state, at)
            if after != state:
                yield Step("a tick passes while epoch {} is suspended", (owner.epoch,), after)


class ConfirmsByAnOldPing(Rules):
    """A read without a lease takes the answer of a ping that was sent before the read."""

    def lease_at_leaving(self, view: View) -> int:
        return self.bounds.lease_ticks


class ServesAgain(Rules):
    """An owner that has released the log serves again."""

    ended_may_read = True

    def extra(self, state: State) -> Iterator[Step[State]]:
        for at, owner in enumerate(state.owners):
            if owner.phase == RELEASED:
                after = state.with_owner(at, replace(owner, phase=OWNER))
                yield Step("epoch {} serves again", (owner.epoch,), after)


CONFIRMED_READS: Final = with_bounds(
    PAIR, title="2 replicas, reads without a lease", confirms_reads=True
)
LEARNER: Final = with_bounds(
    GROWING, title="2 replicas and a spare, explicit pings", has_pings=True, write_count=0
)

BUGS: Final[tuple[PlantedBug, ...]] = (
    log_bug("R18", "a read needs no lease", NeedsNoLease, PAIR),
    log_bug("R18", "a majority of the set gives a lease", NeedsAMajority, FIXED),
    log_bug("R18", "a lease is counted from the answer", CountsFromTheAnswer, PINGED),
    log_bug("R21", "a successor does not wait", DoesNotWait, PAIR),
    log_bug("R21", "a successor does not wait, with pings", DoesNotWait, PINGED),
    log_bug("R21", "the wait is counted from the sending", WaitsFromTheSending, PAIR),
    log_bug("R21", "the wait is counted from the sending, with pings", WaitsFromTheSending, PINGED),
    log_bug("R21", "the fence of a spare begins the wait", WaitsFromASpare, GROWING),
    log_bug("R21", "the wait is shortened by a learner's silence", WaitsForTheRest, LEARNER),
    log_bug("R21", "the wait is shortened by what a restart forgot", ForgetsItsAnswers, PINGED),
    log_bug("R22", "the clock stops while an owner is suspended", StopsItsClock, PINGED),
    log_bug("R22", "the wait is shorter than the lease", Rules, with_bounds(PINGED, wait_ticks=1)),
    log_bug("R22", "a ping from before the read confirms it", ConfirmsByAnOldPing, CONFIRMED_READS),
    log_bug("R31", "an owner that has released serves again", ServesAgain, MOVED),
)
