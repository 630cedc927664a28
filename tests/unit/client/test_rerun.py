"""Running a function as a transaction again and again: what is rerun, asked about, or raised."""

import pytest

from dodona._core.protocol.steps import Pause, Target
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer
from dodona.errors import (
    CommitOutcomeUnknown,
    DataCorrupted,
    DiskFull,
    DodonaError,
    InvalidRequest,
    SchemaViolation,
    SnapshotTooOld,
    TransactionConflict,
    Unavailable,
)
from dodona.types import CellId, Timestamp, TransactionId
from dodona_wire.messages.data import Aborted, AskOutcome, Committed, OutcomeUnknown
from dodona_wire.messages.families import Reply, Request
from unit.client.protocols import (
    LOST,
    Clock,
    Play,
    begin,
    finish,
    new_session,
    nobody,
    play,
    table,
    with_rows,
)

ID = TransactionId(50)


def fresh() -> tuple[Clock, Session]:
    clock = Clock()
    return clock, new_session(clock, table())


@pytest.mark.parametrize("error", [TransactionConflict, SnapshotTooOld, Unavailable])
def test_errors_that_a_new_transaction_can_avoid_cause_a_rerun(error: type[DodonaError]) -> None:
    clock, session = fresh()
    after = Play(clock, session.after_failure(session.rerun(10, 30_000), None, error("no")))
    assert isinstance(after.step, Pause)
    after.wait()
    assert after.result is False


@pytest.mark.parametrize("error", [SchemaViolation, DataCorrupted, InvalidRequest, DodonaError])
def test_errors_that_a_new_transaction_cannot_avoid_are_raised(error: type[DodonaError]) -> None:
    clock, session = fresh()
    original = error("no")
    with pytest.raises(error) as caught:
        Play(clock, session.after_failure(session.rerun(10, 30_000), None, original))
    assert caught.value is original


def test_attempts_have_an_end() -> None:
    clock, session = fresh()
    rerun = session.rerun(3, 30_000)
    for _ in range(2):
        play(clock, session.after_failure(rerun, None, TransactionConflict("no")), nobody)
    with pytest.raises(TransactionConflict, match="last"):
        play(clock, session.after_failure(rerun, None, TransactionConflict("last")), nobody)


def test_a_deadline_ends_the_reruns() -> None:
    clock, session = fresh()
    rerun = session.rerun(10, 1_000)
    clock.now_us += 1_000_000
    with pytest.raises(TransactionConflict):
        play(clock, session.after_failure(rerun, None, TransactionConflict("no")), nobody)


@pytest.mark.parametrize(
    ("before_ms", "is_hurried"), [(900, True), (100, False)], ids=["hurried", "not hurried"]
)
def test_an_attempt_with_little_time_hides_no_error_of_the_one_before(
    before_ms: int, is_hurried: bool
) -> None:
    """What it was given up for: no time at all, or a server that had a few milliseconds."""
    for late in (
        Unavailable("no time", timeout_ms=1_000, is_sent=False),
        Unavailable("no answer in 4 ms", server="oracle"),
    ):
        clock, session = fresh()
        full = DiskFull("no room")
        rerun = session.rerun(10, 30_000, timeout_ms=1_000)
        clock.now_us += before_ms * 1000
        play(clock, session.after_failure(rerun, None, full), nobody)
        clock.now_us += 1_000_000 - before_ms * 1000
        with pytest.raises(DodonaError) as caught:
            play(clock, session.after_failure(rerun, None, late), nobody)
        assert caught.value is (full if is_hurried else late)


def test_an_attempt_that_ends_at_the_deadline_raises_its_own_error() -> None:
    """No attempt begins after `deadline_ms`, and one that began has its time."""
    clock, session = fresh()
    rerun = session.rerun(10, 1_000)
    clock.now_us += 900_000
    play(clock, session.after_failure(rerun, None, DiskFull("no room")), nobody)
    clock.now_us += 100_000
    found = Unavailable("no answer", cell=1)
    with pytest.raises(Unavailable) as caught:
        play(clock, session.after_failure(rerun, None, found), nobody)
    assert caught.value is found


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0), (-1, 1)])
def test_bounds_are_positive(bounds: tuple[int, int]) -> None:
    _, session = fresh()
    with pytest.raises(InvalidRequest):
        session.rerun(*bounds)


def in_doubt(clock: Clock, session: Session) -> tuple[TransactionBuffer, CommitOutcomeUnknown]:
    transaction = with_rows(clock, session, 1)
    commit = Play(clock, session.commit(transaction))
    commit.answer(LOST)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        commit.answer(OutcomeUnknown(ID))
    return transaction, caught.value


def test_an_unknown_outcome_is_asked_for_first() -> None:
    clock, session = fresh()
    transaction, error = in_doubt(clock, session)
    after = Play(clock, session.after_failure(session.rerun(10, 30_000), transaction, error))
    assert after.call == (0, AskOutcome(ID))
    after.answer(Committed(ID, Timestamp(60)))
    assert after.result is True
    assert (transaction.is_committed, transaction.commit_timestamp) == (True, 60)


def test_an_outcome_that_proves_to_be_abort_is_run_again() -> None:
    clock, session = fresh()
    transaction, error = in_doubt(clock, session)
    after = Play(clock, session.after_failure(session.rerun(10, 30_000), transaction, error))
    after.answer(Aborted(ID))
    after.wait()
    assert after.result is False
    assert transaction.is_aborted


def test_an_outcome_that_stays_unknown_is_raised_and_never_run_again() -> None:
    def never(target: Target, body: Request) -> Reply:
        return LOST

    def forgotten(target: Target, body: Request) -> Reply:
        return OutcomeUnknown(ID)

    for answer in (never, forgotten):
        clock, session = fresh()
        transaction, error = in_doubt(clock, session)
        rerun = session.rerun(10, 30_000)
        after = Play(clock, session.after_failure(rerun, transaction, error))
        with pytest.raises(CommitOutcomeUnknown) as caught:
            finish(after, answer)
        assert caught.value is error


def test_the_doubt_about_another_transaction_is_raised() -> None:
    clock, session = fresh()
    transaction = begin(clock, session)
    transaction.abort()
    error = CommitOutcomeUnknown("of another", transaction=7, coordinator=CellId(0))
    for doubtful in (transaction, None):
        after = session.after_failure(session.rerun(10, 30_000), doubtful, error)
        with pytest.raises(CommitOutcomeUnknown):
            play(clock, after, nobody)
