"""What can have no effect any more is dropped from a state, so that fewer states differ.

Owns: the reasons why something has no effect. A search without this module must meet the same
promises: see tests/unit/replication_model. Must not import: parts.
"""

from replication_model.rules import Rules
from replication_model.state import (
    APPLIED,
    CANDIDATE,
    CONFIRMED,
    ENDED,
    LOST,
    OWNER,
    PONG,
    PROPOSED,
    RELEASED,
    STRANGER,
    Owner,
    Replica,
    State,
    View,
    is_strange,
)


def settled(rules: Rules, state: State) -> State:
    """Return the state without what can have no effect."""
    owners, replicas = state.owners, state.replicas
    for at, owner in enumerate(owners):
        if owner.phase == ENDED:
            continue
        if not rules.ended_may_acknowledge:
            replicas = _without_old_answers(at, owner, replicas)
        if owner.epoch == state.head.epoch and owner.phase != RELEASED:
            continue
        acknowledges = rules.ended_may_acknowledge or _may_acknowledge(at, owner, replicas)
        reads = rules.ended_may_read or _may_read(rules, at, owner, replicas, acknowledges)
        if acknowledges or reads:
            if not (acknowledges and reads):
                replicas = _with_only(at, replicas, acknowledges, reads)
        else:
            owners = (*owners[:at], Owner(owner.epoch, ENDED, owner.log), *owners[at + 1 :])
            replicas = tuple([_forget(it, at) for it in replicas])
    if not rules.bounds.keeps_spares:
        replicas = _with_empty_spares(replicas)
    for at, owner in enumerate(owners):
        if owner.phase == ENDED and owner.log and not _may_append(owner, replicas):
            owners = (*owners[:at], Owner(owner.epoch, ENDED), *owners[at + 1 :])
    return State(state.head, owners, replicas)


def _without_old_answers(
    at: int, owner: Owner, replicas: tuple[Replica, ...]
) -> tuple[Replica, ...]:
    """A `stored` says nothing new of what is acknowledged. One below the opening record of a
    replica that has left the epoch will never be enough."""
    enough = max(owner.acknowledged + 1, owner.opening)
    for place, replica in enumerate(replicas):
        view = replica.views[at]
        if 0 < view.said < enough:
            changed = _with(replica, at, View(view.roles, 0, view.lease))
            replicas = (*replicas[:place], changed, *replicas[place + 1 :])
    return replicas


def _may_acknowledge(at: int, owner: Owner, replicas: tuple[Replica, ...]) -> bool:
    """Whether an owner that lost the document may still acknowledge: not if a replica that it has
    to count left its epoch before it stored enough."""
    mask = PROPOSED if owner.change == APPLIED else CONFIRMED
    enough = max(owner.acknowledged + 1, owner.opening)
    for replica in replicas:
        view = replica.views[at]
        has_too_little = owner.phase == CANDIDATE or view.said < enough
        if view.roles & mask and has_too_little and _is_ahead(replica, owner):
            return False
    return True


def _may_read(
    rules: Rules, at: int, owner: Owner, replicas: tuple[Replica, ...], acknowledges: bool
) -> bool:
    """Whether an owner that lost the document may still read."""
    if owner.phase != OWNER or (owner.acknowledged < owner.opening and not acknowledges):
        return False
    has_pings = rules.bounds.has_pings
    if has_pings and (owner.lease or rules.lease_by_ping(owner) <= 0):
        return owner.lease > 0
    mask = PROPOSED if owner.change == APPLIED else CONFIRMED
    for replica in replicas:
        view = replica.views[at]
        may_help = view.roles & PONG if has_pings else view.lease
        if view.roles & mask and not may_help and _is_ahead(replica, owner):
            return False
    return True


def _is_ahead(replica: Replica, owner: Owner) -> bool:
    return replica.epoch > owner.epoch or replica.epoch == LOST


def _with_only(
    at: int, replicas: tuple[Replica, ...], keeps_said: bool, keeps_lease: bool
) -> tuple[Replica, ...]:
    for place, replica in enumerate(replicas):
        view = replica.views[at]
        if view.said or view.lease:
            kept = View(view.roles, view.said * keeps_said, view.lease * keeps_lease)
            changed = _with(replica, at, kept)
            replicas = (*replicas[:place], changed, *replicas[place + 1 :])
    return replicas


def _with(replica: Replica, at: int, view: View) -> Replica:
    views = (*replica.views[:at], view, *replica.views[at + 1 :])
    return Replica(replica.epoch, replica.log, replica.member, views)


def _forget(replica: Replica, at: int) -> Replica:
    return replica if replica.views[at] == STRANGER else _with(replica, at, STRANGER)


def _with_empty_spares(replicas: tuple[Replica, ...]) -> tuple[Replica, ...]:
    for place, replica in enumerate(replicas):
        is_free = not replica.member and replica.epoch > LOST and (replica.epoch or replica.log)
        if is_free and is_strange(replica):
            empty = Replica(0, (), 0, replica.views)
            replicas = (*replicas[:place], empty, *replicas[place + 1 :])
    return replicas


def _may_append(owner: Owner, replicas: tuple[Replica, ...]) -> bool:
    """Whether a replica may still take what an ended owner has sent."""
    return any(it.epoch == owner.epoch for it in replicas)
