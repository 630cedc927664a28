"""Writes without a transaction: which of them are blind, how they are named, and renamed."""

from typing import Any

import pytest

from dodona._core.protocol import context as context_module
from dodona._core.protocol import reserve as reserve_module
from dodona._core.protocol.reserve import RESERVE_COUNT, RESERVE_MS_MAX, Reserve
from dodona._core.protocol.steps import MASTER, ORACLE, Pause, Target
from dodona._core.session import Session
from dodona.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    Overloaded,
    SnapshotTooOld,
    TransactionAborted,
    Unavailable,
)
from dodona.types import CellId, Timestamp, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Cluster, GetTable
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    CommitOne,
    Committed,
    Decide,
    GenerateTimestamps,
    OutcomeUnknown,
    PeekOutcome,
    Prepare,
    Prepared,
    TimestampRange,
)
from dodona_wire.messages.families import Reply, Request
from unit.client.protocols import (
    LOST,
    MOVED,
    NEVER_SENT,
    PATH,
    PIVOT,
    TWO_TABLETS,
    Clock,
    Play,
    finish,
    new_session,
    play,
    table,
    tablet,
    tablets_of,
)

TOO_OLD = Failure("snapshot_too_old", "from before the mount")
GIVEN_UP = Failure("transaction_aborted", "The transaction was aborted before prepare.")
CONFLICT = Failure("transaction_conflict", "another one holds the row")
CELLS = (CellId(0), CellId(1))


class Oracle:
    """Answers what a blind write asks, and remembers it."""

    def __init__(self) -> None:
        self.next_unused = 1_000
        self.counts: list[int] = []
        self.commits: list[CommitOne] = []

    def timestamps(self, body: Request) -> TimestampRange:
        assert isinstance(body, GenerateTimestamps)
        self.counts.append(body.count)
        first, self.next_unused = self.next_unused, self.next_unused + body.count
        return TimestampRange(Timestamp(first), body.count)

    def __call__(self, target: Target, body: Request) -> Reply:
        if target == ORACLE:
            return self.timestamps(body)
        assert isinstance(body, CommitOne)
        self.commits.append(body)
        return Committed(body.transaction, Timestamp(self.next_unused + 1))


def fresh() -> tuple[Clock, Session, Oracle]:
    clock = Clock()
    return clock, new_session(clock, table()), Oracle()


def write(session: Session, *ids: int) -> Any:
    return session.write_rows(PATH, [{"id": it, "value": it} for it in ids], False, "sync")


# ---- one cell


def test_the_first_asks_for_many_ids_and_the_next_for_none() -> None:
    clock, session, oracle = fresh()
    for number in range(3):
        assert play(clock, write(session, number, number + 10), oracle)
    play(clock, session.erase_rows(PATH, [{"id": 1}], "sync"), oracle)
    assert oracle.counts == [RESERVE_COUNT]
    assert [it.transaction for it in oracle.commits] == [1_000, 1_001, 1_002, 1_003]
    assert all(it.is_blind for it in oracle.commits)


def test_a_transaction_that_buffers_writes_is_not_blind() -> None:
    clock, session, oracle = fresh()
    transaction = play(clock, session.begin(), oracle)
    play(clock, session.insert_rows(transaction, PATH, [{"id": 1, "value": 1}]), oracle)
    play(clock, session.commit(transaction), oracle)
    assert oracle.counts == [1]
    assert not oracle.commits[0].is_blind


def test_an_old_reserve_is_not_used() -> None:
    clock, session, oracle = fresh()
    play(clock, write(session, 1), oracle)
    clock.now_us += RESERVE_MS_MAX * 1000 - 1
    play(clock, write(session, 1), oracle)
    assert len(oracle.counts) == 1
    clock.now_us += 1
    play(clock, write(session, 1), oracle)
    assert len(oracle.counts) == 2
    assert oracle.commits[-1].transaction == 1_000 + RESERVE_COUNT


def test_a_used_up_reserve_is_filled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve_module, "RESERVE_COUNT", 3)
    monkeypatch.setattr(context_module, "RESERVE_COUNT", 3)
    clock, session, oracle = fresh()
    for _ in range(7):
        play(clock, write(session, 1), oracle)
    assert oracle.counts == [3, 3, 3]
    assert [it.transaction for it in oracle.commits] == list(range(1_000, 1_007))


def test_no_id_is_handed_out_twice() -> None:
    reserve = Reserve()
    taken = [reserve.fill(Timestamp(10), 0)]
    while (it := reserve.take(5)) is not None:
        taken.append(it)
    assert taken == list(range(10, 10 + RESERVE_COUNT))
    reserve.fill(Timestamp(RESERVE_COUNT * 2), 0)
    reserve.clear()
    assert reserve.take(5) is None


def test_without_the_oracle_nothing_is_sent() -> None:
    clock, session, _ = fresh()

    def nobody_home(target: Target, body: Request) -> Reply:
        assert target == ORACLE, "sent without an id"
        return LOST

    with pytest.raises(Unavailable):
        play(clock, write(session, 1), nobody_home)


# ---- ids that a cell does not take


@pytest.mark.parametrize("refusal", [TOO_OLD, GIVEN_UP])
def test_an_id_of_which_nothing_can_come_is_replaced(refusal: Failure) -> None:
    """It is from before the mount, or its cell died before it heard of it."""
    clock, session, oracle = fresh()
    play(clock, write(session, 1), oracle)
    it = Play(clock, write(session, 2))
    it.answer(refusal)
    it.wait()
    asked = [it.call[1]]
    it.answer(table())
    asked.append(it.call[1])
    assert asked == [GetTable(PATH), GenerateTimestamps(RESERVE_COUNT)]
    it.answer(TimestampRange(Timestamp(500_000), RESERVE_COUNT))
    _, body = it.call
    assert isinstance(body, CommitOne)
    assert (body.transaction, body.is_blind) == (500_000, True)
    it.answer(Committed(TransactionId(500_000), Timestamp(600_000)))
    assert it.result == 600_000


@pytest.mark.parametrize(
    ("refusal", "error"), [(TOO_OLD, SnapshotTooOld), (GIVEN_UP, TransactionAborted)]
)
def test_a_blind_write_tries_new_ids_only_until_the_retry_limit(
    refusal: Failure, error: type[DodonaError]
) -> None:
    clock, session, oracle = fresh()
    began_us = clock.now_us

    def refuse(target: Target, body: Request) -> Reply:
        return table() if target == MASTER else oracle.timestamps(body) if target < 0 else refusal

    with pytest.raises(error):
        play(clock, write(session, 2), refuse)
    assert clock.now_us - began_us <= session.limits.retry_ms_max * 1000


def test_an_ordinary_transaction_is_not_begun_again() -> None:
    clock, session, oracle = fresh()
    transaction = play(clock, session.begin(), oracle)
    play(clock, session.insert_rows(transaction, PATH, [{"id": 1, "value": 1}]), oracle)
    it = Play(clock, session.commit(transaction))
    with pytest.raises(SnapshotTooOld):
        it.answer(TOO_OLD)


def test_a_blind_write_keeps_its_id_after_a_stale_route() -> None:
    """The cell has no record: a copy of the request that comes late must not commit once more."""
    clock, session, oracle = fresh()
    it = Play(clock, write(session, 1))
    it.answer(oracle.timestamps(it.call[1]))
    it.answer(MOVED)
    it.wait()
    assert it.call == (MASTER, GetTable(PATH))
    it.answer(table((tablet(10, 3, None), TWO_TABLETS[1])))
    target, body = it.call
    assert target == 3
    assert isinstance(body, CommitOne)
    assert (body.transaction, body.is_blind) == (1_000, True)


def test_rows_that_are_now_in_two_cells_get_a_start_timestamp() -> None:
    clock, session, oracle = fresh()
    session.routing.learn(table((tablet(10, 0, None),)))
    it = Play(clock, write(session, 1, PIVOT))
    it.answer(oracle.timestamps(it.call[1]))
    it.answer(MOVED)
    it.wait()
    it.answer(table())
    assert it.call == (ORACLE, GenerateTimestamps(1))
    it.answer(TimestampRange(Timestamp(70_000), 1))
    assert [body.transaction for _, body in it.calls if isinstance(body, Prepare)] == [70_000] * 2


# ---- several cells


def test_rows_of_two_cells_are_committed_from_a_fresh_start() -> None:
    clock, session, oracle = fresh()
    it = Play(clock, write(session, 1, PIVOT))
    it.answer(oracle.timestamps(it.call[1]))
    assert oracle.counts == [1]
    votes = [body for _, body in it.calls if isinstance(body, Prepare)]
    start = TransactionId(1_000)
    assert [body.transaction for body in votes] == [start, start]
    it.answer(*[Prepared(start, Timestamp(at)) for at in (1_060, 1_061)])
    assert it.call == (0, Decide(start, CELLS, Timestamp(1_061)))
    it.answer(Committed(start, Timestamp(1_061)))
    assert it.result == 1_061


def committed_anew(it: Play[Any], oracle: Oracle, start: int) -> None:
    """The same rows are prepared under another start, and that one is committed."""
    while isinstance(it.step, Pause) or len(it.calls) == 1:
        if isinstance(it.step, Pause):
            it.wait()
        else:
            target, body = it.call
            it.answer(table() if target == MASTER else oracle.timestamps(body))
    renamed = TransactionId(start)
    assert [body.transaction for _, body in it.calls if isinstance(body, Prepare)] == [renamed] * 2
    it.answer(*[Prepared(renamed, Timestamp(start + 60))] * 2)
    it.answer(Committed(renamed, Timestamp(start + 61)))
    assert it.result == start + 61


def asked_of_several(it: Play[Any], oracle: Oracle) -> TransactionId:
    """→ the first start, under which two cells are asked to prepare."""
    it.answer(oracle.timestamps(it.call[1]))
    assert len(it.calls) == 2
    return TransactionId(1_000)


@pytest.mark.parametrize(
    "reply", [NEVER_SENT, CONFLICT, TOO_OLD, GIVEN_UP, Aborted(TransactionId(1_000))]
)
def test_a_write_to_two_cells_that_one_cell_did_not_prepare_gets_a_new_id(reply: Reply) -> None:
    """A node that is being started again is a pause to whoever writes there, over one cell or
    several: it was an error at once for several."""
    clock, session, oracle = fresh()
    it = Play(clock, write(session, 1, PIVOT))
    start = asked_of_several(it, oracle)
    it.answer(Prepared(start, Timestamp(1_060)), reply)
    assert it.posted() == ((0, Decide(start, CELLS, None, is_proved=True)),)
    committed_anew(it, oracle, 1_001)


@pytest.mark.parametrize("reply", [LOST, MOVED])
def test_a_write_to_two_cells_in_doubt_is_aborted_and_retried_with_a_new_id(reply: Reply) -> None:
    clock, session, oracle = fresh()
    it = Play(clock, write(session, 1, PIVOT))
    start = asked_of_several(it, oracle)
    it.answer(Prepared(start, Timestamp(1_060)), reply)
    assert it.call == (0, Decide(start, CELLS, None))
    it.answer(Aborted(start))
    committed_anew(it, oracle, 1_001)


def test_a_write_to_two_cells_may_commit_after_a_lost_prepare_reply() -> None:
    clock, session, oracle = fresh()
    it = Play(clock, write(session, 1, PIVOT))
    start = asked_of_several(it, oracle)
    it.answer(Prepared(start, Timestamp(1_060)), LOST)
    it.answer(Committed(start, Timestamp(1_061)))
    assert it.result == 1_061
    assert oracle.counts == [1]


def test_several_cells_are_asked_for_as_long_as_one_is() -> None:
    clock, session, oracle = fresh()
    it = Play(clock, write(session, 1, PIVOT))
    began_us = clock.now_us

    def answer(target: Target, body: Request) -> Reply:
        if target == MASTER:
            return table()
        return oracle.timestamps(body) if target == ORACLE else NEVER_SENT

    with pytest.raises(Unavailable):
        finish(it, answer)
    assert 9_000_000 <= clock.now_us - began_us <= 11_000_000
    assert len(oracle.counts) > 10, "each under a start of its own"


def test_a_write_to_two_cells_is_not_retried_if_one_cell_is_overloaded() -> None:
    clock, session, oracle = fresh()
    it = Play(clock, write(session, 1, PIVOT))
    start = asked_of_several(it, oracle)
    it.answer(Prepared(start, Timestamp(1_060)), Failure("overloaded", "its queue is full"))
    with pytest.raises(Overloaded):
        it.answer(Aborted(start))


# ---- answers that are lost


def test_a_lost_answer_is_asked_for_by_the_reserved_id() -> None:
    clock, session, oracle = fresh()
    it = Play(clock, write(session, 1))
    it.answer(oracle.timestamps(it.call[1]))
    assert tablets_of(it.call[1]) == [10]
    it.answer(LOST)
    assert it.call == (0, AskOutcome(TransactionId(1_000)))
    it.answer(Committed(TransactionId(1_000), Timestamp(20_000)))
    assert it.result == 20_000


def test_a_lost_request_is_sent_again_under_another_id() -> None:
    clock, session, oracle = fresh()
    it = Play(clock, write(session, 1))
    it.answer(oracle.timestamps(it.call[1]))
    it.answer(LOST)
    it.answer(Aborted(TransactionId(1_000)))
    finish(it, lambda target, body: table() if target == MASTER else oracle(target, body))
    assert [body.transaction for body in oracle.commits] == [1_000 + RESERVE_COUNT]


def test_an_outcome_that_stays_unknown_names_the_transaction() -> None:
    clock, session, oracle = fresh()
    it = Play(clock, write(session, 1))
    it.answer(oracle.timestamps(it.call[1]))
    with pytest.raises(CommitOutcomeUnknown) as caught:
        finish(it, lambda target, _: Cluster((), ()) if target == MASTER else LOST)
    assert caught.value.attributes == {"transaction": 1_000, "coordinator": 0}
    asking = Play(clock, session.outcome(TransactionId(1_000)))
    assert asking.call == (0, PeekOutcome(TransactionId(1_000)))
    asking.answer(OutcomeUnknown(TransactionId(1_000)))
    assert asking.result.state == "unknown"
