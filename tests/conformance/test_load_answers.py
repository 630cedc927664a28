"""Bulk loads whose answers are lost, or whose requests are, at every step of their way."""

from collections.abc import Sequence
from typing import Literal

import pytest
from msgspec.structs import replace

from conformance.backends import Backend, Simulated
from conformance.bulk import HALVES, record_of, rows, values
from conformance.selections import UNDER_VIRTUAL_TIME
from conformance.stepping import Result
from conformance.tables import PLAIN
from dodona import Load, LoadTicket
from dodona._core.protocol import steps
from dodona._core.protocol.steps import Calls
from dodona.client import Client
from dodona.errors import CommitOutcomeUnknown, DodonaError, LoadEnded, Unavailable
from dodona.types import Atomicity, CellId, LoadId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.families import Reply
from dodona_wire.messages.loads import LoadHeld, OpenLoad, PeekLoad

pytestmark = UNDER_VIRTUAL_TIME

How = Literal["request", "answer"]
STEPS_MAX = 60
LOST = {
    "request": Failure("unavailable", "not reachable", {"is_sent": False}),
    "answer": Failure("unavailable", "no answer"),
}


class Losing:
    """Runs a protocol, and loses all requests of one of its steps, or their answers."""

    def __init__(self, place: int, how: How, count: int = 1) -> None:
        self._places = range(place, place + count)
        self._how = how
        self.count = 0
        """How many steps there were."""

    def run(self, protocol: steps.Protocol[Result]) -> steps.Protocol[Result]:
        replies: Sequence[Reply] | None = None
        while True:
            try:
                step = next(protocol) if replies is None else protocol.send(list(replies))
            except StopIteration as stop:
                result: Result = stop.value
                return result
            if not isinstance(step, Calls):
                replies = yield step
                continue
            is_lost = self.count in self._places
            self.count += 1
            if not (is_lost and self._how == "request"):
                replies = yield step
            if is_lost:
                replies = [LOST[self._how]] * len(step.requests)


@pytest.fixture
def path(db: Client) -> str:
    db.create_table("//t", PLAIN, pivot_keys=HALVES, mount=True)
    with db.loads.begin(["//t"]):
        pass
    return "//t"


def _ready(db: Client, path: str) -> Load:
    load = db.loads.begin([path], erased={path: (None, None)})
    load.write(path, rows([1, 150], load.id % 1_000_000))
    return load


@pytest.mark.parametrize("how", ["request", "answer"])
def test_a_publication_that_loses_something_comes_to_one_end(
    db: Client, other: Client, path: str, how: How
) -> None:
    for place in range(STEPS_MAX):
        load, losing = _ready(db, path), Losing(place, how)
        try:
            published = db._run(losing.run(db._session.loads.publish(load.ticket, load._staged)))
        except CommitOutcomeUnknown:
            published = load.publish()
        assert published.row_count == 2
        assert load.publish() == published
        assert other.loads.abort(load.id) == published
        assert values(other, path) == dict.fromkeys([1, 150], load.id % 1_000_000)
        assert record_of(other, load.id).commit_timestamp == published.timestamp
        if losing.count <= place:
            break
    assert 10 < place < STEPS_MAX - 1, "every step had its turn"


@pytest.mark.parametrize("how", ["request", "answer"])
@pytest.mark.parametrize("next_call", ["publish", "abort"])
def test_after_an_interrupted_publication_the_next_call_returns_the_outcome(
    db: Client, path: str, how: How, next_call: str
) -> None:
    """From some step on nobody is reached for as long as a client tries."""
    ends: set[bool] = set()
    for place in range(0, STEPS_MAX, 3):
        load, losing = _ready(db, path), Losing(place, how, count=1_000)
        error: DodonaError | None = None
        try:
            db._run(losing.run(db._session.loads.publish(load.ticket, load._staged)))
        except (CommitOutcomeUnknown, Unavailable) as raised:
            error = raised
        outcome = load.publish() if next_call == "publish" else load.abort()
        assert outcome is None or outcome.row_count == 2
        is_there = values(db, path) == dict.fromkeys([1, 150], load.id % 1_000_000)
        assert is_there == (outcome is not None)
        assert record_of(db, load.id).state == ("finished" if is_there else "aborted")
        ends.add(is_there)
        if error is None:
            break
    assert error is None, "the last one lost nothing"
    assert ends == ({True} if next_call == "publish" else {True, False})


@pytest.mark.parametrize("how", ["request", "answer"])
def test_a_beginning_that_loses_something_is_a_load_or_none(
    db: Client, path: str, how: How
) -> None:
    for place in range(STEPS_MAX):
        losing = Losing(place, how)
        begun = db._session.loads.begin([path])
        load = db.loads.join(db._run(losing.run(begun)))
        load.write(path, rows([place]))
        assert load.publish().row_count == 1
        if losing.count <= place:
            break
    assert sorted(values(db, path)) == [*range(place + 1)]
    states = [it.state for it in db.loads.list_loads()]
    assert set(states) == {"finished"}


class _Away:
    """Loses all that is said to one cell about the beginning of loads."""

    def __init__(self, cell: CellId) -> None:
        self._cell = cell
        self.opened: list[OpenLoad] = []

    def run(self, protocol: steps.Protocol[Result]) -> steps.Protocol[Result]:
        replies: list[Reply] | None = None
        while True:
            try:
                step = next(protocol) if replies is None else protocol.send(replies)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            if isinstance(step, Calls) and isinstance(step.requests[0][1], OpenLoad):
                here = tuple([it for it in step.requests if it[0] != self._cell])
                answers = iter((yield Calls(here)) if here else [])
                self.opened += [body for _, body in here if isinstance(body, OpenLoad)]
                replies = [
                    LOST["request"] if it[0] == self._cell else next(answers)
                    for it in step.requests
                ]
            else:
                replies = yield step


@pytest.mark.parametrize("cell", [0, 1])
@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_a_load_that_can_not_be_opened_everywhere_is_open_nowhere(
    backend: Backend, db: Client, path: str, cell: int, atomicity: Atomicity
) -> None:
    assert isinstance(backend, Simulated)
    db.create_table("//none", PLAIN, "none", mount=True)
    away = _Away(CellId(cell))
    target = path if atomicity == "full" else "//none"
    begun = db._session.loads.begin([target], atomicity=atomicity)
    with pytest.raises(Unavailable):
        db._run(away.run(begun))
    assert away.opened
    load = away.opened[0].load
    for number in (0, 1):
        (reply,) = db._run(_ask(CellId(number), PeekLoad(load)))
        assert reply == LoadHeld(0)
    assert load not in [it.load for it in db.loads.list_loads()]
    with pytest.raises(LoadEnded):
        db.loads.join(_ticket_of(db, target, atomicity, load)).write(target, rows([1]))


def _ask(cell: CellId, body: PeekLoad) -> steps.Protocol[list[Reply]]:
    return (yield Calls(((cell, body),)))


def _ticket_of(db: Client, path: str, atomicity: Atomicity, load: LoadId) -> LoadTicket:
    return replace(db.loads.begin([path], atomicity=atomicity).ticket, load=load)
