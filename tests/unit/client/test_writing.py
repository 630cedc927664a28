"""Writes without atomicity: stamps, what is repeated, and the account of a partial failure."""

from typing import Any

import pytest

from dodona._core.protocol.steps import MASTER, Target
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer
from dodona.errors import DodonaError, InvalidRequest, TransactionAborted, Unavailable
from dodona.schema import Column
from dodona.types import Timestamp, timestamp_from_unix_us
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import WriteNonAtomic, Written
from dodona_wire.messages.families import Reply, Request
from unit.client.protocols import (
    COLUMNS,
    LOST,
    MOVED,
    NEVER_SENT,
    PATH,
    PIVOT,
    Clock,
    Play,
    begin,
    key,
    new_session,
    nobody,
    play,
    table,
    tablet,
    unchanged,
    with_rows,
)

OVERLOADED = Failure("overloaded", "the store is full")


def fresh() -> tuple[Clock, Session]:
    clock = Clock()
    return clock, new_session(clock, table(atomicity="none"))


def commit(clock: Clock, session: Session, *ids: int) -> tuple[TransactionBuffer, Play[Any]]:
    transaction = with_rows(clock, session, *ids, atomicity="none")
    return transaction, Play(clock, session.commit(transaction))


def written(body: Request, at: int = 1_000) -> Written:
    assert isinstance(body, WriteNonAtomic)
    return Written(len(body.writes), Timestamp(at + body.tablet))


def test_each_tablet_gets_its_rows_with_the_timestamp_of_the_client() -> None:
    clock, session = fresh()
    transaction, it = commit(clock, session, 1, 100, 2)
    assert [target for target, _ in it.calls] == [0, 1]
    bodies = [body for _, body in it.calls if isinstance(body, WriteNonAtomic)]
    assert [len(body.writes) for body in bodies] == [2, 1]
    assert {body.stamp for body in bodies} == {timestamp_from_unix_us(clock.unix_us())}
    assert all(body.is_durable for body in bodies)
    it.answer(*[written(body) for _, body in it.calls])
    assert it.result == 1_011
    assert transaction.commit_timestamp == 1_011


def test_a_non_atomic_transaction_begins_without_a_request() -> None:
    clock, session = fresh()
    transaction = play(clock, session.begin("none", "async"), nobody)
    assert (transaction.id, transaction.start_timestamp) == (None, None)


def test_async_durability_is_passed_on() -> None:
    clock, session = fresh()
    transaction = play(clock, session.begin("none", "async"), nobody)
    play(clock, session.insert_rows(transaction, PATH, [{"id": 1, "value": 1}]), nobody)
    _, body = Play(clock, session.commit(transaction)).call
    assert isinstance(body, WriteNonAtomic)
    assert not body.is_durable


def test_async_durability_needs_no_atomicity() -> None:
    clock, session = fresh()
    with pytest.raises(InvalidRequest, match='Durability must be "sync"'):
        play(clock, session.begin("full", "async"), nobody)


def test_the_modes_of_table_and_transaction_must_match() -> None:
    clock = Clock()
    session = new_session(clock, table())
    transaction = with_rows(clock, session, 1, atomicity="none")
    said = 'Invalid atomicity mode: "none" instead of "full"'
    with pytest.raises(InvalidRequest, match=said):
        play(clock, session.commit(transaction), unchanged(table()))
    assert transaction.is_aborted


@pytest.mark.parametrize("failure", [MOVED, NEVER_SENT])
def test_only_a_write_that_was_not_applied_is_repeated(failure: Failure) -> None:
    clock, session = fresh()
    transaction, it = commit(clock, session, 1, 100)
    it.answer(failure, written(it.calls[1][1]))
    it.wait()
    assert it.call[0] == MASTER
    it.answer(table((tablet(10, 7, None, revision=2), tablet(11, 1, PIVOT)), atomicity="none"))
    target, body = it.call
    assert target == 7
    assert isinstance(body, WriteNonAtomic)
    assert (body.tablet, body.revision, len(body.writes)) == (10, 2, 1)
    it.answer(written(body))
    assert transaction.is_committed


def test_a_write_to_a_full_store_is_retried_in_the_same_cell() -> None:
    clock, session = fresh()
    transaction, it = commit(clock, session, 1, 100)
    it.answer(OVERLOADED, written(it.calls[1][1]))
    it.wait()
    target, body = it.call
    assert target == 0
    it.answer(written(body))
    assert transaction.is_committed


def test_a_write_with_a_lost_reply_is_not_repeated_and_lists_its_tablets() -> None:
    clock, session = fresh()
    transaction, it = commit(clock, session, 1, 100)
    with pytest.raises(Unavailable) as caught:
        it.answer(LOST, written(it.calls[1][1]))
    assert caught.value.attributes == {"applied": [11], "unknown": [10], "not_applied": []}
    assert transaction.is_aborted


def test_a_refused_write_lists_the_tablets_with_applied_rows() -> None:
    clock, session = fresh()
    _, it = commit(clock, session, 1, 100)
    off_limits = Failure("invalid_request", "Transaction timestamp is off limits")
    with pytest.raises(InvalidRequest, match="off limits") as caught:
        it.answer(written(it.calls[0][1]), off_limits)
    assert caught.value.attributes == {"applied": [10], "unknown": [], "not_applied": [11]}


def test_patience_has_an_end_and_the_account_is_kept() -> None:
    clock, session = fresh()
    transaction = with_rows(clock, session, 1, 100, atomicity="none")

    def answer(target: Target, body: Request) -> Reply:
        if target == MASTER:
            return table(atomicity="none")
        return written(body) if target else MOVED

    with pytest.raises(DodonaError) as caught:
        play(clock, session.commit(transaction), answer)
    assert caught.value.attributes == {"applied": [11], "unknown": [], "not_applied": [10]}


def test_several_tables_are_written_at_once() -> None:
    clock, session = fresh()
    session.routing.learn(table((tablet(12, 4, None),), path="//u", atomicity="none"))
    transaction = with_rows(clock, session, 1, atomicity="none")
    rows = [{"id": 5, "value": 5}]
    play(clock, session.insert_rows(transaction, "//u", rows), nobody)
    it = Play(clock, session.commit(transaction))
    assert [target for target, _ in it.calls] == [0, 4]


def test_rows_are_written_by_the_tables_own_mode() -> None:
    clock, session = fresh()
    it = Play(clock, session.write_rows(PATH, [{"id": 1, "value": 1}], False, "async"))
    assert isinstance(it.call[1], WriteNonAtomic)
    it.answer(written(it.call[1]))
    erase = Play(clock, session.erase_rows(PATH, [{"id": 1}], "sync"))
    _, body = erase.call
    assert isinstance(body, WriteNonAtomic)
    assert body.writes[0][1:] == (0, ())


def test_changes_of_aggregates_are_marked_as_such() -> None:
    clock = Clock()
    columns = (COLUMNS[0], Column("value", "int64", aggregate="sum"), COLUMNS[2])
    session = new_session(clock, table(atomicity="none", columns=columns))
    rows: list[dict[str, Any]]
    rows = [{"id": 1, "value": 5}, {"id": 2, "value": None, "note": "x"}, {"id": 100, "value": 7}]
    it = Play(clock, session.write_rows(PATH, rows, True, "sync", True))
    low, high = [body for _, body in it.calls if isinstance(body, WriteNonAtomic)]
    assert [write[1:] for write in low.writes] == [(0b01, (5,)), (0b10, ("x",))]
    assert low.special == {key(1): (0b01, 0)}
    assert high.special == {key(100): (0b01, 0)}


def test_a_non_atomic_transaction_takes_no_locks() -> None:
    clock, session = fresh()
    transaction = play(clock, session.begin("none"), nobody)
    rows, answer = [{"id": 1, "value": 1}], unchanged(table(atomicity="none"))
    with pytest.raises(InvalidRequest, match="takes no locks"):
        play(clock, session.lock_rows(transaction, PATH, [{"id": 1}]), answer)
    shared = session.insert_rows(transaction, PATH, rows, lock_type="shared_write")
    with pytest.raises(InvalidRequest, match="takes no locks"):
        play(clock, shared, answer)
    assert transaction.is_active
    assert transaction.tables == {}


def test_an_atomic_transaction_does_not_even_lock_rows_of_a_non_atomic_table() -> None:
    clock, session = fresh()
    transaction = begin(clock, session)
    play(clock, session.lock_rows(transaction, PATH, [{"id": 1}]), nobody)
    with pytest.raises(InvalidRequest, match='atomicity mode: "full" instead of "none"'):
        play(clock, session.commit(transaction), unchanged(table(atomicity="none")))


def test_rows_made_for_another_schema_are_not_sent() -> None:
    clock, session = fresh()
    transaction, it = commit(clock, session, 1)
    it.answer(MOVED)
    it.wait()
    with pytest.raises(TransactionAborted, match="was altered since") as caught:
        it.answer(table(atomicity="none", columns=COLUMNS[:2]))
    assert caught.value.action == "rerun"
    assert caught.value.attributes["removed"] == [it.name for it in COLUMNS[2:]]
    assert transaction.is_aborted
