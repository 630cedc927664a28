"""What each cell is sent of a transaction: its rows, what is special about them, and its locks."""

from typing import Any

from dodona.schema import Column
from dodona.types import Timestamp, TransactionId
from dodona_wire.messages.codec import decode_requests, encode_frame
from dodona_wire.messages.data import CommitOne, Committed, Prepare, RowLock
from unit.client.protocols import (
    COLUMNS,
    PATH,
    Clock,
    Play,
    begin,
    key,
    new_session,
    nobody,
    play,
    table,
)

COUNTED = (
    COLUMNS[0],
    Column("value", "int64", aggregate="sum"),
    Column("note", "utf8", lock="n"),
)


def test_each_cell_gets_the_rows_changes_and_locks_of_its_keys() -> None:
    clock = Clock()
    session = new_session(clock, table(columns=COUNTED))
    transaction = begin(clock, session)
    deltas: list[dict[str, Any]] = [{"id": 1, "value": 5}, {"id": 100, "value": 6, "note": "x"}]
    play(clock, session.insert_rows(transaction, PATH, deltas, True, True), nobody)
    plain = [{"id": 2, "note": "y"}]
    play(clock, session.insert_rows(transaction, PATH, plain, True, False, "shared_write"), nobody)
    play(clock, session.lock_rows(transaction, PATH, [{"id": 1}, {"id": 3}]), nobody)
    play(clock, session.lock_rows(transaction, PATH, [{"id": 3}], ["n"], "exclusive"), nobody)
    commit = Play(clock, session.commit(transaction))
    parts = [body.modifications for _, body in commit.calls if isinstance(body, Prepare)]
    (low,), (high,) = parts
    assert low.writes == ((key(1), 0b01, (5,)), (key(2), 0b10, ("y",)))
    assert low.special == {key(1): (0b01, 0), key(2): (0, 0b10)}
    assert low.locks == (
        RowLock(key(1), 0b01, "shared_strong"),
        RowLock(key(3), 0b01, "shared_strong"),
        RowLock(key(3), 0b10, "exclusive"),
    )
    assert high.writes == ((key(100), 0b11, (6, "x")),)
    assert (high.special, high.locks) == ({key(100): (0b01, 0)}, ())


def test_a_transaction_of_locks_only_is_committed_like_any_other() -> None:
    clock = Clock()
    session = new_session(clock, table())
    transaction = begin(clock, session)
    play(clock, session.lock_rows(transaction, PATH, [{"id": 100}], None, "shared_weak"), nobody)
    commit = Play(clock, session.commit(transaction))
    target, body = commit.call
    assert target == 1
    assert isinstance(body, CommitOne)
    (part,) = body.modifications
    assert (part.writes, part.special) == ((), None)
    assert part.locks == (RowLock(key(100), 0b01, "shared_weak"),)
    commit.answer(Committed(TransactionId(50), Timestamp(60)))
    assert transaction.commit_timestamp == 60


def test_a_transaction_that_locks_nothing_has_nothing_to_commit() -> None:
    clock = Clock()
    session = new_session(clock, table())
    transaction = begin(clock, session)
    play(clock, session.lock_rows(transaction, PATH, [{"id": 1}], []), nobody)
    play(clock, session.lock_rows(transaction, PATH, []), nobody)
    assert play(clock, session.commit(transaction), nobody) is None


def test_column_masks_of_wide_tables_are_sent_as_bytes() -> None:
    clock = Clock()
    values = [Column(f"v{at}", "int64", aggregate="sum") for at in range(70)]
    session = new_session(clock, table(columns=(COLUMNS[0], *values)))
    transaction = begin(clock, session)
    play(clock, session.insert_rows(transaction, PATH, [{"id": 1, "v69": 5}], True, True), nobody)
    _, body = Play(clock, session.commit(transaction)).call
    assert isinstance(body, CommitOne)
    mask = (1 << 69).to_bytes(9, "little")
    (part,) = body.modifications
    assert part.writes == ((key(1), mask, (5,)),)
    assert part.special == {key(1): (mask, 0)}
    assert decode_requests(encode_frame([(1, body)])) == [(1, body)]
