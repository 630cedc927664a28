"""The question that only looks: what a cell answers, and that nothing changes by it."""

import pytest

from dodona.types import CellId, Timestamp, TransactionId
from dodona_tablets.core.tablet.transaction import State
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    Committed,
    Decide,
    OutcomeUnknown,
    PeekOutcome,
    Prepared,
    Undecided,
)
from dodona_wire.messages.families import Reply
from unit.tablets.cells import Bench, put

ZERO, ONE = CellId(0), CellId(1)


def peek(bench: Bench, transaction: TransactionId, cell: int = 0) -> Reply | None:
    node = bench.nodes[CellId(cell)]
    state, log = node.cell.state_of(transaction), list(bench.logs[CellId(cell)])
    answer = bench.answer(bench.ask(PeekOutcome(transaction), cell))
    assert node.cell.state_of(transaction) is state
    assert bench.logs[CellId(cell)] == log
    assert not bench.asked
    return answer


def pass_time(bench: Bench, seconds: int) -> None:
    for _ in range(seconds):
        bench.pass_time(1)
        bench.settle()


def committed_one(bench: Bench) -> tuple[TransactionId, Timestamp]:
    start = bench.begin()
    route = bench.commit_one(start, put(1, 1))
    bench.answer_oracle()
    reply = bench.answer(route)
    assert isinstance(reply, Committed)
    return start, reply.timestamp


def refused_one(bench: Bench) -> TransactionId:
    start = bench.begin()
    bench.commit(put(2, 1))
    assert isinstance(bench.answer(bench.commit_one(start, put(2, 2))), Failure)
    return start


def prepared_in_both(bench: Bench) -> tuple[TransactionId, Timestamp]:
    start = bench.begin()
    routes = [bench.prepare(start, put(3, 3), cell=cell) for cell in (0, 1)]
    bench.answer_oracle()
    votes = [bench.answer(route) for route in routes]
    assert all(isinstance(vote, Prepared) for vote in votes)
    return start, max(vote.timestamp for vote in votes)  # type: ignore[union-attr]


def test_an_unknown_transaction_is_undecided_and_may_still_commit() -> None:
    bench = Bench()
    start = bench.begin()
    assert peek(bench, start) == Undecided(start)
    route = bench.commit_one(start, put(1, 1))
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)


def test_a_transaction_with_locks_is_undecided_and_its_coordinator_is_named() -> None:
    bench = Bench(2)
    start = bench.begin()
    route = bench.ask(Decide(start, (), Timestamp(1)))  # nonsense, and not recorded
    assert isinstance(bench.answer(route), Failure)
    for cell in (0, 1):
        bench.prepare(start, put(1, 1), cell=cell)
    for node in bench.nodes.values():
        assert node.cell.state_of(start) is State.LOCKED
    bench.asked.clear()
    assert peek(bench, start, 1) == Undecided(start, ZERO)


def test_a_transaction_that_waits_for_a_row_is_undecided() -> None:
    bench = Bench(2)
    prepared_in_both(bench)
    start = bench.begin()
    bench.commit_one(start, put(3, 4))
    assert bench.nodes[ZERO].cell.state_of(start) is State.WAITING
    assert peek(bench, start) == Undecided(start, ZERO)


def test_a_prepared_transaction_is_undecided_and_a_peek_starts_no_recovery() -> None:
    bench = Bench(2)
    start, _ = prepared_in_both(bench)
    for cell in (0, 1):
        assert peek(bench, start, cell) == Undecided(start, ZERO)
    assert not bench.in_flight


def test_commits_and_refusals_are_known() -> None:
    bench = Bench(2)
    start, at = committed_one(bench)
    refused = refused_one(bench)
    both, last = prepared_in_both(bench)
    bench.decide(both, last)
    assert peek(bench, both) == Committed(both, last)
    assert peek(bench, both, 1) == Undecided(both, ZERO)  # the word is on its way
    bench.settle()
    assert peek(bench, both, 1) == Committed(both, last)
    assert peek(bench, start) == Committed(start, at)
    assert peek(bench, refused) == Aborted(refused)


def test_outcomes_known_before_a_restart_are_known_after_the_restart() -> None:
    bench = Bench(2)
    start, at = committed_one(bench)
    refused, stranger = refused_one(bench), bench.begin()
    both, last = prepared_in_both(bench)
    bench.start(ZERO)
    assert peek(bench, start) == Committed(start, at)
    # The refusal was never written down: the fence lets nobody in who began before it.
    assert peek(bench, refused) == Aborted(refused)
    assert peek(bench, stranger) == Aborted(stranger)
    assert isinstance(bench.answer(bench.commit_one(stranger, put(5, 5))), Failure)
    assert peek(bench, both) == Undecided(both, ZERO)
    bench.pass_time(0.3)
    bench.settle()
    assert peek(bench, both) == Committed(both, last)
    bench.start(ZERO)
    assert peek(bench, both) == Committed(both, last)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_answers_are_right_for_a_transaction_s_life_and_the_slack(is_restarted: bool) -> None:
    bench = Bench(2)
    start, at = committed_one(bench)
    refused, stranger = refused_one(bench), bench.begin()
    both, last = prepared_in_both(bench)
    bench.decide(both, last)
    bench.settle()
    pass_time(bench, 74)
    if is_restarted:
        bench.start(ZERO)
    assert peek(bench, start) == Committed(start, at)
    assert peek(bench, both) == Committed(both, last)
    assert peek(bench, refused) == Aborted(refused)
    assert peek(bench, stranger) == Aborted(stranger)
    pass_time(bench, 15)  # outcomes are forgotten by buckets of some seconds, every few seconds
    for transaction in (start, refused, stranger, both):
        assert peek(bench, transaction) == OutcomeUnknown(transaction)
    bench.start(ZERO)
    for transaction in (start, refused, stranger, both):
        assert peek(bench, transaction) == OutcomeUnknown(transaction)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_prepared_transaction_is_undecided_at_any_age(is_restarted: bool) -> None:
    bench = Bench(2)
    start, at = prepared_in_both(bench)
    for _ in range(100):
        bench.commit(put(9, 9))  # something to forget
        bench.pass_time(1)
        bench.answer_oracle()
        bench.in_flight.clear()
    if is_restarted:
        bench.start(ONE)
        bench.in_flight.clear()
    assert bench.nodes[ZERO].cell.outcomes.watermark > start
    for cell in (0, 1):
        assert peek(bench, start, cell) == Undecided(start, ZERO)
    bench.pass_time(2)
    bench.settle()
    for cell in (0, 1):
        assert peek(bench, start, cell) == Committed(start, at)


def test_an_unknown_transaction_is_undecided_until_it_is_too_old_to_commit() -> None:
    bench = Bench()
    start = bench.begin()
    pass_time(bench, 59)
    assert peek(bench, start) == Undecided(start)
    pass_time(bench, 3)
    assert peek(bench, start) == Aborted(start)
    refused = bench.answer(bench.commit_one(start, put(1, 1)))
    assert isinstance(refused, Failure)
    assert refused.kind == "snapshot_too_old"


def test_settling_is_another_question() -> None:
    bench = Bench()
    start = bench.begin()
    assert peek(bench, start) == Undecided(start)
    assert bench.answer(bench.ask(AskOutcome(start))) == Aborted(start)
    assert peek(bench, start) == Aborted(start)


def test_a_starting_cell_refuses_a_peek_as_unavailable() -> None:
    bench = Bench()
    start, _ = committed_one(bench)
    bench.nodes[ZERO].cell.fence = Timestamp(0)
    reply = peek(bench, start)
    assert isinstance(reply, Failure)
    assert reply.kind == "unavailable"
