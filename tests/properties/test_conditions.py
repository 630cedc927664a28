"""Conditions against a dict: each commit is accepted, or refused with what the row really has."""

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.types import CellId, Timestamp
from dodona_wire.messages.base import Failure
from dodona_wire.messages.conditions import RowCondition, TabletConditions
from dodona_wire.messages.data import CommitOne, Committed, ConditionalCommit
from suite.levels import examples
from unit.tablets.cells import ATOMIC, Bench, changes, delete, key, put, update

A, B = 1, 2
VALUES = (None, 1, 2)
TEXTS = (None, "x")


class State(NamedTuple):
    """What a row is."""

    a: int | None
    b: str | None
    version: Timestamp


class Step(NamedTuple):
    """One commit under a condition, or something that moves rows between memory and disk."""

    what: str
    row: int
    condition: str
    a: int | None
    b: str | None
    wanted_a: int | None
    wanted_b: str | None
    is_version_right: bool
    is_blind: bool


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["put", "update", "delete", "nothing", "flush", "restart"]),
        st.integers(1, 2),
        st.sampled_from(["absent", "version", "a", "b", "a and b", "all"]),
        st.sampled_from(VALUES),
        st.sampled_from(TEXTS),
        st.sampled_from(VALUES),
        st.sampled_from(TEXTS),
        st.booleans(),
        st.booleans(),
    ),
    max_size=25,
)


def condition_of(step: Step, state: State | None) -> RowCondition:
    row = key(step.row)
    version = Timestamp(5)
    if step.is_version_right and state is not None:
        version = state.version
    masks = {"a": A, "b": B, "a and b": A | B, "all": A | B}
    mask = masks.get(step.condition, 0)
    values = [it for bit, it in ((A, step.wanted_a), (B, step.wanted_b)) if mask & bit]
    has_version = step.condition in ("version", "all")
    return RowCondition(
        row,
        step.condition == "absent",
        version if has_version else Timestamp(0),
        mask,
        tuple(values),
    )


def expected_failure(step: Step, state: State | None, wanted: RowCondition) -> Any:
    """The condition that fails, and what is found; None if all hold."""
    if wanted.is_absent:
        return None if state is None else ("if_absent", state.version)
    if wanted.version and (state is None or state.version != wanted.version):
        return "if_version", None if state is None else state.version
    if not wanted.column_mask:
        return None
    if state is None:
        return "expect", None
    names = [name for bit, name in ((A, "a"), (B, "b")) if wanted.column_mask & bit]  # type: ignore[operator]
    pairs = zip(names, wanted.values, strict=True)
    differing = {name: getattr(state, name) for name, it in pairs if getattr(state, name) != it}
    return ("expect", differing) if differing else None


def write_of(step: Step) -> list[Any]:
    match step.what:
        case "put":
            return [put(step.row, step.a, step.b)]
        case "update":
            return [update(step.row, a=step.a)]
        case "delete":
            return [delete(step.row)]
    return []


def after(step: Step, state: State | None, at: Timestamp) -> State | None:
    match step.what:
        case "put":
            return State(step.a, step.b, at)
        case "update":
            return State(step.a, None if state is None else state.b, at)
        case "delete":
            return None
    return state


def flush(bench: Bench) -> None:
    cell = bench.nodes[CellId(0)]
    cell._flushing.rotate(cell.cell.tablets[ATOMIC])
    bench.pass_time(1)
    bench.answer_oracle()


@given(STEPS)
@settings(max_examples=examples(150), deadline=None)
def test_a_commit_is_refused_exactly_if_its_condition_does_not_hold(steps: list[Step]) -> None:
    bench = Bench()
    rows: dict[int, State | None] = {}
    for step in steps:
        if step.what == "flush":
            flush(bench)
            continue
        if step.what == "restart":
            bench.start(CellId(0))
            bench.answer_oracle()
            continue
        state = rows.get(step.row)
        wanted = condition_of(step, state)
        body = CommitOne(bench.begin(), (changes(*write_of(step)),), step.is_blind)
        request = ConditionalCommit(body, (TabletConditions(ATOMIC, (wanted,)),))
        answers = []
        for _ in range(2):  # a repeated request gets the first answer
            route = bench.ask(request)
            bench.answer_oracle()
            answers.append(bench.answer(route))
        first, again = answers
        assert again == first
        failure = expected_failure(step, state, wanted)
        if failure is None:
            assert isinstance(first, Committed), first
            rows[step.row] = after(step, state, first.timestamp)
        else:
            assert isinstance(first, Failure), first
            assert first.kind == "prerequisite_failed"
            found = first.attributes
            assert (found["condition"], found["found"]) == failure
