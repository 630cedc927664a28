"""What became of a transaction: who is asked, and what the answers come to."""

from collections.abc import Callable

import pytest

from dodona._core.protocol.steps import MASTER, ORACLE, Target
from dodona._core.session import Session
from dodona._core.writing.outcomes import Outcome
from dodona.errors import DodonaError, InvalidRequest, Unavailable
from dodona.types import CellId, Timestamp, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Cell, Cluster, GetCluster
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    Committed,
    GenerateTimestamps,
    OutcomeUnknown,
    PeekOutcome,
    TimestampRange,
    Undecided,
)
from dodona_wire.messages.families import Reply, Request
from unit.client.protocols import LOST, Clock, Play, finish, new_session, play

ID = TransactionId(50)
COMMITTED = Committed(ID, Timestamp(60))
NEVER = Aborted(ID)
NOTHING_YET = Undecided(ID)
FORGOTTEN = OutcomeUnknown(ID)
CLOSED = Failure("invalid_request", "the client is closed")
SAID = {"committed": Outcome("committed", Timestamp(60))}


def held_by(coordinator: int) -> Undecided:
    return Undecided(ID, CellId(coordinator))


def cluster_of(count: int, *, dead: int | None = None) -> Cluster:
    cells = [Cell(CellId(at), f"node{at}", at != dead, 1) for at in range(count)]
    return Cluster((), tuple(cells))


class World:
    """A cluster whose cells answer as told, and who was asked what."""

    def __init__(self, *peeks: Reply, settled: Reply = COMMITTED) -> None:
        self.clock = Clock()
        self.session = new_session(self.clock)
        self.peeks = list(peeks)
        self.settled = settled
        self.asked: list[tuple[Target, Request]] = []
        self.now = Timestamp(1_000)

    def answer(self, target: Target, body: Request) -> Reply:
        self.asked.append((target, body))
        match body:
            case GenerateTimestamps():
                assert target == ORACLE
                return TimestampRange(self.now, 1)
            case GetCluster():
                assert target == MASTER
                return cluster_of(len(self.peeks))
            case PeekOutcome():
                return self.peeks[target]
            case AskOutcome():
                return self.settled
        raise AssertionError(body)

    def outcome(self, coordinator: int | None = None, *, settle: bool = False) -> Outcome:
        cell = None if coordinator is None else CellId(coordinator)
        return play(self.clock, self.session.outcome(ID, cell, settle), self.answer)

    def settled_cells(self) -> list[Target]:
        return [target for target, body in self.asked if isinstance(body, AskOutcome)]


# ---- one cell, which the caller says coordinates it


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (COMMITTED, "committed"),
        (NEVER, "aborted"),
        (NOTHING_YET, "pending"),
        (held_by(0), "pending"),
        (FORGOTTEN, "unknown"),
    ],
)
def test_a_question_for_an_outcome_asks_only_the_known_coordinator(
    reply: Reply, state: str
) -> None:
    world = World(reply)
    assert world.outcome(0) == SAID.get(state, Outcome(state))  # type: ignore[arg-type]
    assert world.asked == [(0, PeekOutcome(ID))]


def test_a_participant_that_is_asked_as_coordinator_names_the_coordinator() -> None:
    world = World(COMMITTED, held_by(0))
    assert world.outcome(1) == SAID["committed"]
    assert [target for target, _ in world.asked] == [1, 0]


@pytest.mark.parametrize("settle", [False, True])
def test_a_coordinator_that_does_not_answer_is_unavailable(settle: bool) -> None:
    world = World(LOST, settled=LOST)
    began_us = world.clock.now_us
    with pytest.raises(Unavailable):
        world.outcome(0, settle=settle)
    assert 9_000_000 <= world.clock.now_us - began_us <= 11_000_000


def test_settling_asks_the_coordinator_directly() -> None:
    world = World(settled=NEVER)
    assert world.outcome(0, settle=True) == Outcome("aborted")
    assert world.asked == [(0, AskOutcome(ID))]


# ---- all cells


@pytest.mark.parametrize(
    ("peeks", "state"),
    [
        ((COMMITTED, NEVER), "committed"),
        ((NOTHING_YET, COMMITTED), "committed"),
        ((FORGOTTEN, COMMITTED), "committed"),
        ((LOST, COMMITTED), "committed"),
        ((NEVER, NEVER), "aborted"),
        ((NEVER, NOTHING_YET), "pending"),
        ((NEVER, LOST), "pending"),
        ((FORGOTTEN, LOST), "pending"),
        ((NOTHING_YET, LOST), "pending"),
        ((FORGOTTEN, NEVER), "unknown"),
        ((FORGOTTEN, NOTHING_YET), "unknown"),
    ],
)
def test_the_answers_of_all_cells_are_one(peeks: tuple[Reply, ...], state: str) -> None:
    for order in (peeks, peeks[::-1]):
        world = World(*order)
        assert world.outcome() == SAID.get(state, Outcome(state))  # type: ignore[arg-type]


def test_a_silent_cell_is_waited_for_only_if_no_other_cell_knows_the_outcome() -> None:
    world = World(LOST, COMMITTED)
    began_us = world.clock.now_us
    assert world.outcome().state == "committed"
    assert world.clock.now_us == began_us
    world.peeks[1] = NEVER
    assert world.outcome().state == "pending"
    assert 9_000_000 <= world.clock.now_us - began_us <= 11_000_000


def test_the_answer_of_a_cell_that_comes_back_is_used() -> None:
    world = World(LOST, NEVER)
    asking = Play(world.clock, world.session.outcome(ID))
    while (0, PeekOutcome(ID)) not in world.asked:
        asking.answer(*[world.answer(target, body) for target, body in asking.calls])
    world.peeks[0] = NEVER
    assert finish(asking, world.answer) == Outcome("aborted")


def test_a_cell_that_holds_the_transaction_names_the_coordinator_to_ask() -> None:
    world = World(NEVER, held_by(2), LOST)

    def answer(target: Target, body: Request) -> Reply:
        reply = world.answer(target, body)
        if target == 1:
            world.peeks[2] = COMMITTED  # meanwhile
        return reply

    asking = world.session.outcome(ID)
    assert play(world.clock, asking, answer) == SAID["committed"]
    assert world.asked[-1] == (2, PeekOutcome(ID))


@pytest.mark.parametrize(
    ("coordinator", "state"),
    [(NEVER, "aborted"), (NOTHING_YET, "pending"), (FORGOTTEN, "unknown"), (LOST, "pending")],
)
def test_the_answer_of_the_named_coordinator_decides_the_outcome(
    coordinator: Reply, state: str
) -> None:
    assert World(coordinator, held_by(0)).outcome().state == state


def test_no_cell_at_all_is_no_proof() -> None:
    """A master that has just started knows of no cell yet."""
    with pytest.raises(Unavailable):
        World().outcome()


def test_a_question_for_an_outcome_is_unavailable_if_no_cell_answers() -> None:
    with pytest.raises(Unavailable):
        World(LOST, LOST).outcome()


def test_a_question_for_an_outcome_raises_a_permanent_error() -> None:
    with pytest.raises(InvalidRequest, match="closed"):
        World(NEVER, CLOSED).outcome()


def test_a_question_for_an_outcome_also_asks_a_cell_reported_as_dead() -> None:
    world = World(NEVER, NEVER)
    usual = world.answer

    def answer(target: Target, body: Request) -> Reply:
        reply = usual(target, body)
        return cluster_of(2, dead=1) if isinstance(reply, Cluster) else reply

    play(world.clock, world.session.outcome(ID), answer)
    assert (1, PeekOutcome(ID)) in world.asked
    assert CellId(1) not in world.session.routing.addresses


def test_an_id_that_was_never_issued_is_none() -> None:
    """Cells that join later could let it in: nobody can know yet."""
    world = World(NEVER, NEVER)
    world.now = Timestamp(ID - 1)
    for settle in (False, True):
        with pytest.raises(InvalidRequest, match="not issued"):
            world.outcome(settle=settle)


def test_the_oracle_is_asked_before_the_master() -> None:
    world = World(NEVER)
    world.outcome()
    assert [target for target, _ in world.asked[:2]] == [ORACLE, MASTER]


def test_many_cells_are_asked_in_waves() -> None:
    world = World(*[NEVER] * 40)
    asking = Play(world.clock, world.session.outcome(ID))
    waves = []
    while asking.step is not None:
        waves.append(len(asking.calls))
        asking.answer(*[world.answer(target, body) for target, body in asking.calls])
    assert waves == [1, 1, 16, 16, 8]
    assert asking.result == Outcome("aborted")


# ---- settling


@pytest.mark.parametrize(
    ("peeks", "settled_at"),
    [((NEVER, held_by(1)), [1]), ((held_by(1), LOST), [1]), ((NEVER, NEVER), [])],
)
def test_settling_looks_for_the_coordinator(
    peeks: tuple[Reply, ...], settled_at: list[Target]
) -> None:
    world = World(*peeks, settled=NEVER)
    assert world.outcome(settle=True) == Outcome("aborted")
    assert world.settled_cells() == settled_at


@pytest.mark.parametrize("final", [COMMITTED, NEVER, FORGOTTEN])
def test_a_final_outcome_is_not_settled_again(final: Reply) -> None:
    world = World(final, final)
    world.outcome(settle=True)
    assert world.settled_cells() == []


@pytest.mark.parametrize(
    ("peeks", "error"),
    [
        ((NEVER, NOTHING_YET), InvalidRequest),
        ((NEVER, LOST), Unavailable),
        ((NOTHING_YET, LOST), Unavailable),
    ],
)
def test_settling_raises_an_error_if_the_coordinator_is_not_found(
    peeks: tuple[Reply, ...], error: type[DodonaError]
) -> None:
    with pytest.raises(error):
        World(*peeks).outcome(settle=True)


def test_settling_is_unavailable_if_the_coordinator_does_not_answer() -> None:
    with pytest.raises(Unavailable):
        World(NEVER, held_by(0), settled=LOST).outcome(settle=True)


# ---- what the session remembers


def test_a_session_does_not_remember_outcomes_from_a_wrong_coordinator() -> None:
    """A wrong coordinator's answer must not be given again to who asks all cells."""
    world = World(NEVER, COMMITTED)
    assert world.outcome(0).state == "aborted"
    assert world.outcome().state == "committed"


@pytest.mark.parametrize(
    "misuse",
    [
        lambda session: session.outcome(TransactionId(0)),
        lambda session: session.outcome("5"),
        lambda session: session.outcome(ID, CellId(-1)),
        lambda session: session.outcome(ID, None, 1),
    ],
)
def test_wrong_arguments_are_refused(misuse: Callable[[Session], object]) -> None:
    world = World()
    with pytest.raises(InvalidRequest):
        play(world.clock, misuse(world.session), world.answer)  # type: ignore[arg-type]
    assert world.asked == []
