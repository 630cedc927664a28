"""Functions that run again: which rows the next attempt locks before it begins, and how many."""

import pytest

from dodona._core.protocol.retry import CONFLICTS_BEFORE_LOCKS, LOCKED_ROWS_MAX, Rerun
from dodona._core.protocol.steps import ORACLE
from dodona._core.writing.early_locks import LEASE_MS
from dodona.errors import RowBlocked, TransactionConflict
from dodona.types import Key, Timestamp
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.locks import AcquireLocks, LocksGranted, TabletKeys
from dodona_wire.types import Owner, Revision, TabletId
from unit.client.protocols import (
    CONFLICT,
    PATH,
    Clock,
    Play,
    begin,
    key,
    new_session,
    nobody,
    play,
    table,
    tablet,
)

OTHER = "//u"
OWNER, START = 40, 50


def stamp(at: int) -> TimestampRange:
    return TimestampRange(Timestamp(at), 1)


def rerun_of(clock: Clock, deadline_ms: int = 30_000) -> Rerun:
    return Rerun(clock.instant_us, lambda: 0.5, attempts_max=None, deadline_ms=deadline_ms)


def rows(*ids: int) -> dict[str, list[Key]]:
    return {PATH: [key(it) for it in ids]}


def test_rows_are_locked_from_the_third_conflict_on() -> None:
    rerun = rerun_of(Clock())
    for number in range(1, CONFLICTS_BEFORE_LOCKS):
        rerun.note_rows(rows(number))
        assert rerun.rows == {}
    rerun.note_rows(rows(7))
    assert rerun.rows == rows(7)
    rerun.note_rows({**rows(8, 7), OTHER: [key(1)]})
    assert rerun.rows == {**rows(7, 8), OTHER: [key(1)]}, "with those of the attempts before it"


def test_very_many_rows_are_not_locked() -> None:
    rerun = rerun_of(Clock())
    for _ in range(CONFLICTS_BEFORE_LOCKS):
        rerun.note_rows(rows(*range(LOCKED_ROWS_MAX)))
    assert len(rerun.rows[PATH]) == LOCKED_ROWS_MAX
    rerun.note_rows(rows(LOCKED_ROWS_MAX))
    assert rerun.rows == {}


@pytest.mark.parametrize(("number", "kept"), [(1_000, 1_000), (1_001, 0)])
def test_a_refused_transaction_keeps_a_bounded_number_of_rows(number: int, kept: int) -> None:
    clock = Clock()
    session = new_session(clock, table((tablet(10, 0, None),)))
    buffer = begin(clock, session)
    given = [{"id": it, "value": 1} for it in range(number)]
    play(clock, session.insert_rows(buffer, PATH, given), nobody)
    committing = Play(clock, session.commit(buffer))
    with pytest.raises(TransactionConflict):
        committing.answer(CONFLICT)
    assert len(buffer.refused_rows.get(PATH, ())) == kept


def test_an_attempt_locks_the_rows_and_waits_no_longer_than_the_reruns() -> None:
    clock = Clock()
    session = new_session(clock, table())
    rerun = rerun_of(clock, deadline_ms=5_000)
    for _ in range(CONFLICTS_BEFORE_LOCKS):
        rerun.note_rows(rows(1))
    clock.now_us += 4_500_000
    it = Play(clock, session.begin_attempt(rerun, ()))
    it.answer(stamp(OWNER))
    row = TabletKeys(TabletId(10), Revision(1), (key(1),))
    assert it.call == (0, AcquireLocks(Owner(OWNER), (row,), LEASE_MS, 500, is_last=True))
    it.answer(LocksGranted(Owner(OWNER), (row,)))
    assert it.calls == ((ORACLE, GenerateTimestamps(1)),), "after the grant"
    it.answer(stamp(START))
    assert it.result.locked_rows == {PATH: [{"id": 1}]}
    assert it.result.start_timestamp == START


def test_a_blocked_attempt_is_run_again_with_its_rows() -> None:
    clock = Clock()
    session = new_session(clock, table())
    rerun = rerun_of(clock)
    for _ in range(CONFLICTS_BEFORE_LOCKS):
        rerun.note_rows(rows(1))
    play(clock, session.after_failure(rerun, None, RowBlocked("no")), nobody)
    assert rerun.rows == rows(1)
