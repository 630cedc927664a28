"""Leases, pings, reads, and time.

Owns: when an owner may read, and what a tick changes. Must not import: the document, owners,
cutting.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from replication_model.replicas import distinct
from replication_model.rules import Rules
from replication_model.state import (
    NOT_BEGUN,
    OWNER,
    PONG,
    Owner,
    Replica,
    State,
    View,
    with_view,
)
from replication_model.step import Step


def may_read(rules: Rules, state: State, at: int, owner: Owner) -> bool:
    """Whether an owner may answer what is not behind an acknowledged append (R11, R19)."""
    if owner.phase != OWNER or owner.wait or owner.acknowledged < owner.opening:
        return False
    return lease_left(rules, state, at, owner) > 0


def lease_left(rules: Rules, state: State, at: int, owner: Owner) -> int:
    """Return the ticks that are left of the longest lease that the owner can have."""
    if rules.bounds.has_pings:
        return owner.lease
    ticks = rules.bounds.lease_ticks
    possible = rules.possible(at, owner, state.replicas)
    return rules.lease_of(
        [ticks if it.epoch == owner.epoch else it.views[at].lease for it in possible]
    )


def ping(rules: Rules, state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    """An owner sends a ping, a replica answers it, or the owner has all answers (R18)."""
    if not rules.bounds.has_pings or owner.phase != OWNER:
        return
    possible = rules.possible(at, owner, state.replicas)
    is_heard = owner.epoch == state.head.epoch or any(it.epoch == owner.epoch for it in possible)
    ticks = rules.bounds.lease_ticks
    if is_heard and owner.ping < ticks:
        sent = _without_pongs(state, at).with_owner(at, replace(owner, ping=ticks))
        yield Step("epoch {} sends a ping", (owner.epoch,), sent)
    if owner.ping == NOT_BEGUN:
        return
    yield from _pong(rules, state, at, owner)
    lease = rules.lease_by_ping(owner)
    have = [it.views[at].roles & PONG for it in possible]
    if lease > owner.lease and rules.lease_of(have):
        leased = replace(owner, ping=NOT_BEGUN, lease=lease)
        after = _without_pongs(state, at).with_owner(at, leased)
        yield Step("epoch {} has a lease", (owner.epoch,), after)


def _pong(rules: Rules, state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    for place, replica in distinct(state.replicas):
        view = replica.views[at]
        if replica.epoch == owner.epoch and view.roles and not view.roles & PONG:
            answered = View(view.roles | PONG, view.said, rules.lease_at_pong(view))
            after = state.with_replica(place, with_view(replica, at, answered))
            yield Step("{} answers the ping of epoch {}", (replica.log, owner.epoch), after)


def _without_pongs(state: State, at: int) -> State:
    replicas = tuple(_without_pong(it, at) for it in state.replicas)
    return State(state.head, state.owners, replicas)


def _without_pong(replica: Replica, at: int) -> Replica:
    view = replica.views[at]
    if not view.roles & PONG:
        return replica
    return with_view(replica, at, View(view.roles & ~PONG, view.said, view.lease))


def tick(state: State) -> Iterator[Step[State]]:
    """Time passes for everything."""
    after = ticked(state)
    if after != state:
        yield Step("a tick passes", (), after)


def ticked(state: State, suspended: int = -1) -> State:
    """Return the state a tick later. The clock of the suspended owner stands still."""
    owners = tuple(
        _ticked_owner(it, at != suspended) if it.wait > 0 or it.ping > 0 or it.lease else it
        for at, it in enumerate(state.owners)
    )
    replicas = tuple(
        it if not any(view.lease for view in it.views) else _ticked_replica(it, suspended)
        for it in state.replicas
    )
    return State(state.head, owners, replicas)


def _ticked_owner(owner: Owner, is_counting: bool) -> Owner:
    wait = owner.wait - (owner.wait > 0)
    if not is_counting:
        return replace(owner, wait=wait)
    ping_left = owner.ping - (owner.ping > 0)
    return replace(owner, wait=wait, ping=ping_left, lease=owner.lease - (owner.lease > 0))


def _ticked_replica(replica: Replica, suspended: int) -> Replica:
    views = tuple(
        View(it.roles, it.said, it.lease - 1) if it.lease and at != suspended else it
        for at, it in enumerate(replica.views)
    )
    return replace(replica, views=views)
