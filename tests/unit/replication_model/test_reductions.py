"""What makes the number of states smaller loses nothing: a search without it meets the same."""

from dataclasses import replace as with_bounds
from typing import Final

import pytest
from msgspec.structs import replace

from replication_model.bounds import Bounds
from replication_model.explorer import explore
from replication_model.log_model import LogModel
from replication_model.replicas import arrive
from replication_model.state import ENDED, LOST, Replica, State, is_strange

PAIR: Final = Bounds("2 replicas", replica_count=2, member_count=2, copies_min=1)
LOSING: Final = with_bounds(PAIR, loss_count=1, write_count=0)
PINGED: Final = with_bounds(PAIR, has_pings=True, may_change_set=False, write_count=0)
MOVED: Final = with_bounds(PAIR, may_release=True)
LONG: Final = pytest.mark.slow("looks at many states")
MOVING: Final = pytest.param(MOVED, id="moves", marks=LONG)


class Unsettled(LogModel):
    """Keeps what can have no effect any more."""

    def settle(self, state: State) -> State:
        return state


class Unsorted(LogModel):
    """Tells replicas apart that differ in their names only."""

    def pack(self, state: State) -> bytes:
        numbers_of = self._parts.numbers_of
        parts = ((state.head,), state.replicas, state.owners)
        numbers = [number for it in parts for number in numbers_of(it)]
        return self._forms[len(state.owners)].pack(*numbers)


def reached(model: LogModel) -> list[State]:
    """Return every state."""
    first = model.pack(model.first())
    seen, waiting = {first: None}, [first]
    while waiting:
        for step in model.steps(model.unpack(waiting.pop())):
            assert step.violation is None
            assert model.violation(step.state) is None
            packed = model.pack(step.state)
            if packed not in seen:
                seen[packed] = None
                waiting.append(packed)
    return [model.unpack(it) for it in seen]


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(PAIR, id="sets"),
        pytest.param(LOSING, id="disks"),
        pytest.param(PINGED, id="pings"),
        MOVING,
    ],
)
def test_settled_states_are_those_that_a_search_without_settling_meets(bounds: Bounds) -> None:
    """Each unsettled state is like a settled one that is met, too, and each settled one is met."""
    model = LogModel(bounds)
    settled = {model.pack(it) for it in reached(model)}
    unsettled = reached(Unsettled(bounds))
    assert {model.pack(model.settle(it)) for it in unsettled} == settled
    assert len(unsettled) > len(settled)


@pytest.mark.parametrize(
    "bounds", [pytest.param(PAIR, id="sets"), pytest.param(PINGED, id="pings"), MOVING]
)
def test_steps_that_are_not_settled_leave_a_settled_state_settled(bounds: Bounds) -> None:
    model = LogModel(bounds)
    for state in reached(model):
        for step in model.steps(state):
            assert model.pack(model.settle(step.state)) == model.pack(step.state), step.text


@pytest.mark.parametrize(
    "bounds", [pytest.param(PAIR, id="sets"), pytest.param(LOSING, id="disks"), MOVING]
)
def test_the_names_of_replicas_make_no_difference(bounds: Bounds) -> None:
    model = LogModel(bounds)
    alike = {model.pack(it) for it in reached(model)}
    named = reached(Unsorted(bounds))
    assert {model.pack(it) for it in named} == alike
    assert len(named) > len(alike)


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(
            "1 replica and a spare",
            replica_count=2,
            member_count=1,
            member_count_max=2,
            copies_min=1,
        ),
        pytest.param(Bounds("2 replicas and a spare", member_count=2), marks=LONG),
        pytest.param(Bounds("a lost disk", member_count=2, loss_count=1), marks=LONG),
        pytest.param(Bounds("3 replicas"), marks=LONG),
    ],
    ids=lambda it: it.title,
)
def test_members_are_the_same_with_empty_spares(bounds: Bounds) -> None:
    """What a replica outside every set has stored changes nothing for the members."""
    whole = LogModel(bounds)
    reduced = LogModel(with_bounds(bounds, keeps_spares=False))
    kept, emptied = reached(whole), reached(reduced)
    assert {whole.pack(members_of(it)) for it in kept} == {
        whole.pack(members_of(it)) for it in emptied
    }
    assert len(emptied) < len(kept)


def members_of(state: State) -> State:
    """Show replicas outside every set as empty, and owners that have ended without what only such
    replicas could store."""
    replicas = tuple(Replica(0, (), 0, it.views) if is_spare(it) else it for it in state.replicas)
    epochs = {it.epoch for it in replicas}
    owners = tuple(
        replace(it, log=()) if it.phase == ENDED and it.epoch not in epochs else it
        for it in state.owners
    )
    return State(state.head, owners, replicas)


def is_spare(replica: Replica) -> bool:
    return not replica.member and replica.epoch != LOST and is_strange(replica)


def test_an_ended_owner_may_still_append() -> None:
    """Its messages are under way: a search that forgot them would miss late appends."""
    model = LogModel(PAIR)
    late = [
        step
        for state in reached(model)
        for owner in state.owners
        if owner.phase == ENDED and owner.log
        for step in arrive(model.rules, state, owner)
    ]
    assert late
    assert explore(model).is_complete
