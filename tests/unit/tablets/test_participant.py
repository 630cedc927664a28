"""The participant: one-cell commits, conflicts, waiting, repeats, the fence, the watermark."""

import pytest

from dodona.types import CellId, LockType, Revision, Timestamp, TransactionId
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.records import CommittedHere
from dodona_tablets.core.tablet.transaction import State
from dodona_wire.messages.base import Failure
from dodona_wire.messages.cells import QueryStatus
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    CommitOne,
    Committed,
    OutcomeUnknown,
    Prepared,
    RowLock,
    TabletModifications,
)
from unit.tablets.cells import (
    ATOMIC,
    NON_ATOMIC,
    REVISION,
    SECOND,
    Bench,
    changes,
    delete,
    key,
    put,
    update,
)


def kind(reply: object) -> str:
    assert isinstance(reply, Failure), reply
    return reply.kind


def test_a_commit_is_visible_from_its_timestamp_on() -> None:
    bench = Bench()
    at = bench.commit(put(1, 10, "x"))
    assert bench.read(1, at) == (10, "x")
    assert bench.read(1, type(at)(at - 1)) is None
    assert bench.read(1) == (10, "x")


def test_the_timestamp_is_asked_only_after_the_locks_are_held() -> None:
    bench = Bench()
    start = bench.begin()
    bench.commit_one(start, put(1, 1))
    assert bench.asked == [(0, start)]
    assert bench.nodes[0].cell.tablets[ATOMIC].locked_count() == 1  # type: ignore[index]


def test_a_conflict_with_a_later_write_names_the_key_lock_and_winner_timestamp() -> None:
    bench = Bench()
    late = bench.begin()
    winner = bench.commit(put(1, 1))
    reply = bench.answer(bench.commit_one(late, put(1, 2)))
    assert isinstance(reply, Failure)
    assert reply.kind == "transaction_conflict"
    assert reply.attributes["key"] == {"id": 1}
    assert reply.attributes["lock"] == "<primary>"
    assert reply.attributes["winner_timestamp"] == winner
    assert bench.read(1) == (1, None)


def test_a_lock_without_a_prepare_timestamp_is_an_immediate_conflict() -> None:
    bench = Bench()
    first, second = bench.begin(), bench.begin()
    held = bench.commit_one(first, put(1, 1))
    assert kind(bench.answer(bench.commit_one(second, put(1, 2)))) == "transaction_conflict"
    bench.answer_oracle()
    assert isinstance(bench.answer(held), Committed)


def test_writers_of_different_lock_groups_coexist_and_main_excludes_all() -> None:
    bench = Bench()
    bench.commit(put(1, 1, "one"))
    a, b, whole, gone = bench.begin(), bench.begin(), bench.begin(), bench.begin()
    first = bench.commit_one(a, update(1, a=2))
    # b's group is not a's (main), but everyone looks at main: the holder of main excludes it.
    assert kind(bench.answer(bench.commit_one(b, update(1, b="two")))) == "transaction_conflict"
    bench.answer_oracle()
    assert isinstance(bench.answer(first), Committed)
    assert kind(bench.answer(bench.commit_one(whole, put(1, 5)))) == "transaction_conflict"
    assert kind(bench.answer(bench.commit_one(gone, delete(1)))) == "transaction_conflict"
    assert bench.read(1) == (2, "one")


def test_read_locks_share_and_stop_writers() -> None:
    bench = Bench(2)
    bench.commit(put(1, 1))
    reader, writer, other = bench.begin(), bench.begin(), bench.begin()
    lock = RowLock(key(1), 1, "shared_strong")
    first = bench.ask(CommitOne(reader, (changes(locks=(lock,)),)))
    assert kind(bench.answer(bench.commit_one(writer, put(1, 2)))) == "transaction_conflict"
    second = bench.ask(CommitOne(other, (changes(locks=(lock,)),)))
    bench.answer_oracle()
    assert isinstance(bench.answer(first), Committed)
    assert isinstance(bench.answer(second), Committed)


def test_a_strong_lock_leaves_its_timestamp_and_a_weak_lock_does_not() -> None:
    for is_strong in (True, False):
        bench = Bench()
        bench.commit(put(1, 1))
        older, reader = bench.begin(), bench.begin()
        lock = RowLock(key(1), 1, "shared_strong" if is_strong else "shared_weak")
        bench.ask(CommitOne(reader, (changes(locks=(lock,)),)))
        bench.answer_oracle()
        route = bench.commit_one(older, put(1, 2))
        bench.answer_oracle()
        assert isinstance(bench.answer(route), Failure if is_strong else Committed)


def test_a_repeat_gets_the_same_answer() -> None:
    bench = Bench()
    start = bench.begin()
    first = bench.commit_one(start, put(1, 1))
    repeat = bench.commit_one(start, put(1, 1))
    bench.answer_oracle()
    again = bench.commit_one(start, put(1, 1))
    assert isinstance(bench.answer(first), Committed)
    assert bench.answer(first) == bench.answer(repeat) == bench.answer(again)
    assert len([it for it in bench.logs[CellId(0)] if isinstance(it, CommittedHere)]) == 1


def test_a_refusal_is_repeated_and_leaves_nothing() -> None:
    bench = Bench()
    late = bench.begin()
    bench.commit(put(1, 1))
    refused = bench.answer(bench.commit_one(late, put(1, 2), put(7, 7)))
    bench.pass_time(1)
    assert bench.answer(bench.commit_one(late, put(1, 2), put(7, 7))) == refused
    assert bench.read(7) is None
    assert bench.nodes[0].cell.tablets[ATOMIC].locked_count() == 0  # type: ignore[index]


def test_a_late_oracle_answer_does_not_revive_a_poisoned_transaction() -> None:
    bench = Bench()
    start = bench.begin()
    commit = bench.commit_one(start, put(1, 1))
    assert bench.answer(bench.ask(AskOutcome(start))) == Aborted(start)
    assert kind(bench.answer(commit)) == "transaction_aborted"
    bench.answer_oracle()
    assert bench.read(1) is None


def test_the_outcome_of_a_commit_can_be_asked_for_and_of_a_stranger_is_settled() -> None:
    bench = Bench()
    start = bench.begin()
    bench.commit_one(start, put(1, 1))
    bench.answer_oracle()
    assert isinstance(bench.answer(bench.ask(AskOutcome(start))), Committed)
    stranger = bench.begin()
    assert bench.answer(bench.ask(AskOutcome(stranger))) == Aborted(stranger)
    assert kind(bench.answer(bench.commit_one(stranger, put(2, 2)))) == "transaction_aborted"


@pytest.mark.parametrize(("after", "is_refused"), [(0, True), (1, False)])
def test_a_commit_timestamp_must_be_above_the_start_timestamp(after: int, is_refused: bool) -> None:
    """Rule 3. A cell believes no oracle that gives a timestamp twice."""
    bench = Bench()
    start = bench.begin()
    route = bench.commit_one(start, put(1, 1))
    bench.nodes[CellId(0)].handle_timestamp(start, Timestamp(start + after), bench.now)
    bench.carry_out(CellId(0))
    assert isinstance(bench.answer(route), Failure if is_refused else Committed)


def test_a_start_timestamp_from_the_future_is_refused() -> None:
    bench = Bench()
    future = TransactionId(bench.oracle + 50 * SECOND)
    route = bench.commit_one(future, put(1, 1))
    bench.answer_oracle()
    assert kind(bench.answer(route)) == "snapshot_too_old"
    assert bench.read(1) is None


def prepared_at(bench: Bench) -> tuple[TransactionId, Timestamp]:
    """A transaction of the first of two cells that has written row 1, and when it was prepared."""
    start = bench.begin()
    route = bench.prepare(start, put(1, 1), cell=0)
    bench.answer_oracle()
    vote = bench.answer(route)
    assert isinstance(vote, Prepared)
    return start, vote.timestamp


def test_a_writer_waits_for_a_row_prepared_before_its_start() -> None:
    for outcome in ("commit", "abort"):
        bench = Bench(2)
        first, at = prepared_at(bench)
        second = bench.begin()
        waiting = bench.commit_one(second, put(1, 2))
        assert bench.answer(waiting) is None
        bench.decide(first, at if outcome == "commit" else None)
        bench.settle()
        # An abort lets the waiter through. A commit at p < its start does too: it saw it coming.
        assert isinstance(bench.answer(waiting), Committed)
        assert bench.read(1) == (2, None)


@pytest.mark.parametrize("kind", ["shared_weak", "shared_strong", "exclusive"])
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_transaction_that_only_locks_waits_for_a_row_prepared_before_its_start(
    kind: LockType, outcome: str
) -> None:
    bench = Bench(2)
    first, at = prepared_at(bench)
    second = bench.begin()
    locks = RowLock(key(1), 1, kind), RowLock(key(2), 1, kind)
    waiting = bench.ask(CommitOne(second, (changes(locks=locks),)))
    bench.answer_oracle()
    assert bench.answer(waiting) is None
    bench.decide(first, at if outcome == "commit" else None)
    bench.settle()
    assert isinstance(bench.answer(waiting), Committed)


def test_waiting_is_bounded() -> None:
    bench = Bench(2)
    bench.prepare(bench.begin(), put(1, 1), cell=1)
    bench.answer_oracle()
    route = bench.commit_one(bench.begin(), put(1, 2), cell=1)
    bench.pass_time(5.5)
    reply = bench.answer(route)
    assert isinstance(reply, Failure)
    assert reply.kind == "unavailable"  # no conflict: the other's coordinator does not answer
    assert reply.attributes["cell"] == 0
    assert "Timed out" in reply.message


def test_the_oracle_is_asked_again_and_then_given_up() -> None:
    bench = Bench()
    start = bench.begin()
    route = bench.commit_one(start, put(1, 1))
    bench.pass_time(2)
    assert bench.asked.count((0, start)) >= 2  # type: ignore[arg-type]
    bench.pass_time(10)
    assert kind(bench.answer(route)) == "unavailable"
    bench.answer_oracle()
    assert bench.read(1) is None


def test_the_restart_fence_refuses_transactions_that_began_before_the_restart() -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    before = bench.begin()
    bench.start(bench.nodes[0].cell.id)  # type: ignore[index]
    assert bench.read(1) == (1, None)
    assert kind(bench.answer(bench.commit_one(before, put(2, 2)))) == "snapshot_too_old"
    assert bench.commit(put(2, 3)) > before


def test_a_commit_is_remembered_across_a_restart() -> None:
    bench = Bench()
    start = bench.begin()
    route = bench.commit_one(start, put(1, 1))
    bench.answer_oracle()
    bench.start(bench.nodes[0].cell.id)  # type: ignore[index]
    assert bench.answer(bench.commit_one(start, put(1, 1))) == bench.answer(route)
    assert bench.answer(bench.ask(AskOutcome(start))) == bench.answer(route)


def test_below_the_watermark_an_outcome_is_unknown_and_not_aborted() -> None:
    bench = Bench()
    start = bench.begin()
    bench.commit_one(start, put(1, 1))
    bench.answer_oracle()
    for _ in range(100):
        bench.pass_time(1)
        bench.answer_oracle()
    assert bench.answer(bench.ask(AskOutcome(start))) == OutcomeUnknown(start)
    assert bench.answer(bench.commit_one(start, put(1, 2))) == OutcomeUnknown(start)
    assert bench.read(1) == (1, None)


def test_at_the_watermark_a_commit_and_a_question_are_answered_alike() -> None:
    bench = Bench()
    start = bench.begin()
    bench.nodes[CellId(0)].cell.outcomes.raise_watermark(Timestamp(start))
    assert bench.answer(bench.ask(AskOutcome(start))) == OutcomeUnknown(start)
    assert bench.answer(bench.commit_one(start, put(1, 2))) == OutcomeUnknown(start)
    assert bench.read(1) is None


@pytest.mark.parametrize(("above", "state"), [(0, State.NONE), (1, State.REFUSED)])
def test_a_question_leaves_a_record_above_the_watermark_only(above: int, state: State) -> None:
    """Rules 12 and 14."""
    bench = Bench(2)
    start = bench.begin()
    node = bench.nodes[CellId(1)]
    node.cell.outcomes.raise_watermark(Timestamp(start - above))
    node.handle_cell_message(QueryStatus(CellId(0), start), bench.now)
    bench.carry_out(CellId(1))
    assert node.cell.state_of(start) is state


def test_a_transaction_older_than_the_maximum_age_is_refused() -> None:
    bench = Bench()
    start = bench.begin()
    for _ in range(62):
        bench.pass_time(1)
        bench.answer_oracle()
    assert kind(bench.answer(bench.commit_one(start, put(1, 1)))) == "snapshot_too_old"


def test_a_transaction_has_bounds_in_rows_and_in_bytes() -> None:
    bench = Bench(limits=CellLimits(transaction_rows_max=2, transaction_bytes_max=500))
    text = "x" * 300
    lock = RowLock(key(1), 1, "shared_weak")
    for modifications, is_allowed in (
        ((changes(put(1, 1), put(2, 2)),), True),
        ((changes(put(1, 1), put(2, 2), locks=(lock,)),), False),
        ((changes(put(1, 1, text)),), True),
        ((changes(put(1, 1, text), put(2, 2, text)),), False),
    ):
        route = bench.ask(CommitOne(bench.begin(), modifications))
        bench.answer_oracle()
        reply = bench.answer(route)
        if is_allowed:
            assert isinstance(reply, Committed)
        else:
            assert kind(reply) == "limit_exceeded"


@pytest.mark.parametrize(
    ("modifications", "expected", "words"),
    [
        (TabletModifications(ATOMIC, Revision(9), (put(1, 1),)), "tablet_moved", "again"),
        (TabletModifications(ATOMIC, REVISION, ((key(1), 8, (1,)),)), "schema_violation", "mask"),
        (TabletModifications(ATOMIC, REVISION, ((key(1), 1, ("x",)),)), "schema_violation", "'a'"),
        (TabletModifications(NON_ATOMIC, REVISION, (put(1, 1),)), "invalid_request", "atomicity"),
        (changes(put(1, 1), put(1, 2)), "invalid_request", "twice"),
        (changes((key(1)[:-1], 1, (1,))), "schema_violation", "not a key"),  # type: ignore[arg-type]
    ],
)
def test_invalid_modifications_are_refused_with_the_reason(
    modifications: TabletModifications, expected: str, words: str
) -> None:
    bench = Bench()
    reply = bench.answer(bench.ask(CommitOne(bench.begin(), (modifications,))))
    assert isinstance(reply, Failure)
    assert reply.kind == expected
    assert words in reply.message
    assert not bench.asked


def test_a_waiter_that_timed_out_is_removed() -> None:
    bench = Bench(2)
    start = bench.begin()
    bench.prepare(start, put(1, 1), cell=1)
    bench.answer_oracle()
    bench.nodes.pop(CellId(0))  # the coordinator
    (stuck,) = bench.nodes[CellId(1)].cell.transactions.values()
    for _ in range(3):
        bench.lookup(1, cell=1)
        bench.commit_one(bench.begin(), put(1, 2), cell=1)
        assert len(stuck.waiters) == 2
        bench.pass_time(6)
        bench.answer_oracle()
