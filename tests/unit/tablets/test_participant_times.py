"""When participants and coordinators ask again, to the millisecond, whom they answer, and what
they count."""

import pytest

from dodona.types import CellId
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.counts import CommitCounts
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import AskOutcome, Committed
from unit.tablets.cells import Bench, put

CELL = CellId(0)
ANSWERED_MAX = 8
LIMITS = CellLimits(ask_coordinator_after_ms=1_100, recover_after_ms=1_700, repeat_after_ms=1_050)


def questions_after_ms(bench: Bench, cell: int, count: int) -> list[int]:
    """When so many messages left the cell, from now on."""
    found: list[int] = []
    node = bench.nodes[CellId(cell)]
    for after_ms in range(1, 5_000):
        bench.clock_us += 1_000
        node.tick(bench.now)
        bench.carry_out(CellId(cell))
        found += [after_ms] * len(bench.in_flight)
        bench.in_flight.clear()
        if len(found) >= count:
            break
    return found


@pytest.mark.parametrize(
    ("cell", "expected"), [(0, [1_700, 2_750, 3_800]), (1, [1_100, 2_150, 3_200])]
)
def test_the_coordinator_asks_for_an_outcome_later_than_other_participants(
    cell: int, expected: list[int]
) -> None:
    bench = Bench(2, LIMITS)
    start = bench.begin()
    for at in (0, 1):
        bench.prepare(start, put(at, at), cell=at)
    bench.answer_oracle()
    assert not bench.in_flight
    assert questions_after_ms(bench, cell, 3) == expected


def test_the_coordinator_announces_a_commit_again_until_it_is_acknowledged() -> None:
    bench = Bench(2, LIMITS)
    start = bench.begin()
    votes = [bench.prepare(start, put(at, at), cell=at) for at in (0, 1)]
    bench.answer_oracle()
    prepared = [bench.answer(vote) for vote in votes]
    bench.decide(start, max(it.timestamp for it in prepared))  # type: ignore[union-attr]
    assert len(bench.in_flight) == 1
    bench.in_flight.clear()
    assert questions_after_ms(bench, 0, 3) == [1_050, 2_100, 3_150]


@pytest.mark.parametrize(("tell_after_ms", "expected"), [(1_049, 1_049), (1_050, 2_098)])
def test_a_question_for_an_outcome_reports_a_silent_participant_in_time(
    tell_after_ms: int, expected: int
) -> None:
    """A look is taken each time that the participant is asked again."""
    bench = Bench(2, CellLimits(tell_silence_after_ms=tell_after_ms, repeat_after_ms=1_049))
    start = bench.begin()
    bench.prepare(start, put(1, 1), cell=0)
    bench.answer_oracle()
    route = bench.ask(AskOutcome(start))
    found = None
    for after_ms in range(1, 3_000):
        bench.clock_us += 1_000
        bench.nodes[CELL].tick(bench.now)
        bench.carry_out(CELL)
        if found is None and bench.answer(route) is not None:
            found = after_ms
    assert found == expected


def test_a_cell_asks_the_oracle_again_until_the_oracle_answers() -> None:
    bench = Bench(limits=LIMITS)
    start = bench.begin()
    route = bench.commit_one(start, put(1, 1))
    found = []
    for after_ms in range(1, 3_200):
        bench.asked.clear()
        bench.clock_us += 1_000
        bench.nodes[CELL].tick(bench.now)
        bench.carry_out(CELL)
        found += [after_ms] * bench.asked.count((CELL, start))
    assert found == [1_050, 2_100, 3_150]
    bench.asked = [(CELL, start)]
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)


def test_only_a_bounded_number_of_repeated_commits_is_answered() -> None:
    bench = Bench()
    start = bench.begin()
    routes = [bench.commit_one(start, put(1, 1)) for _ in range(ANSWERED_MAX + 2)]
    bench.answer_oracle()
    answered = [bench.answer(route) is not None for route in routes]
    assert answered == [False] * 2 + [True] * ANSWERED_MAX


def test_only_a_bounded_number_of_questions_for_an_outcome_is_answered() -> None:
    bench = Bench(2)
    start = bench.begin()
    for at in (0, 1):
        bench.prepare(start, put(at, at), cell=at)
    bench.answer_oracle()
    routes = [bench.ask(AskOutcome(start)) for _ in range(ANSWERED_MAX + 2)]
    assert not any(bench.answer(route) for route in routes)
    bench.settle()
    answered = [bench.answer(route) is not None for route in routes]
    assert answered == [False] * 2 + [True] * ANSWERED_MAX


def counts_of(bench: Bench, cell: int = 0) -> CommitCounts:
    found = bench.nodes[CellId(cell)].cell
    assert found is not None
    return found.counts


def test_blind_commits_are_counted_and_no_others() -> None:
    bench = Bench()
    counts = counts_of(bench)
    bench.commit(put(1, 1))
    assert counts.blind == 0
    bench.commit_blind(bench.begin(), put(1, 2))
    bench.answer_oracle()
    bench.commit(put(1, 3))
    assert counts.blind == 1


def test_each_participant_counts_the_commits_that_the_coordinator_announces() -> None:
    bench = Bench(3)
    for number in (1, 2):
        start = bench.begin()
        votes = [bench.prepare(start, put(number, number), cell=cell) for cell in range(3)]
        bench.answer_oracle()
        prepared = [bench.answer(vote) for vote in votes]
        at = max(it.timestamp for it in prepared)  # type: ignore[union-attr]
        bench.decide(start, at)
        bench.settle()
    assert [counts_of(bench, cell).participated for cell in range(3)] == [0, 2, 2]


@pytest.mark.parametrize(
    ("wait_ms", "kind", "count"), [(500, "transaction_conflict", 1), (5_000, "unavailable", 0)]
)
def test_a_wait_that_timed_out_is_counted_only_if_it_is_a_conflict(
    wait_ms: int, kind: str, count: int
) -> None:
    """It is none once the coordinator of the transaction in the way is known to be silent."""
    bench = Bench(2, CellLimits(blocked_wait_ms_max=wait_ms))
    bench.prepare(bench.begin(), put(1, 1), cell=1)
    bench.answer_oracle()
    route = bench.commit_one(bench.begin(), put(1, 2), cell=1)
    bench.pass_time(wait_ms / 1000 + 0.5)
    reply = bench.answer(route)
    assert isinstance(reply, Failure)
    assert reply.kind == kind
    assert counts_of(bench, 1).conflicts["timeout"] == count
