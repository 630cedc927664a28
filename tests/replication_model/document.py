"""The document and its coordinator: take-overs, changes of the set, releases.

Owns: compares on the document. A compare is applied at one instant. Its answer comes later, or
never, and until then the owner counts both sets. Must not import: owners, leases, cutting.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from replication_model.logs import CUT
from replication_model.replicas import distinct, leave, may_grow, member_count
from replication_model.rules import Rules
from replication_model.state import (
    APPLIED,
    CANDIDATE,
    CONFIRMED,
    IN_SET,
    LOST,
    NONE,
    NOT_BEGUN,
    OWNER,
    PONG,
    PROPOSED,
    READ,
    RELEASED,
    SENT,
    STRANGER,
    Head,
    Owner,
    Replica,
    State,
    View,
    with_view,
)
from replication_model.step import Step

MEMBER = View(CONFIRMED)


def take_over(rules: Rules, state: State) -> Iterator[Step[State]]:
    """A process compares the document, and has the next epoch and the same set (R1, R2)."""
    head = state.head
    if rules.takes_over and len(state.owners) < rules.bounds.epoch_count:
        epoch = head.epoch + 1
        owner = Owner(epoch, CANDIDATE, wait=rules.first_wait(head.is_released))
        after = replace(state, head=replace(head, epoch=epoch, is_released=False))
        yield Step("a process takes over: epoch {}", (epoch,), with_candidate(after, owner))


def with_candidate(state: State, owner: Owner, mask: int = IN_SET) -> State:
    """Add an owner that knows the document's set."""
    replicas = tuple(
        replace(it, views=(*it.views, MEMBER if it.member & mask else STRANGER))
        for it in state.replicas
    )
    return State(state.head, (*state.owners, owner), replicas)


def change_set(rules: Rules, state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    """An owner sends a compare that drops a member, or adds a learner (R13, R15)."""
    if owner.phase != OWNER or owner.change or owner.epoch != state.head.epoch:
        return
    if not rules.bounds.may_change_set:
        return
    size = member_count(at, state.replicas)
    for place, replica in distinct(state.replicas):
        if replica.views[at].roles & CONFIRMED:
            if rules.may_drop(size):
                yield from _drop(rules, state, at, owner, place)
        elif may_grow(rules, state, at, owner):
            yield from _add(rules, state, at, owner, place)


def _drop(rules: Rules, state: State, at: int, owner: Owner, place: int) -> Iterator[Step[State]]:
    members = {index for index, it in enumerate(state.replicas) if it.views[at].roles & CONFIRMED}
    details = (owner.epoch, state.replicas[place].log)
    after = propose(rules, state, at, owner, members - {place})
    yield Step("epoch {} drops {} from the set", details, after)


def _add(rules: Rules, state: State, at: int, owner: Owner, place: int) -> Iterator[Step[State]]:
    learner = state.replicas[place]
    if not rules.bounds.keeps_spares:
        if not LOST < learner.epoch <= owner.epoch or learner.member:
            return
        learner = _copied(rules, state, owner, learner)
    elif learner.epoch != owner.epoch or not rules.may_join(learner, owner):
        return
    members = {index for index, it in enumerate(state.replicas) if it.views[at].roles & CONFIRMED}
    grown = state.with_replica(place, learner)
    after = propose(rules, grown, at, owner, members | {place})
    yield Step("epoch {} adds {} to the set", (owner.epoch, learner.log), after)


def _copied(rules: Rules, state: State, owner: Owner, spare: Replica) -> Replica:
    """Return a spare that has learned just enough (R15)."""
    if spare.epoch != owner.epoch:
        spare = leave(rules, spare, owner.epoch, state.owners)
    return replace(spare, log=owner.log[: max(owner.acknowledged, owner.opening)])


def propose(rules: Rules, state: State, at: int, owner: Owner, members: set[int]) -> State:
    """Send a compare that names these members. The owner counts them from now on (R16)."""
    replicas = tuple(
        with_view(it, at, replace(it.views[at], roles=it.views[at].roles | PROPOSED))
        if index in members
        else it
        for index, it in enumerate(state.replicas)
    )
    sent = State(state.head, state.owners, replicas).with_owner(at, replace(owner, change=SENT))
    return sent if rules.bounds.splits_compares else applied(sent, at)


def applied(state: State, at: int, change: int = APPLIED) -> State:
    """Apply the compare that this owner has sent."""
    replicas = tuple(
        replace(it, member=it.member & READ | bool(it.views[at].roles & PROPOSED))
        for it in state.replicas
    )
    owner = replace(state.owners[at], change=change)
    return State(state.head, state.owners, replicas).with_owner(at, owner)


def apply_change(state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    """Apply a compare that was sent earlier, if the revision is still the one it names."""
    if owner.change == SENT and owner.epoch == state.head.epoch:
        yield Step("the set of epoch {} changes", (owner.epoch,), applied(state, at))


def learn_change(state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    """The answer of the compare arrives, or a read shows a higher revision (R17)."""
    if owner.change == APPLIED:
        replicas = tuple(with_view(it, at, _settled(it.views[at])) for it in state.replicas)
        after = State(state.head, state.owners, replicas)
        known = after.with_owner(at, replace(owner, change=NONE))
        yield Step("epoch {} learns that its set has changed", (owner.epoch,), known)


def _settled(view: View) -> View:
    if view.roles & PROPOSED:
        return View(CONFIRMED | view.roles & PONG, view.said, view.lease)
    return STRANGER


def release(rules: Rules, state: State, at: int, owner: Owner) -> Iterator[Step[State]]:
    """An owner stops serving, and says so in the document (R31)."""
    head = state.head
    if not rules.bounds.may_release or owner.phase != OWNER or owner.change:
        return
    is_serving = owner.wait == 0 and owner.acknowledged >= owner.opening
    if is_serving and owner.epoch == head.epoch and not head.is_released:
        stopped = replace(owner, phase=RELEASED, ping=NOT_BEGUN, lease=0)
        after = replace(state, head=replace(head, is_released=True)).with_owner(at, stopped)
        yield Step("epoch {} releases the log", (owner.epoch,), after)


def first_state(rules: Rules, log: tuple[int, ...]) -> State:
    """Return a cluster whose first owner serves, with an acknowledged opening record."""
    assert CUT not in log
    bounds = rules.bounds
    count = len(log)
    member = Replica(1, log, IN_SET, (MEMBER,))
    spare = Replica(0, (), 0, (STRANGER,))
    spares = (spare,) * (bounds.replica_count - bounds.member_count)
    owner = Owner(1, OWNER, log, count, count)
    return State(Head(1, False, log, 0, 0), (owner,), (member,) * bounds.member_count + spares)
