"""Replicas: fences, appends that arrive, alignment, lost disks.

Owns: what a replica keeps when it leaves an epoch. Must not import: the other parts.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from replication_model.logs import CUT, cut_count
from replication_model.rules import Rules
from replication_model.state import (
    CANDIDATE,
    CONFIRMED,
    LOST,
    NOT_BEGUN,
    OWNER,
    PROPOSED,
    Owner,
    Replica,
    State,
    View,
    is_strange,
)
from replication_model.step import Step


def distinct(replicas: tuple[Replica, ...]) -> list[tuple[int, Replica]]:
    """Return one of each kind with its place: a step with another one leads to the same state. In
    an unpacked state, equal replicas are neighbours, and one object."""
    return [
        (at, replica)
        for at, replica in enumerate(replicas)
        if not at or replica is not replicas[at - 1]
    ]


def leave(rules: Rules, replica: Replica, epoch: int, owners: tuple[Owner, ...]) -> Replica:
    """Move a replica to another epoch. What it has said to owners of its old epoch may still
    arrive."""
    views = tuple(
        View(view.roles, rules.said(replica, at, owner), rules.lease_at_leaving(view))
        if owner.epoch == replica.epoch and view.roles & (CONFIRMED | PROPOSED)
        else view
        for at, (owner, view) in enumerate(zip(owners, replica.views, strict=True))
    )
    return Replica(epoch, replica.log, replica.member, views)


def fence(rules: Rules, state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    """A replica of an older epoch answers `fence`: the epoch is on its disk (R4)."""
    for place, replica in distinct(state.replicas):
        if not LOST < replica.epoch < owner.epoch:
            continue
        if replica.views[at].roles or _fences_others(rules, state, at, owner, replica):
            fenced = leave(rules, replica, owner.epoch, state.owners)
            after = state.with_replica(place, fenced)
            if owner.wait == NOT_BEGUN:
                wait = rules.wait_by_fence(replica, at, state.owners)
                after = after.with_owner(at, replace(owner, wait=wait))
            yield Step("epoch {} fences {}", (owner.epoch, replica.log), after)


def _fences_others(rules: Rules, state: State, at: int, owner: Owner, replica: Replica) -> bool:
    """Whether this replica may become a learner of the owner."""
    if owner.phase == CANDIDATE:
        return rules.candidate_fences_spares
    bounds = rules.bounds
    is_spare = bounds.keeps_spares or not is_strange(replica)
    return is_spare and may_grow(rules, state, at, owner)


def may_grow(rules: Rules, state: State, at: int, owner: Owner) -> bool:
    """Whether the owner may add a member, by what it knows."""
    if owner.phase != OWNER or owner.change or owner.epoch != state.head.epoch:
        return False
    return rules.bounds.may_change_set and (
        member_count(at, state.replicas) < rules.bounds.member_count_max
    )


def member_count(at: int, replicas: tuple[Replica, ...]) -> int:
    return sum(1 for it in replicas if it.views[at].roles & CONFIRMED)


def arrive(rules: Rules, state: State, owner: Owner) -> Iterator[Step[State]]:
    """The next entry of an owner's log, or its `align` or `begin`, arrives at a replica."""
    log = owner.log
    for place, replica in distinct(state.replicas):
        if not rules.accepts(replica, owner):
            continue
        count = rules.agreed(replica.log, log)
        if count == len(log) == len(replica.log):
            continue
        is_newer = replica.epoch > owner.epoch
        if count < len(replica.log):
            begins = count == 0 and log[0] == CUT
            action = "epoch {} begins the log {} anew" if begins else "epoch {} aligns {}"
            stored = log[: cut_count(log)] if begins else replica.log[:count]
        elif log[count] == CUT:
            action, stored = "epoch {} begins the log {} anew", log[: cut_count(log)]
        else:
            action, stored = "epoch {}: the next entry reaches {}", (*replica.log, log[count])
        if is_newer and count < len(replica.log):
            continue
        details = (owner.epoch, replica.log)
        changed = Replica(replica.epoch, stored, replica.member, replica.views)
        yield Step(action, details, state.with_replica(place, changed))


def lose_disk(rules: Rules, state: State) -> Iterator[Step[State]]:
    """A replica whose disk is lost takes no further step."""
    head = state.head
    if head.loss_count >= rules.bounds.loss_count:
        return
    for place, replica in distinct(state.replicas):
        is_used = replica.member or replica.log or any(it.roles for it in replica.views)
        if replica.epoch != LOST and is_used:
            gone = replace(leave(rules, replica, LOST, state.owners), log=())
            lost = state.with_replica(place, gone)
            after = replace(lost, head=replace(head, loss_count=head.loss_count + 1))
            yield Step("the disk with {} is lost", (replica.log,), after)
