"""Two-phase commit: decisions, lost and repeated messages, recovery, crashes of either side."""

import pytest

from dodona.types import CellId, Timestamp, TransactionId
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.records import AllAcknowledged
from dodona_tablets.core.tablet.transaction import State
from dodona_wire.messages.base import Failure
from dodona_wire.messages.cells import (
    Acknowledge,
    AskCoordinator,
    QueryStatus,
    Status,
    TellAbort,
    TellCommit,
)
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    Committed,
    Decide,
    OutcomeUnknown,
    Prepare,
    Prepared,
)
from unit.tablets.cells import ATOMIC, SECOND, Bench, changes, put

ZERO, ONE = CellId(0), CellId(1)


def prepared(bench: Bench) -> tuple[TransactionId, Timestamp]:
    """A transaction prepared at cells 0 and 1, and the commit timestamp it must get."""
    start = bench.begin()
    routes = [bench.prepare(start, put(1, 1), cell=cell) for cell in (0, 1)]
    bench.answer_oracle()
    votes = [bench.answer(route) for route in routes]
    assert all(isinstance(vote, Prepared) for vote in votes)
    return start, max(vote.timestamp for vote in votes)  # type: ignore[union-attr]


def read_everywhere(bench: Bench) -> list[object]:
    return [bench.read(1, cell=cell) for cell in (0, 1)]


def locked_count(bench: Bench) -> int:
    return sum(node.cell.tablets[ATOMIC].locked_count() for node in bench.nodes.values())


def test_a_decision_reaches_all_and_is_one_timestamp() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    assert bench.answer(bench.decide(start, at)) == Committed(start, at)
    bench.settle()
    assert read_everywhere(bench) == [(1, None)] * 2
    assert bench.read(1, at, cell=1) == (1, None)
    assert bench.read(1, Timestamp(at - 1), cell=1) is None
    assert locked_count(bench) == 0
    assert AllAcknowledged(start) in bench.logs[ZERO]


def test_everything_may_be_repeated() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    for _ in range(2):
        assert bench.answer(bench.decide(start, at)) == Committed(start, at)
        repeat = bench.prepare(start, put(1, 1), cell=1)
        assert bench.answer(repeat) == Prepared(start, at)
    bench.in_flight *= 3
    bench.settle()
    for cell in (0, 1):
        repeat = bench.prepare(start, put(1, 1), cell=cell)
        assert bench.answer(repeat) == Committed(start, at)
    assert bench.answer(bench.decide(start, at)) == Committed(start, at)
    assert bench.answer(bench.decide(start, None)) == Committed(start, at)
    bench.settle()
    assert len(bench.nodes[ONE].cell.tablets[ATOMIC].dump()[0][1]) == 1


def test_an_abort_releases_the_locks_of_all_participants_immediately() -> None:
    bench = Bench(2)
    start, _ = prepared(bench)
    # The coordinator is prepared too, so the question starts recovery; a refusal decides it.
    other = bench.begin()
    bench.prepare(other, put(2, 2), cell=1)
    bench.answer_oracle()
    assert bench.answer(bench.decide(other, None)) == Aborted(other)
    bench.settle()
    assert locked_count(bench) == 2  # those of `start`
    assert bench.read(2, cell=1) is None
    del start


def test_an_abort_request_after_all_prepared_is_answered_with_the_commit() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    route = bench.decide(start, None)
    assert bench.answer(route) is None
    bench.settle()
    assert bench.answer(route) == Committed(start, at)
    assert read_everywhere(bench) == [(1, None)] * 2


def test_the_coordinator_recovers_by_itself_and_asks_until_answered() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    bench.pass_time(2.2)
    assert QueryStatus(ZERO, start) in [body for _, body in bench.in_flight]
    bench.in_flight.clear()
    bench.pass_time(1.2)
    bench.settle()
    assert bench.read(1, at) == (1, None)
    assert locked_count(bench) == 0


def test_recovery_poisons_a_transaction_in_a_cell_that_is_not_prepared() -> None:
    bench = Bench(2)
    start = bench.begin()
    bench.prepare(start, put(1, 1), cell=0)
    bench.answer_oracle()
    route = bench.ask(AskOutcome(start))
    bench.deliver()
    assert bench.answer(route) == Aborted(start)
    late = bench.answer(bench.prepare(start, put(1, 1), cell=1))
    assert isinstance(late, Failure)
    assert late.kind == "transaction_aborted"
    assert locked_count(bench) == 0


def test_a_participant_asks_the_coordinator_and_an_unheard_of_transaction_aborts() -> None:
    bench = Bench(2)
    start = bench.begin()
    bench.prepare(start, put(1, 1), cell=1)
    bench.answer_oracle()
    bench.pass_time(1.2)
    assert (ZERO, AskCoordinator(ONE, start)) in bench.in_flight
    bench.settle()
    assert locked_count(bench) == 0
    refused = bench.answer(bench.prepare(start, put(1, 1), cell=0))
    assert isinstance(refused, Failure)


def test_announcements_are_repeated_until_acknowledged() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    bench.decide(start, at)
    bench.in_flight.clear()
    bench.pass_time(1.2)
    assert (ONE, TellCommit(ZERO, start, at)) in bench.in_flight
    bench.settle()
    bench.pass_time(3)
    assert not bench.in_flight


def test_a_coordinator_that_crashes_before_the_decision_commits_if_all_prepared() -> None:
    bench = Bench(2)
    _, at = prepared(bench)
    bench.start(ZERO)
    assert locked_count(bench) == 2
    bench.pass_time(0.3)
    bench.settle()
    assert bench.read(1, at) == (1, None)
    assert locked_count(bench) == 0


def test_a_coordinator_that_crashes_after_the_decision_announces_it_again() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    bench.decide(start, at)
    bench.in_flight.clear()
    bench.start(ZERO)
    assert bench.answer(bench.ask(AskOutcome(start))) == Committed(start, at)
    bench.pass_time(0.3)
    bench.settle()
    assert read_everywhere(bench) == [(1, None)] * 2


def test_a_participant_stays_prepared_after_a_crash() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    bench.start(ONE)
    reader = bench.lookup(1, cell=1)
    assert bench.answer(reader) is None  # the locks were taken again
    bench.decide(start, at)
    bench.settle()
    rows = bench.answer(reader)
    assert rows is not None
    assert rows.rows == ((1, None),)  # type: ignore[union-attr]


def test_a_crash_of_a_participant_that_was_only_locked_aborts() -> None:
    bench = Bench(2)
    start = bench.begin()
    bench.prepare(start, put(1, 1), cell=0)
    bench.answer_oracle()
    bench.prepare(start, put(1, 1), cell=1)
    bench.asked.clear()
    bench.start(ONE)
    route = bench.ask(AskOutcome(start))
    bench.settle()
    assert bench.answer(route) == Aborted(start)
    refused = bench.answer(bench.prepare(start, put(1, 1), cell=1))
    assert isinstance(refused, Failure)


def test_a_restarting_cell_drops_messages_and_is_asked_again() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    node = bench.nodes[ONE]
    node.cell.fence = Timestamp(0)
    bench.decide(start, at)
    bench.deliver()
    assert bench.read(1, cell=0) == (1, None)
    node.cell.fence = at
    bench.pass_time(1.2)
    bench.settle()
    assert bench.read(1, cell=1) == (1, None)


def test_stale_statuses_and_acknowledgements_change_nothing() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    for body in (Status(ONE, start, "refused", Timestamp(0)), Acknowledge(ONE, start)):
        bench.nodes[ZERO].handle_cell_message(body, bench.now)  # it did not ask
    assert bench.answer(bench.decide(start, at)) == Committed(start, at)
    bench.settle()
    stale = TellAbort(ZERO, TransactionId(5))
    bench.nodes[ONE].handle_cell_message(stale, bench.now)
    assert read_everywhere(bench) == [(1, None)] * 2


def test_a_cell_refuses_the_false_requests_of_a_client_and_continues() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    for body in (
        Decide(start, (ZERO, ONE), Timestamp(5)),  # below what was prepared
        Decide(bench.begin(), (ZERO, ONE), at),  # never prepared
        Prepare(bench.begin(), (ZERO,), (changes(put(1, 1)),)),  # not several
        Prepare(bench.begin(), (ONE, CellId(7)), (changes(put(1, 1)),)),  # not this cell
        Prepare(bench.begin(), (ZERO, ZERO), (changes(put(1, 1)),)),
    ):
        reply = bench.answer(bench.ask(body))
        assert isinstance(reply, Failure)
        assert reply.kind == "invalid_request"
    asked = bench.answer(bench.ask(AskOutcome(start), cell=1))
    assert isinstance(asked, Failure)
    assert asked.attributes == {"coordinator": 0}
    assert bench.answer(bench.decide(start, at)) == Committed(start, at)


def test_a_decision_below_the_watermark_is_confirmed_and_a_question_is_not() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    bench.decide(start, at)
    bench.settle()
    for _ in range(100):
        bench.pass_time(1)
        bench.answer_oracle()
    assert not bench.in_flight
    assert bench.answer(bench.decide(start, at)) == Committed(start, at)
    assert bench.in_flight == [(ONE, TellCommit(ZERO, start, at))]
    assert bench.answer(bench.ask(AskOutcome(start))) == OutcomeUnknown(start)
    bench.settle()
    assert read_everywhere(bench) == [(1, None)] * 2
    assert bench.oracle > start + 90 * SECOND


@pytest.mark.parametrize("above", [0, 1])
def test_the_watermark_itself_is_below_for_decisions_and_questions(above: int) -> None:
    """Rule 12: nothing is recorded there."""
    bench = Bench(2)
    start = bench.begin()
    node = bench.nodes[ZERO]
    node.cell.outcomes.raise_watermark(Timestamp(start - above))
    reply = bench.answer(bench.decide(start, Timestamp(start + 1)))
    assert isinstance(reply, Failure if above else Committed)
    bench.in_flight.clear()
    node.handle_cell_message(AskCoordinator(ONE, start), bench.now)
    bench.carry_out(ZERO)
    assert bench.in_flight == [(ONE, TellAbort(ZERO, start, is_forgotten=not above))]
    assert node.cell.state_of(start) is (State.REFUSED if above else State.NONE)


# ---- messages that come when all is forgotten: found by the simulator (seed 1249)


def long_prepared() -> tuple[Bench, TransactionId, Timestamp]:
    """Prepared in both cells for longer than a transaction lives; nothing is under way."""
    limits = CellLimits(transaction_life_s_max=3, forget_slack_s=1, watermark_period_ms=200)
    bench = Bench(2, limits)
    start, at = prepared(bench)
    bench.pass_time(8)
    bench.in_flight.clear()
    bench.answer_oracle()
    return bench, start, at


def let_forget(bench: Bench, cell: CellId) -> None:
    for _ in range(3):
        bench.clock_us += 500_000
        bench.nodes[cell].tick(bench.now)
        bench.carry_out(cell)
        bench.answer_oracle()


def test_a_question_about_a_forgotten_commit_records_nothing() -> None:
    bench, start, at = long_prepared()
    bench.decide(start, at)
    bench.in_flight.clear()
    participant = bench.nodes[ONE]
    told = TellCommit(ZERO, start, at)
    participant.handle_cell_message(told, bench.now)
    bench.carry_out(ONE)
    bench.in_flight.clear()  # its acknowledgement is lost
    let_forget(bench, ONE)
    assert participant.cell.state_of(start) is State.NONE
    participant.handle_cell_message(QueryStatus(ZERO, start), bench.now)
    assert participant.cell.state_of(start) is State.NONE
    participant.handle_cell_message(told, bench.now)
    bench.carry_out(ONE)
    bench.settle()
    assert bench.read(1, cell=1) == (1, None)


def test_a_late_question_to_a_coordinator_that_forgot_undoes_nothing() -> None:
    bench, start, at = long_prepared()
    bench.decide(start, at)
    bench.settle()
    let_forget(bench, ZERO)
    assert bench.nodes[ZERO].cell.state_of(start) is State.NONE
    bench.nodes[ZERO].handle_cell_message(AskCoordinator(ONE, start), bench.now)
    bench.carry_out(ZERO)
    bench.deliver()
    assert bench.nodes[ZERO].cell.state_of(start) is State.NONE
    assert bench.nodes[ONE].cell.counts.protocol_violation_count == 0, "nobody lied"
    assert bench.read(1, cell=1) == (1, None)


def test_a_prepared_cell_learns_of_an_abort_from_a_coordinator_with_an_empty_log() -> None:
    """Its coordinator never was: it was told of the transaction only by the question."""
    bench, start, _ = long_prepared()
    bench.logs[ZERO] = []
    bench.add(ZERO)
    bench.pass_time(8)
    bench.answer_oracle()
    bench.nodes[ZERO].cell.outcomes.raise_watermark(Timestamp(start + 1))
    bench.nodes[ZERO].handle_cell_message(AskCoordinator(ONE, start), bench.now)
    bench.carry_out(ZERO)
    bench.settle()
    assert bench.nodes[ONE].cell.state_of(start) is State.REFUSED
    assert bench.read(1, cell=1) is None
