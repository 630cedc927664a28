"""Atomic commit, played by hand through every branch: who is asked what, and what is reported."""

from collections.abc import Callable

import pytest

from dodona._core.protocol.steps import MASTER, Calls, Target
from dodona._core.session import Session
from dodona._core.writing.outcomes import Outcome
from dodona._core.writing.transaction import TransactionState
from dodona.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    InvalidRequest,
    Overloaded,
    SchemaViolation,
    SnapshotTooOld,
    TabletMoved,
    TransactionAborted,
    TransactionConflict,
    Unavailable,
)
from dodona.types import CellId, Timestamp, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Cell, Cluster, GetCluster, GetTable
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    CommitOne,
    Committed,
    Decide,
    OutcomeUnknown,
    PeekOutcome,
    Prepare,
    Prepared,
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
    begin,
    finish,
    key,
    new_session,
    nobody,
    play,
    table,
    tablet,
    tablets_of,
    unchanged,
    with_rows,
)

ID = TransactionId(50)
NO_CELLS = Cluster((), ())
CELLS = (CellId(0), CellId(1))
ABORT = (0, Decide(ID, CELLS, None))
PROVED_ABORT = (0, Decide(ID, CELLS, None, is_proved=True))


def committed(at: int) -> Committed:
    return Committed(ID, Timestamp(at))


def prepared(at: int) -> Prepared:
    return Prepared(ID, Timestamp(at))


class Bench:
    """A session with one transaction whose commit has begun."""

    def __init__(self, *ids: int) -> None:
        self.clock = Clock()
        self.session = new_session(self.clock, table())
        self.transaction = with_rows(self.clock, self.session, *ids)
        self.commit = Play(self.clock, self.session.commit(self.transaction))

    @property
    def state(self) -> str:
        return self.transaction.state.value

    def outcome(self) -> Outcome:
        """Remembered: nobody is asked."""
        return play(self.clock, self.session.outcome(ID), nobody)

    def refuse(self, error: type[DodonaError], *replies: Reply) -> DodonaError:
        """The commit ends with this error when it gets these replies."""
        with pytest.raises(error) as caught:
            self.commit.answer(*replies)
        assert type(caught.value) is error
        return caught.value

    def ask_again(self, question: Request, *, cell: int = 0) -> None:
        """The answer was lost: after a pause the client looks for the cell and asks again."""
        self.commit.wait()
        assert self.commit.call == (MASTER, GetCluster())
        self.commit.answer(NO_CELLS)
        assert self.commit.call == (cell, question)


def one() -> Bench:
    return Bench(1)


def two() -> Bench:
    bench = Bench(1, 100)
    prepares = bench.commit.calls
    assert [target for target, _ in prepares] == [0, 1]
    assert all(isinstance(it, Prepare) and it.participants == CELLS for _, it in prepares)
    return bench


# ---- nothing, and one cell


def test_an_empty_transaction_commits_without_a_timestamp_and_without_requests() -> None:
    clock = Clock()
    session = new_session(clock, table())
    transaction = begin(clock, session)
    play(clock, session.insert_rows(transaction, PATH, []), nobody)
    assert play(clock, session.commit(transaction), nobody) is None
    assert (transaction.is_committed, transaction.commit_timestamp) == (True, None)


def test_one_row_takes_one_call() -> None:
    bench = one()
    target, body = bench.commit.call
    assert target == 0
    assert isinstance(body, CommitOne)
    (part,) = body.modifications
    assert (body.transaction, part.tablet, part.revision) == (ID, 10, 1)
    assert part.writes == ((key(1), 0b11, (1, None)),)
    assert bench.state == "committing"
    bench.commit.answer(committed(60))
    assert bench.commit.result == 60
    assert (bench.state, bench.transaction.commit_timestamp) == ("committed", 60)
    assert bench.outcome() == Outcome("committed", Timestamp(60))


def test_all_tablets_of_one_cell_are_in_one_call() -> None:
    clock = Clock()
    both_here = (tablet(10, 3, None), tablet(11, 3, 100))
    session = new_session(clock, table(both_here), table((tablet(12, 3, None),), path="//u"))
    transaction = with_rows(clock, session, 1, 100, 2)
    rows = [{"id": 5, "value": 5}]
    play(clock, session.insert_rows(transaction, "//u", rows), nobody)
    commit = Play(clock, session.commit(transaction))
    target, body = commit.call
    assert target == 3
    assert tablets_of(body) == [10, 11, 12]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("transaction_conflict", TransactionConflict),
        ("transaction_aborted", TransactionAborted),
        ("snapshot_too_old", SnapshotTooOld),
        ("schema_violation", SchemaViolation),
        ("overloaded", Overloaded),
        ("invalid_request", InvalidRequest),
    ],
)
def test_a_refusal_of_the_only_cell_is_final(kind: str, error: type[DodonaError]) -> None:
    bench = one()
    raised = bench.refuse(error, Failure(kind, "no", {"key": 1}))
    assert raised.attributes == {"key": 1}
    assert bench.state == "aborted"
    assert bench.outcome() == Outcome("aborted")


def test_a_stale_route_is_refreshed_and_the_commit_sent_to_where_the_tablet_is() -> None:
    bench = one()
    bench.commit.answer(MOVED)
    bench.commit.wait()
    assert bench.commit.call == (MASTER, GetTable(PATH))
    bench.commit.answer(table((tablet(10, 7, None, revision=2),)))
    target, body = bench.commit.call
    assert target == 7
    assert isinstance(body, CommitOne)
    assert body.modifications[0].revision == 2
    bench.commit.answer(committed(60))
    assert bench.state == "committed"


def test_after_a_move_the_rows_may_be_in_several_cells() -> None:
    clock = Clock()
    session = new_session(clock, table((tablet(10, 0, None), tablet(11, 0, 100))))
    transaction = with_rows(clock, session, 1, 100)
    commit = Play(clock, session.commit(transaction))
    commit.answer(MOVED)
    commit.wait()
    commit.answer(table())
    assert [type(body) for _, body in commit.calls] == [Prepare, Prepare]


def test_a_commit_that_never_left_is_retried_until_the_timeout() -> None:
    bench = one()
    attempts = 0
    began_us = bench.clock.now_us

    def answer(target: Target, body: Request) -> Reply:
        nonlocal attempts
        attempts += isinstance(body, CommitOne)
        return table() if target == MASTER else NEVER_SENT

    with pytest.raises(Unavailable):
        finish(bench.commit, answer)
    assert attempts > 10
    assert 9_000_000 <= bench.clock.now_us - began_us <= 11_000_000
    assert bench.outcome() == Outcome("aborted")


def test_a_lost_reply_is_asked_for() -> None:
    bench = one()
    bench.commit.answer(LOST)
    assert bench.commit.call == (0, AskOutcome(ID))
    bench.commit.answer(LOST)
    bench.ask_again(AskOutcome(ID))
    bench.commit.answer(committed(60))
    assert bench.commit.result == 60


def test_a_lost_request_is_found_aborted() -> None:
    bench = one()
    bench.commit.answer(LOST)
    error = bench.refuse(TransactionAborted, Aborted(ID))
    assert error.is_retryable
    assert bench.outcome() == Outcome("aborted")


def test_expired_is_no_proof_of_abort() -> None:
    bench = one()
    bench.commit.answer(OutcomeUnknown(ID))
    assert bench.commit.call == (0, AskOutcome(ID))
    error = bench.refuse(CommitOutcomeUnknown, OutcomeUnknown(ID))
    assert error.attributes == {"transaction": ID, "coordinator": 0}
    assert bench.state == "committing"


def never_answered(bench: Bench) -> CommitOutcomeUnknown:
    """Whoever is asked from here on does not answer."""
    began_us = bench.clock.now_us
    with pytest.raises(CommitOutcomeUnknown) as caught:
        finish(bench.commit, lambda target, body: LOST)
    assert 9_000_000 <= bench.clock.now_us - began_us <= 11_000_000
    return caught.value


def test_the_outcome_is_unknown_after_ten_seconds_without_an_answer() -> None:
    bench = one()
    error = never_answered(bench)
    assert error.attributes == {"transaction": ID, "coordinator": 0}
    assert bench.transaction.state is TransactionState.COMMITTING
    later = Play(bench.clock, bench.session.outcome(ID))
    assert later.call == (0, PeekOutcome(ID))
    later.answer(committed(60))
    assert later.result == Outcome("committed", Timestamp(60))
    assert bench.outcome() == later.result


def test_a_commit_asks_a_silent_cell_again_at_its_new_address() -> None:
    bench = one()
    bench.commit.answer(LOST)
    bench.commit.answer(LOST)
    bench.commit.wait()
    bench.commit.answer(Cluster((), (Cell(CellId(0), "elsewhere", True, 1),)))
    assert bench.session.routing.addresses[CellId(0)] == "elsewhere"
    assert bench.commit.call == (0, AskOutcome(ID))


def test_the_modes_of_table_and_transaction_must_match() -> None:
    clock = Clock()
    session = new_session(clock, table(atomicity="none"))
    transaction = with_rows(clock, session, 1)
    said = 'Invalid atomicity mode: "full" instead of "none"'
    with pytest.raises(InvalidRequest, match=said):
        play(clock, session.commit(transaction), unchanged(table(atomicity="none")))
    assert transaction.is_aborted


def test_rows_checked_against_an_older_schema_are_not_sent() -> None:
    clock = Clock()
    session = new_session(clock, table())
    transaction = with_rows(clock, session, 1)
    session.routing.learn(table(columns=COLUMNS[:2]))
    with pytest.raises(TransactionAborted, match="changed") as caught:
        play(clock, session.commit(transaction), nobody)
    assert caught.value.is_retryable
    assert transaction.is_aborted


# ---- several cells


def test_all_prepared_commits_at_the_largest_timestamp() -> None:
    bench = two()
    bench.commit.answer(prepared(70), prepared(65))
    assert bench.commit.call == (0, Decide(ID, CELLS, Timestamp(70)))
    bench.commit.answer(committed(70))
    assert bench.commit.result == 70
    assert bench.outcome() == Outcome("committed", Timestamp(70))


def test_with_acknowledgement_prepared_a_commit_returns_before_the_decision_reply() -> None:
    clock = Clock()
    session = new_session(clock, table(), acknowledgement="prepared")
    transaction = with_rows(clock, session, 1, 100)
    commit = Play(clock, session.commit(transaction))
    commit.answer(prepared(70), prepared(65))
    assert commit.posted() == ((0, Decide(ID, CELLS, Timestamp(70))),)
    assert commit.result == 70
    assert transaction.is_committed


def test_the_coordinator_is_the_smallest_cell_for_any_order_of_rows() -> None:
    bench = Bench(100, 1)
    assert [target for target, _ in bench.commit.calls] == [0, 1]
    assert bench.transaction.coordinator == 0


def test_the_prepares_may_end_at_the_first_refusal() -> None:
    step = two().commit.step
    assert isinstance(step, Calls)
    assert step.is_over_at_refusal


@pytest.mark.parametrize("replies", [(CONFLICT, LOST), (LOST, CONFLICT), (prepared(60), CONFLICT)])
def test_a_refused_prepare_is_reported_and_the_coordinator_gets_an_abort(
    replies: tuple[Reply, ...],
) -> None:
    bench = two()
    bench.commit.answer(*replies)
    with pytest.raises(TransactionConflict):
        assert bench.commit.posted() == (PROVED_ABORT,)
    assert bench.state == "aborted"
    assert bench.session.routing.find(PATH) is not None, "whoever was not waited for is not silent"


@pytest.mark.parametrize("reply", [NEVER_SENT, LOST])
def test_after_silence_the_next_commit_asks_where_the_cells_are(reply: Reply) -> None:
    """One may have come back somewhere else; an address that is dead stays so."""
    bench = two()
    bench.commit.answer(prepared(60), reply)
    with pytest.raises((Unavailable, TransactionAborted)):
        finish(bench.commit, lambda target, body: Aborted(ID))
    assert bench.session.routing.find(PATH) is None


@pytest.mark.parametrize("make", [one, two])
def test_a_session_forgets_the_route_after_an_unknown_outcome(make: Callable[[], Bench]) -> None:
    bench = make()
    if make is two:
        bench.commit.answer(prepared(60), prepared(61))
    never_answered(bench)
    assert bench.session.routing.find(PATH) is None


def test_an_aborted_answer_is_a_refusal() -> None:
    bench = two()
    bench.commit.answer(prepared(60), Aborted(ID))
    with pytest.raises(TransactionAborted):
        bench.commit.posted()


def test_a_stale_route_at_prepare_is_forgotten_and_the_abort_is_settled() -> None:
    """Who refuses so records nothing: a late copy of the prepare might still be let in."""
    bench = two()
    bench.commit.answer(prepared(60), MOVED)
    assert bench.commit.call == ABORT
    error = bench.refuse(TabletMoved, Aborted(ID))
    assert error.is_retryable
    assert bench.session.routing.find(PATH) is None
    assert bench.state == "aborted"


def test_a_transaction_may_commit_after_a_stale_route_at_prepare() -> None:
    bench = two()
    bench.commit.answer(prepared(60), MOVED)
    bench.commit.answer(committed(70))
    assert bench.commit.result == 70


def test_a_prepare_that_never_left_proves_the_abort() -> None:
    bench = two()
    bench.commit.answer(prepared(60), NEVER_SENT)
    with pytest.raises(Unavailable):
        assert bench.commit.posted() == (PROVED_ABORT,)
    assert bench.state == "aborted"


@pytest.mark.parametrize("replies", [(prepared(60), LOST), (LOST, prepared(60)), (LOST, LOST)])
def test_a_time_out_is_no_refusal_the_coordinator_is_asked(replies: tuple[Reply, ...]) -> None:
    bench = two()
    bench.commit.answer(*replies)
    assert bench.commit.call == ABORT
    bench.refuse(TransactionAborted, Aborted(ID))
    assert bench.state == "aborted"


def test_a_transaction_may_commit_after_a_lost_prepare_reply() -> None:
    bench = two()
    bench.commit.answer(prepared(60), LOST)
    bench.commit.answer(committed(66))
    assert bench.commit.result == 66


def test_a_prepare_answered_committed_counts() -> None:
    bench = two()
    bench.commit.answer(LOST, committed(66))
    assert bench.commit.result == 66


def test_a_prepare_below_the_watermark_is_asked_about() -> None:
    bench = two()
    bench.commit.answer(prepared(60), OutcomeUnknown(ID))
    assert bench.commit.call == ABORT
    bench.refuse(CommitOutcomeUnknown, OutcomeUnknown(ID))
    assert bench.state == "committing"


def test_a_lost_decision_is_repeated_and_never_turned_into_an_abort() -> None:
    bench = two()
    bench.commit.answer(prepared(60), prepared(61))
    decision = Decide(ID, CELLS, Timestamp(61))
    bench.commit.answer(LOST)
    bench.ask_again(decision)
    bench.commit.answer(Failure("overloaded", "busy"))
    bench.ask_again(decision)
    bench.commit.answer(committed(61))
    assert bench.commit.result == 61


def test_a_coordinator_that_never_answers_leaves_the_outcome_unknown() -> None:
    bench = two()
    bench.commit.answer(prepared(60), prepared(61))
    error = never_answered(bench)
    assert error.attributes["coordinator"] == 0


def test_an_answer_that_makes_no_sense_is_not_taken_for_an_abort() -> None:
    bench = two()
    bench.commit.answer(prepared(60), prepared(61))
    bench.refuse(CommitOutcomeUnknown, Failure("invalid_request", "what?"))
    assert bench.state == "committing"


def test_a_caller_that_goes_away_can_ask_later() -> None:
    bench = two()
    bench.commit.give_up()
    assert bench.state == "committing"
    later = Play(bench.clock, bench.session.outcome(ID))
    assert later.call == (0, PeekOutcome(ID))


# ---- the memory of outcomes


def test_the_memory_is_bounded() -> None:
    clock = Clock()
    session: Session = new_session(clock, table(TWO_TABLETS))
    session._keep(ID, Outcome("aborted"))
    for number in range(session.limits.outcomes_remembered_max):
        session._keep(TransactionId(1_000 + number), Outcome("aborted"))
    assert Play(clock, session.outcome(ID)).calls  # it has to ask
