"""Blind commits: they begin when their locks are free, whatever was committed before."""

import pytest

from dodona_tablets.core.cell.limits import CellLimits
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    CommitOne,
    Committed,
    OutcomeUnknown,
    Prepare,
    Prepared,
    RowLock,
)
from unit.tablets.cells import SECOND, Bench, changes, key, put


def test_a_commit_after_the_id_of_a_blind_transaction_is_no_conflict() -> None:
    bench = Bench()
    reserved = bench.begin()
    before = bench.commit(put(1, 1))
    route = bench.commit_blind(reserved, put(1, 2))
    bench.answer_oracle()
    reply = bench.answer(route)
    assert isinstance(reply, Committed)
    assert reply.timestamp > before
    assert bench.read(1, before) == (1, None)
    assert bench.read(1) == (2, None)


def test_a_transaction_that_began_before_a_blind_commit_gets_a_conflict() -> None:
    bench = Bench()
    reserved, start = bench.begin(), bench.begin()
    bench.commit_blind(reserved, put(1, 1))
    bench.answer_oracle()
    reply = bench.answer(bench.commit_one(start, put(1, 2)))
    assert isinstance(reply, Failure)
    assert reply.kind == "transaction_conflict"


def test_a_strong_read_lock_of_the_past_is_no_conflict() -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    reserved, reader = bench.begin(), bench.begin()
    lock = RowLock(key(1), lock_mask=1, lock_type="shared_strong")
    bench.ask(CommitOne(reader, (changes(locks=(lock,)),)))
    bench.answer_oracle()
    route = bench.commit_blind(reserved, put(1, 2))
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)


@pytest.mark.parametrize("is_strong", [False, True])
def test_a_blind_commit_waits_for_the_holder_of_its_row(is_strong: bool) -> None:
    bench = Bench(2)
    reserved, start = bench.begin(), bench.begin()
    if is_strong:
        part = changes(locks=(RowLock(key(1), lock_mask=1, lock_type="shared_strong"),))
        vote = bench.ask(Prepare(start, tuple(sorted(bench.nodes)), (part,)))
    else:
        vote = bench.prepare(start, put(1, 1), cell=0)
    route = bench.commit_blind(reserved, put(1, 2))
    bench.answer_oracle()  # the holder is prepared now, and still holds it
    assert bench.answer(route) is None
    bench.prepare(start, cell=1)
    bench.answer_oracle()
    prepared = bench.answer(vote)
    assert isinstance(prepared, Prepared)
    bench.decide(start, type(prepared.timestamp)(prepared.timestamp + 1))
    bench.settle()
    reply = bench.answer(route)
    assert isinstance(reply, Committed)
    assert reply.timestamp > prepared.timestamp
    assert bench.read(1) == (2, None)


def test_blind_commits_of_one_row_follow_each_other_in_order_of_arrival() -> None:
    bench = Bench()
    routes = [bench.commit_blind(bench.begin(), put(1, number)) for number in range(5)]
    assert len(bench.asked) == 1
    bench.answer_oracle()
    replies = [bench.answer(route) for route in routes]
    stamps = [reply.timestamp for reply in replies if isinstance(reply, Committed)]
    assert stamps == sorted(stamps)
    assert len(set(stamps)) == 5
    assert bench.read(1) == (4, None)
    assert [bench.read(1, at) for at in stamps] == [(number, None) for number in range(5)]


def test_a_blind_commit_waits_only_for_a_limited_time() -> None:
    bench = Bench(2, CellLimits(blocked_wait_ms_max=1_000))
    bench.prepare(bench.begin(), put(1, 1), cell=0)
    bench.answer_oracle()
    reserved = bench.begin()
    route = bench.commit_blind(reserved, put(1, 2))
    bench.pass_time(0.5)
    assert bench.answer(route) is None
    bench.pass_time(1)
    reply = bench.answer(route)
    assert isinstance(reply, Failure)
    assert reply.kind == "transaction_conflict"
    assert "Timed out waiting" in reply.message
    assert bench.answer(bench.commit_blind(reserved, put(1, 2))) == reply


def test_a_waiting_blind_commit_holds_no_locks_that_others_need() -> None:
    bench = Bench(2)
    bench.prepare(bench.begin(), put(1, 1), cell=0)
    bench.answer_oracle()
    waiting = bench.commit_blind(bench.begin(), put(1, 2), put(2, 2))
    bench.commit(put(2, 1))
    assert bench.answer(waiting) is None
    assert bench.read(2) == (1, None)


def test_an_id_from_before_a_restart_is_refused() -> None:
    bench = Bench()
    reserved = bench.begin()
    bench.start(bench.nodes[0].cell.id)  # type: ignore[index]
    reply = bench.answer(bench.commit_blind(reserved, put(1, 1)))
    assert isinstance(reply, Failure)
    assert reply.kind == "snapshot_too_old"
    assert bench.read(1) is None


def test_a_repeat_gets_the_first_answer_and_writes_nothing() -> None:
    bench = Bench()
    reserved = bench.begin()
    first = bench.commit_blind(reserved, put(1, 1))
    again = bench.commit_blind(reserved, put(1, 1))
    bench.answer_oracle()
    bench.commit(put(1, 9))
    late = bench.commit_blind(reserved, put(1, 1))
    assert bench.answer(first) == bench.answer(again) == bench.answer(late)
    assert bench.read(1) == (9, None)


def test_a_repeat_from_long_ago_is_unknown() -> None:
    bench = Bench(1, CellLimits(transaction_life_s_max=1, forget_slack_s=1))
    reserved = bench.begin()
    bench.commit_blind(reserved, put(1, 1))
    bench.answer_oracle()
    bench.oracle += 20 * SECOND
    bench.commit(put(3, 1))
    bench.pass_time(10)
    bench.answer_oracle()
    bench.pass_time(10)
    reply = bench.answer(bench.commit_blind(reserved, put(1, 1)))
    assert reply == OutcomeUnknown(reserved)


def test_one_that_locks_rows_for_reading_is_not_blind() -> None:
    bench = Bench()
    part = changes(put(1, 1), locks=(RowLock(key(2), lock_mask=1, lock_type="shared_strong"),))
    reply = bench.answer(bench.ask(CommitOne(bench.begin(), (part,), is_blind=True)))
    assert isinstance(reply, Failure)
    assert reply.kind == "invalid_request"
    assert bench.asked == []


def test_a_question_for_the_outcome_aborts_a_waiting_blind_transaction() -> None:
    bench = Bench(2)
    holder = bench.begin()
    bench.prepare(holder, put(1, 1), cell=0)
    bench.answer_oracle()
    reserved = bench.begin()
    waiting = bench.commit_blind(reserved, put(1, 2))
    assert bench.answer(bench.ask(AskOutcome(reserved))) == Aborted(reserved)
    reply = bench.answer(waiting)
    assert isinstance(reply, Failure)
    assert reply.kind == "transaction_aborted"
    bench.decide(holder, None)
    bench.settle()
    assert bench.read(1) is None


def test_no_transaction_waits_behind_a_waiting_blind_commit() -> None:
    bench = Bench(2)
    bench.prepare(bench.begin(), put(1, 1), cell=0)
    bench.answer_oracle()
    bench.commit_blind(bench.begin(), put(1, 2), put(2, 2))
    route = bench.commit_one(bench.begin(), put(2, 1))
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)
