"""Writes on their short way: what goes it, that it says the same as the long way, and how the long
way goes on where it ends."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dodona._core.protocol.reserve import RESERVE_COUNT
from dodona._core.protocol.steps import MASTER, ORACLE, Target
from dodona._core.session import Session
from dodona.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    TransactionAborted,
    Unavailable,
)
from dodona.types import Atomicity, Durability, Timestamp, TransactionId
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetTable
from dodona_wire.messages.data import (
    AskOutcome,
    CommitOne,
    Committed,
    GenerateTimestamps,
    TimestampRange,
    WriteNonAtomic,
    Written,
)
from dodona_wire.messages.families import Reply, Request
from unit.client.protocols import (
    COLUMNS,
    CONFLICT,
    LOST,
    MOVED,
    NEVER_SENT,
    PATH,
    TWO_TABLETS,
    Clock,
    Play,
    new_session,
    play,
    table,
    tablet,
)

ROWS = [{"id": it, "value": it, "note": "x"} for it in (3, 1, 2)]
BIG = {"id": 5, "value": 1, "note": "x" * 50_000}


def row(key: int) -> dict[str, Any]:
    return {"id": key, "value": key, "note": None}


def fresh(atomicity: Atomicity = "full") -> tuple[Clock, Session]:
    """A session that has ids in reserve."""
    clock = Clock()
    session = new_session(clock, table(atomicity=atomicity))
    session._context._reserve.fill(Timestamp(1_000), clock.now_us)
    return clock, session


def write(session: Session, rows: Any, durability: Durability = "sync", **options: Any) -> Any:
    update = options.pop("update", False)
    return session.write_rows(PATH, rows, update, durability, **options)


def take_the_general_path(session: Session) -> None:
    session._context.injects_faults = True
    session._context.fault_at = lambda point: point is FaultPoint.WRITE_THE_LONG_WAY


WAYS: tuple[Callable[[Session], None], ...] = (lambda _: None, take_the_general_path)


def asked(session: Session, clock: Clock, rows: Any, durability: Durability) -> Any:
    """All that is asked, and what comes of it, with ids left out."""
    bodies: list[tuple[Target, Request]] = []

    def answer(target: Target, body: Request) -> Reply:
        if isinstance(body, GenerateTimestamps):
            return TimestampRange(Timestamp(5_000), body.count)
        if isinstance(body, CommitOne):
            body = replace(body, transaction=TransactionId(0))
        bodies.append((target, body))
        if isinstance(body, WriteNonAtomic):
            return Written(len(body.writes), Timestamp(77))
        return Committed(TransactionId(0), Timestamp(77))

    try:
        return play(clock, write(session, rows, durability), answer), bodies
    except DodonaError as error:
        return error.kind, error.message, error.attributes, bodies


@pytest.mark.parametrize("atomicity", ["full", "none"])
@pytest.mark.parametrize("durability", ["sync", "async", "soon"])
@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        [row(1)],
        [],
        [row(1), row(1)],
        [{"id": 1, "value": 2}],
        [{"id": 1, "value": 1 << 70, "note": None}],
        [{"id": None, "value": 1, "note": "é"}],
        [BIG] * 700,
        [dict(BIG, id=it) for it in range(700)],
        [dict(BIG, id=it) for it in range(90)],
        [row(1), 5],
        {"id": 1},
        (row(1), row(2)),
    ],
    ids=lambda rows: f"{type(rows).__name__}-{len(rows)}",
)
def test_both_ways_ask_and_say_the_same(
    rows: Any, durability: Durability, atomicity: Atomicity
) -> None:
    clock, session = fresh(atomicity)
    other_clock, other = fresh(atomicity)
    take_the_general_path(other)
    assert asked(session, clock, rows, durability) == asked(other, other_clock, rows, durability)


@pytest.mark.parametrize(
    "options",
    [{"update": 1}, {"update": None}, {"aggregate": True}, {"aggregate": 0}, {"aggregate": None}],
    ids=str,
)
def test_insert_options_have_the_same_effect_on_the_fast_and_general_path(
    options: dict[str, Any],
) -> None:
    outcomes = []
    for way in WAYS:
        clock, session = fresh()
        way(session)
        try:
            outcomes.append(Play(clock, write(session, [row(1)], **options)).calls)
        except DodonaError as error:
            outcomes.append((error.kind, error.message))  # type: ignore[arg-type]
    assert outcomes[0] == outcomes[1]


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above compare the long way with itself."""
    modes: tuple[Atomicity, ...] = ("full", "none")
    for atomicity in modes:
        clock, session = fresh(atomicity)
        monkeypatch.setattr(session, "_blind", None)  # the long way can't begin
        done = asked(session, clock, ROWS, "sync")
        assert done[0] == 77
        assert len(done[1]) == 1


def test_rows_of_two_tablets_and_ids_that_are_used_up_go_the_long_way() -> None:
    clock, session = fresh()
    assert Play(clock, write(session, [row(1), row(200)])).call == (ORACLE, GenerateTimestamps(1))
    session._context.drop_reserve()
    call = Play(clock, write(session, [row(1)])).call
    assert call == (ORACLE, GenerateTimestamps(RESERVE_COUNT))


def test_a_tablet_that_is_not_served_is_asked_for_first() -> None:
    clock, session = fresh()
    session.routing.learn(table((tablet(10, 0, None, state="frozen"), TWO_TABLETS[1])))
    it = Play(clock, write(session, [row(1)]))
    it.wait()
    assert it.call == (MASTER, GetTable(PATH))


# ---- an atomic write whose answer is none


def sent(session: Session, clock: Clock) -> tuple[Play[Any], CommitOne]:
    it = Play(clock, write(session, [row(1)]))
    _, body = it.call
    assert isinstance(body, CommitOne)
    return it, body


def test_a_lost_answer_is_asked_for_under_the_same_id() -> None:
    clock, session = fresh()
    it, body = sent(session, clock)
    it.answer(LOST)
    assert it.call == (0, AskOutcome(body.transaction))
    it.answer(Committed(body.transaction, Timestamp(9)))
    assert it.result == 9


def test_an_unknown_outcome_on_the_fast_path_names_the_transaction() -> None:
    clock, session = fresh()
    it, body = sent(session, clock)
    it.answer(LOST)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        finish_with(it, LOST, session)
    assert caught.value.attributes["transaction"] == body.transaction
    it = Play(clock, session.outcome(body.transaction))
    assert it.call[0] == 0, "the coordinator is remembered"


def finish_with(it: Play[Any], reply: Reply, session: Session) -> None:
    for _ in range(1_000):
        if it.step is None:
            return
        if hasattr(it.step, "duration_ms"):
            it.wait()
        elif it.call[0] == MASTER:
            it.answer(table())
        else:
            it.answer(reply)


def test_after_a_stale_route_the_same_rows_go_on_under_the_same_id() -> None:
    """Whatever the caller does to its list meanwhile: a copy of the first request may still come,
    and both must say the same."""
    clock, session = fresh()
    rows = [row(1)]
    it = Play(clock, write(session, rows))
    _, first = it.call
    rows[0] = {"id": "nonsense"}
    it.answer(MOVED)
    it.wait()
    assert it.call == (MASTER, GetTable(PATH))
    it.answer(table((tablet(10, 3, None), TWO_TABLETS[1])))
    target, second = it.call
    assert target == 3
    assert second == first


def test_a_schema_change_during_a_fast_path_write_aborts_the_write() -> None:
    clock, session = fresh()
    it, _ = sent(session, clock)
    it.answer(MOVED)
    it.wait()
    with pytest.raises(TransactionAborted, match="schema"):
        it.answer(table(columns=COLUMNS[:2]))


def test_a_lost_answer_is_asked_for_even_if_the_table_is_another_by_now() -> None:
    clock, session = fresh()
    it, body = sent(session, clock)
    session.routing.learn(table(columns=COLUMNS[:1] + COLUMNS[2:]))
    it.answer(LOST)
    assert it.call == (0, AskOutcome(body.transaction))


def test_after_a_conflict_the_fast_path_continues_like_the_general_path() -> None:
    steps = []
    for way in WAYS:
        clock, session = fresh()
        way(session)
        it, _ = sent(session, clock)
        it.answer(CONFLICT)
        steps.append(it.step)
    assert steps[0] == steps[1]


# ---- a write without atomicity whose answer is none


@pytest.mark.parametrize("refusal", [NEVER_SENT, MOVED, Failure("overloaded", "the store is full")])
def test_a_non_atomic_write_refused_without_effect_is_retried(refusal: Failure) -> None:
    clock, session = fresh("none")
    it = Play(clock, write(session, ROWS, "async"))
    _, first = it.call
    it.answer(refusal)
    _, second = it.call
    assert second == first
    it.answer(Written(3, Timestamp(8)))
    assert it.result == 8


def test_a_non_atomic_write_with_a_lost_reply_names_the_tablet_without_retry() -> None:
    accounts = []
    for way in WAYS:
        clock, session = fresh("none")
        way(session)
        it = Play(clock, write(session, ROWS, "async"))
        with pytest.raises(Unavailable) as caught:
            it.answer(LOST)
        accounts.append((caught.value.message, caught.value.attributes))
    assert accounts[0] == accounts[1]
    assert accounts[0][1]["unknown"] == [10]
