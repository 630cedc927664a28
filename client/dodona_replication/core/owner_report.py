"""What the owner of a log knows of each copy of it, for people.

Owns: how far a copy is behind, and since when. The numbers come from what an owner keeps anyway, so
an entry costs nothing more.

Must not import: any shell.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dodona_replication.core.copy import Copy
from dodona_replication.core.owner import Owner
from dodona_wire.cores.copies import LEARNER, MEMBER, CopiesReport, ReplicaState
from dodona_wire.types import Now


def report_of(owner: Owner, places: Sequence[ReplicaState], now: Now) -> CopiesReport:
    """Return the report of an owner. `places` says who is at each address, and whether it answers.
    The shell knows the other fields."""
    document = owner.document
    return CopiesReport(
        log=owner.identity.log,
        owner=owner.identity.owner,
        epoch=owner.epoch,
        is_serving=owner.is_open(now),
        copies_min=document.copies_min,
        replicas=_replicas(owner, places, now),
        waiting_entries=len(owner.waiting),
        joined_count=owner.ownership.joined_count,
        dropped_count=owner.ownership.dropped_count,
    )


def _replicas(owner: Owner, places: Sequence[ReplicaState], now: Now) -> tuple[ReplicaState, ...]:
    """Return all replicas, those without an address last."""
    states = {it: _state_of(owner, it, copy, now) for it, copy in sorted(owner.copies.items())}
    found = [_at(place, states.pop(place.replica, None)) for place in places]
    return *found, *[replace(it, address=it.replica) for it in states.values()]


def _at(place: ReplicaState, state: ReplicaState | None) -> ReplicaState:
    """Return the state of the replica at an address. A learner that does not answer is given up and
    asked anew each time, so the connection knows the longer silence."""
    if state is None:
        return place
    silent_us = max(state.silent_us, place.silent_us)
    return replace(state, address=place.address, silent_us=silent_us)


def _state_of(owner: Owner, replica: str, copy: Copy, now: Now) -> ReplicaState:
    waits = [since_us for index, since_us in owner.waiting if index > copy.stored_index]
    return ReplicaState(
        role=MEMBER if replica in owner.ownership.members else LEARNER,
        replica=replica,
        lag_entries=owner.last_index - max(copy.stored_index, owner.first_index - 1),
        lag_us=now.instant_us - waits[0] if waits else 0,
        silent_us=now.instant_us - copy.heard_us,
    )
