"""Master transactions, message by message: how they begin, lock, are pinged, and end."""

from typing import Any

import pytest

from dodona._core.catalog.master_transaction import PING_PERIOD_MS_MAX
from dodona._core.catalog.tree import MasterTransactionSession
from dodona._core.protocol.steps import MASTER
from dodona._core.writing.transaction import TransactionState
from dodona.errors import (
    CommitOutcomeUnknown,
    InvalidRequest,
    NodeLocked,
    TransactionClosed,
    TransactionNotFound,
    Unavailable,
)
from dodona.types import TreeTransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Done
from dodona_wire.messages.families import Reply, Request
from dodona_wire.messages.tree import (
    AbortTreeTransaction,
    BeginTreeTransaction,
    CommitTreeTransaction,
    GetNode,
    LockNode,
    NodeLock,
    PingTreeTransaction,
    TreeTransaction,
)
from unit.client.protocols import (
    LOST,
    NEVER_SENT,
    Clock,
    Play,
    begin_master,
    finish,
    new_session,
    nobody,
    play,
)

GONE = Failure("transaction_not_found", "no such transaction")
LOCKED = Failure("node_locked", "somebody holds it")
SEVEN = TreeTransactionId(7)


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_master_transaction_begins_inside_another_or_outside(is_nested: bool) -> None:
    clock = Clock()
    catalog = new_session(clock).catalog
    outer = begin_master(clock, catalog) if is_nested else catalog
    beginning = Play(clock, outer.begin(5_000, "copying"))
    parent = TreeTransactionId(7 if is_nested else 0)
    assert beginning.call == (MASTER, BeginTreeTransaction(5_000, parent, "copying"))
    beginning.answer(LOST)  # what was lost ends by itself
    beginning.wait()
    beginning.answer(TreeTransaction(TreeTransactionId(8), 5_000))
    begun = beginning.result
    assert (begun.lease.id, begun.lease.state) == (8, TransactionState.ACTIVE)
    assert Play(Clock(), begun.get("//a")).call == (MASTER, GetNode("//a", TreeTransactionId(8)))


def test_a_lock_is_taken_again_while_the_master_is_away() -> None:
    clock = Clock()
    tx = begin_master(clock, new_session(clock).catalog)
    lock = Play(clock, tx.lock("//a", "shared", attribute="x"))
    assert lock.call == (MASTER, LockNode("//a", "shared", SEVEN, None, "x"))
    lock.answer(LOST)
    lock.wait()
    lock.answer(NodeLock(33))
    assert lock.result == 33
    with pytest.raises(NodeLocked):
        Play(clock, tx.lock("//a", "shared", "child")).answer(LOCKED)


@pytest.mark.parametrize(
    ("mode", "child", "attribute"),
    [("strong", None, None), ("shared", 5, None), ("shared", None, 5)],
)
def test_an_invalid_lock_of_a_master_transaction_is_refused_without_a_request(
    mode: Any, child: Any, attribute: Any
) -> None:
    clock = Clock()
    tx = begin_master(clock, new_session(clock).catalog)
    with pytest.raises(InvalidRequest):
        play(clock, tx.lock("//a", mode, child, attribute), nobody)


def test_a_commit_is_asked_for_again_while_the_master_is_away() -> None:
    clock = Clock()
    tx = begin_master(clock, new_session(clock).catalog)
    commit = Play(clock, tx.commit())
    assert commit.call == (MASTER, CommitTreeTransaction(SEVEN))
    commit.answer(LOST)
    assert not tx.lease.is_open
    commit.wait()
    commit.answer(Done())
    assert tx.lease.state is TransactionState.COMMITTED


@pytest.mark.parametrize("answers", [[LOST, GONE], [LOST, NEVER_SENT, GONE]])
def test_a_lost_commit_that_the_master_knows_nothing_of_never_was(answers: list[Reply]) -> None:
    """It remembers those that were."""
    clock, left = Clock(), list(answers)
    tx = begin_master(clock, new_session(clock).catalog)
    with pytest.raises(TransactionNotFound, match="The master has aborted transaction 7"):
        play(clock, tx.commit(), lambda target, body: left.pop(0))
    assert tx.lease.is_lost
    assert tx.lease.state is TransactionState.ABORTED


def in_doubt(clock: Clock) -> MasterTransactionSession:
    """A transaction whose commit was lost, and refused when it was repeated: the lost one may
    still come."""
    left = [LOST, LOCKED]
    tx = begin_master(clock, new_session(clock).catalog)
    with pytest.raises(CommitOutcomeUnknown, match="Commit the transaction again") as caught:
        play(clock, tx.commit(), lambda target, body: left.pop(0))
    assert caught.value.attributes == {"transaction": 7}
    assert not caught.value.is_retryable
    assert tx.lease.state is TransactionState.COMMITTING
    return tx


def test_a_lost_commit_that_was_not_answered_after_all_is_unknown() -> None:
    clock = Clock()
    tx = in_doubt(clock)
    play(clock, tx.leave(has_failed=True), nobody)
    for call in (tx.get("//a"), tx.ping(), tx.begin(), tx.abort()):
        with pytest.raises(TransactionClosed, match="committing"):
            play(clock, call, nobody)


def test_committing_again_learns_the_outcome_of_an_unknown_commit() -> None:
    clock = Clock()
    tx = in_doubt(clock)
    with pytest.raises(CommitOutcomeUnknown):
        play(clock, tx.commit(), lambda target, body: NEVER_SENT)
    again = Play(clock, tx.commit())
    assert again.call == (MASTER, CommitTreeTransaction(SEVEN))
    again.answer(Done())
    assert tx.lease.state is TransactionState.COMMITTED
    with pytest.raises(TransactionClosed, match="committed"):
        play(clock, tx.commit(), nobody)
    tx = in_doubt(clock)
    with pytest.raises(TransactionNotFound, match="The master has aborted transaction 7"):
        Play(clock, tx.commit()).answer(GONE)
    assert tx.lease.state is TransactionState.ABORTED


def test_a_commit_that_was_interrupted_may_be_committed_again() -> None:
    clock = Clock()
    tx = begin_master(clock, new_session(clock).catalog)
    interrupted = tx.commit()
    next(interrupted)
    interrupted.close()
    play(clock, tx.commit(), lambda target, body: Done())
    assert tx.lease.state is TransactionState.COMMITTED


def test_two_threads_do_not_commit_at_the_same_time() -> None:
    clock = Clock()
    tx = begin_master(clock, new_session(clock).catalog)
    first = Play(clock, tx.commit())
    with pytest.raises(TransactionClosed, match="committing"):
        play(clock, tx.commit(), nobody)
    first.answer(Done())


def test_a_master_commit_that_times_out_is_unknown_unless_never_sent() -> None:
    clock = Clock()
    tx = begin_master(clock, new_session(clock).catalog)
    with pytest.raises(Unavailable):
        play(clock, tx.commit(), lambda target, body: NEVER_SENT)
    assert tx.lease.state is TransactionState.ACTIVE
    with pytest.raises(CommitOutcomeUnknown):
        play(clock, tx.commit(), lambda target, body: LOST)


def test_a_refused_commit_leaves_the_master_transaction_active() -> None:
    clock = Clock()
    tx = begin_master(clock, new_session(clock).catalog)
    with pytest.raises(NodeLocked):
        Play(clock, tx.commit()).answer(LOCKED)
    assert tx.lease.state is TransactionState.ACTIVE
    play(clock, tx.commit(), lambda target, body: Done())


def test_an_ended_transaction_takes_no_calls() -> None:
    clock = Clock()
    catalog = new_session(clock).catalog
    committed, aborted = begin_master(clock, catalog, 1), begin_master(clock, catalog, 2)
    play(clock, committed.commit(), lambda target, body: Done())
    abort = Play(clock, aborted.abort())
    assert abort.call == (MASTER, AbortTreeTransaction(TreeTransactionId(2)))
    abort.answer(LOST)
    abort.wait()
    abort.answer(Done())
    for tx in (committed, aborted):
        for call in (tx.get("//a"), tx.lock("//a"), tx.ping(), tx.begin(), tx.commit()):
            with pytest.raises(TransactionClosed, match=f"{tx.lease.id} is {tx.lease.state.value}"):
                play(clock, call, nobody)
    play(clock, aborted.abort(), nobody)
    with pytest.raises(TransactionClosed):
        play(clock, committed.abort(), nobody)


def test_a_nested_transaction_refuses_calls_after_the_outer_one_has_ended() -> None:
    clock = Clock()
    outer = begin_master(clock, new_session(clock).catalog, 1)
    inner = begin_master(clock, outer, 2)
    play(clock, outer.abort(), lambda target, body: Done())
    with pytest.raises(TransactionClosed, match="1 is aborted"):
        play(clock, inner.get("//a"), nobody)


def test_a_transaction_that_the_master_ended_refuses_all_later_calls() -> None:
    clock = Clock()
    tx = begin_master(clock, new_session(clock).catalog)
    with pytest.raises(TransactionNotFound, match="no ping arrived in time"):
        Play(clock, tx.get("//a")).answer(GONE)
    assert tx.lease.state is TransactionState.ABORTED
    for call in (tx.set("//a/@x", 1), tx.ping(), tx.begin(), tx.commit(), tx.leave(False)):
        with pytest.raises(TransactionNotFound, match="no ping arrived in time"):
            play(clock, call, nobody)
    play(clock, tx.leave(has_failed=True), nobody)
    play(clock, tx.abort(), nobody)


# ---- the end of a block


def test_a_master_transaction_block_commits_at_its_end_and_aborts_after_an_error() -> None:
    clock = Clock()
    catalog = new_session(clock).catalog
    fine, failed = begin_master(clock, catalog, 1), begin_master(clock, catalog, 2)
    leaving = Play(clock, fine.leave(has_failed=False))
    assert leaving.call == (MASTER, CommitTreeTransaction(TreeTransactionId(1)))
    leaving.answer(Done())
    leaving = Play(clock, failed.leave(has_failed=True))
    assert leaving.call == (MASTER, AbortTreeTransaction(TreeTransactionId(2)))
    leaving.answer(LOST)  # it ends by itself, and the block's error is what matters
    assert leaving.step is None
    assert failed.lease.state is TransactionState.ABORTED


def test_a_block_that_ended_its_transaction_itself_is_left_alone() -> None:
    clock = Clock()
    catalog = new_session(clock).catalog
    for end in ("commit", "abort"):
        tx = begin_master(clock, catalog)
        play(clock, getattr(tx, end)(), lambda target, body: Done())
        for has_failed in (True, False):
            play(clock, tx.leave(has_failed), nobody)


def test_a_master_transaction_block_whose_commit_is_refused_aborts() -> None:
    clock = Clock()
    tx = begin_master(clock, new_session(clock).catalog)
    leaving = Play(clock, tx.leave(has_failed=False))
    leaving.answer(LOCKED)
    assert leaving.call == (MASTER, AbortTreeTransaction(SEVEN))
    with pytest.raises(NodeLocked):
        leaving.answer(Done())
    assert tx.lease.state is TransactionState.ABORTED


# ---- pings


def test_pings_come_several_in_a_time_out() -> None:
    clock = Clock()
    session = new_session(clock)
    slow = begin_master(clock, session.catalog, 1, timeout_ms=60_000)
    fast = begin_master(clock, session.catalog, 2, timeout_ms=900)
    assert session.pings.wait_ms() is None
    session.pings.add(slow.lease)
    assert session.pings.wait_ms() == PING_PERIOD_MS_MAX
    session.pings.add(fast.lease)
    assert session.pings.wait_ms() == 300
    play(clock, session.pings.do_due(), nobody)
    clock.now_us += 300_000
    assert session.pings.wait_ms() == 0
    ping = Play(clock, session.pings.do_due())
    assert ping.call == (MASTER, PingTreeTransaction(TreeTransactionId(2)))
    ping.answer(LOST)  # the next one is soon
    assert session.pings.wait_ms() == 300
    clock.now_us += 4_700_000
    assert len(Play(clock, session.pings.do_due()).calls) == 2


def test_a_ping_by_the_caller_delays_the_next_background_ping() -> None:
    clock = Clock()
    session = new_session(clock)
    tx = begin_master(clock, session.catalog, timeout_ms=900)
    session.pings.add(tx.lease)
    clock.now_us += 200_000
    ping = Play(clock, tx.ping())
    assert ping.call == (MASTER, PingTreeTransaction(SEVEN))
    ping.answer(Done())
    assert session.pings.wait_ms() == 300


def test_a_ping_that_finds_no_transaction_ends_the_transaction_in_the_client() -> None:
    clock = Clock()
    session = new_session(clock)
    tx = begin_master(clock, session.catalog, timeout_ms=900)
    session.pings.add(tx.lease)
    clock.now_us += 900_000
    Play(clock, session.pings.do_due()).answer(GONE)
    assert session.pings.wait_ms() is None
    with pytest.raises(TransactionNotFound, match="no ping arrived in time"):
        play(clock, tx.commit(), nobody)


def test_a_ping_that_crosses_the_commit_changes_nothing() -> None:
    clock = Clock()
    session = new_session(clock)
    tx = begin_master(clock, session.catalog, timeout_ms=900)
    session.pings.add(tx.lease)
    clock.now_us += 900_000
    ping, commit = Play(clock, session.pings.do_due()), Play(clock, tx.commit())
    ping.answer(GONE)
    commit.answer(Done())
    assert tx.lease.state is TransactionState.COMMITTED
    assert not tx.lease.is_lost


@pytest.mark.parametrize("end", ["commit", "abort", "forget"])
def test_a_transaction_that_has_ended_or_has_no_references_is_not_pinged(end: str) -> None:
    clock = Clock()
    session = new_session(clock)
    tx = begin_master(clock, session.catalog)
    session.pings.add(tx.lease)
    assert session.pings.wait_ms() is not None
    if end != "forget":
        finish(Play(clock, getattr(tx, end)()), lambda target, body: Done())
    del tx
    assert session.pings.wait_ms() is None
    clock.now_us += 60_000_000
    play(clock, session.pings.do_due(), nobody)


def test_pings_are_sent_in_bounded_groups_and_none_is_missed() -> None:
    clock = Clock()
    session = new_session(clock)
    transactions = [begin_master(clock, session.catalog, it) for it in range(1, 41)]
    for tx in transactions:
        session.pings.add(tx.lease)
    clock.now_us += PING_PERIOD_MS_MAX * 1000
    pinged: list[Request] = []
    while session.pings.wait_ms() == 0:
        ping = Play(clock, session.pings.do_due())
        assert len(ping.calls) <= 16
        pinged += [body for _, body in ping.calls]
        ping.answer(*[Done() for _ in ping.calls])
    assert len(pinged) == len({repr(it) for it in pinged}) == 40
