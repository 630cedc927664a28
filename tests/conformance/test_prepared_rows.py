"""Rows of a transaction that is prepared and not decided: who waits for it, and who loses at once.

Owns: the moment between prepare and decision. Only transactions of several cells have one that
others can see.
"""

from typing import Literal

import pytest

from conformance.backends import Backend
from conformance.selections import ON_SEVERAL_CELLS
from conformance.stepping import Stepwise, one_by_one, prepare
from conformance.tables import APART, GROUPS, PLAIN, MakeTable, refused, value
from dodona.client import Client, Transaction
from dodona.errors import TransactionConflict
from dodona.types import ASYNC_LAST_COMMITTED, LockType

pytestmark = ON_SEVERAL_CELLS

SOON_MS = 100
LEFT, RIGHT = 1, 100
"""Rows of two cells."""

Way = Literal["write"] | LockType
KEY_OF: dict[Way, int] = {
    "write": LEFT,
    "exclusive": 2,
    "shared_write": 3,
    "shared_strong": 4,
    "shared_weak": 5,
}


def _writer(db: Client, path: str, new_value: int = 1) -> Transaction:
    transaction = db.begin()
    rows = [{"k": LEFT, "v": new_value}, {"k": RIGHT, "v": new_value}]
    transaction.insert_rows(path, rows)
    return transaction


@pytest.fixture
def path(make_table: MakeTable) -> str:
    return make_table(PLAIN, pivot_keys=APART, attributes={"enable_shared_write_locks": True})


# ---- readers


@pytest.mark.parametrize("key", [LEFT, RIGHT])
def test_a_lookup_waits_for_a_prepared_transaction_and_sees_its_rows(
    backend: Backend, db: Client, path: str, key: int
) -> None:
    commit = prepare(db, _writer(db, path))
    lookup = backend.start(db, db._session.lookup_rows(path, [{"k": key}]))
    backend.let_pass(SOON_MS)
    assert not lookup.is_over
    commit.result()
    assert lookup.result() == [{"k": key, "v": 1}]


def test_a_scan_waits_for_a_prepared_transaction_and_sees_its_rows(
    backend: Backend, db: Client, path: str
) -> None:
    commit = prepare(db, _writer(db, path))
    scan = backend.start(db, db._session.select(path))
    backend.let_pass(SOON_MS)
    assert not scan.is_over
    commit.result()
    assert [row["k"] for row in scan.result()] == [LEFT, RIGHT]


def test_a_read_of_other_rows_does_not_wait(db: Client, path: str) -> None:
    db.insert_rows(path, [{"k": 2, "v": 2}])
    commit = prepare(db, _writer(db, path))
    assert value(db, path, 2) == 2
    commit.result()


def test_a_snapshot_from_before_the_prepare_does_not_wait(db: Client, path: str) -> None:
    early = db.begin()
    commit = prepare(db, _writer(db, path))
    assert early.lookup_rows(path, [{"k": LEFT}, {"k": RIGHT}]) == []
    commit.result()
    assert early.lookup_rows(path, [{"k": LEFT}, {"k": RIGHT}]) == []


def test_async_last_committed_never_waits(db: Client, path: str) -> None:
    commit = prepare(db, _writer(db, path))
    assert db.lookup_rows(path, [{"k": LEFT}], timestamp=ASYNC_LAST_COMMITTED) == []
    commit.result()


def test_a_read_of_another_group_does_not_wait(db: Client, make_table: MakeTable) -> None:
    path = make_table(GROUPS, pivot_keys=APART)
    db.insert_rows(path, [{"k": LEFT, "b": 5}])
    transaction = db.begin()
    rows = [{"k": LEFT, "a": 1}, {"k": RIGHT, "a": 1}]
    transaction.insert_rows(path, rows, update=True)
    commit = prepare(db, transaction)
    assert value(db, path, LEFT, "b", columns=["b"]) == 5
    commit.result()


@pytest.mark.parametrize("lock_type", ["shared_weak", "shared_strong"])
def test_a_read_does_not_wait_for_read_locks(db: Client, path: str, lock_type: LockType) -> None:
    db.insert_rows(path, [{"k": LEFT, "v": 5}])
    commit = prepare(db, _locker(db, path, lock_type))
    assert value(db, path, LEFT) == 5
    commit.result()


def test_a_read_waits_for_a_shared_write(backend: Backend, db: Client, path: str) -> None:
    transaction = db.begin()
    rows = [{"k": LEFT, "v": 1}, {"k": RIGHT, "v": 1}]
    transaction.insert_rows(path, rows, lock_type="shared_write")
    commit = prepare(db, transaction)
    lookup = backend.start(db, db._session.lookup_rows(path, [{"k": LEFT}]))
    backend.let_pass(SOON_MS)
    assert not lookup.is_over
    commit.result()
    assert lookup.result() == [{"k": LEFT, "v": 1}]


def test_no_read_sees_a_part_of_a_commit_between_its_steps(
    backend: Backend, db: Client, path: str
) -> None:
    commit = Stepwise(db, one_by_one(db._session.commit(_writer(db, path)._buffer)))
    keys = [{"k": LEFT}, {"k": RIGHT}]
    reads = []
    while not commit.is_over:
        at = db.generate_timestamp()
        reads.append(backend.start(db, db._session.lookup_rows(path, keys, None, False, at)))
        commit.advance()
    at = db.generate_timestamp()
    reads.append(backend.start(db, db._session.lookup_rows(path, keys, None, False, at)))
    seen = [[row["v"] for row in each.result()] for each in reads]
    assert all(values in ([], [1, 1]) for values in seen)
    assert seen[0] == []
    assert seen[-1] == [1, 1]


# ---- writers


def _locker(db: Client, path: str, lock_type: LockType) -> Transaction:
    transaction = db.begin()
    keys = [{"k": key} for key in (*KEY_OF.values(), RIGHT)]
    transaction.lock_rows(path, keys, lock_type=lock_type)
    return transaction


def _single(db: Client, path: str, way: Way) -> Transaction:
    """Of one row of those that a locker locks."""
    transaction, key = db.begin(), KEY_OF[way]
    if way == "write":
        transaction.insert_rows(path, [{"k": key, "v": 2}])
    else:
        transaction.lock_rows(path, [{"k": key}], lock_type=way)
    return transaction


@pytest.mark.parametrize(
    ("held", "losers"),
    [
        ("exclusive", ["write", "exclusive", "shared_write", "shared_strong", "shared_weak"]),
        ("shared_write", ["write", "exclusive", "shared_strong", "shared_weak"]),
        ("shared_strong", ["write", "exclusive", "shared_write"]),
        ("shared_weak", ["write", "exclusive", "shared_write"]),
    ],
)
def test_a_prepared_lock_immediately_refuses_conflicting_older_transactions(
    db: Client, path: str, held: LockType, losers: list[Way]
) -> None:
    candidates = {way: _single(db, path, way) for way in KEY_OF}
    holder = _locker(db, path, held)
    commit = prepare(db, holder)
    for way, candidate in candidates.items():
        if way in losers:
            key = {"k": KEY_OF[way]}
            with refused(TransactionConflict, is_retryable=True, winner=holder.id, key=key):
                candidate.commit()
        else:
            candidate.commit()
    commit.result()


def test_a_transaction_that_begins_after_a_prepare_waits_and_then_commits(
    backend: Backend, db: Client, path: str
) -> None:
    commit = prepare(db, _writer(db, path, 1))
    late = _single(db, path, "write")
    waiting = backend.start(db, db._session.commit(late._buffer))
    backend.let_pass(SOON_MS)
    assert not waiting.is_over
    first_at = commit.result()
    second_at = waiting.result()
    assert first_at is not None
    assert second_at is not None
    assert first_at < second_at
    assert value(db, path, LEFT) == 2


def test_a_write_without_a_transaction_waits_for_the_holder_of_its_row_lock(
    backend: Backend, db: Client, path: str
) -> None:
    commit = prepare(db, _writer(db, path, 1))
    rows = [{"k": LEFT, "v": 2}]
    waiting = backend.start(db, db._session.write_rows(path, rows, False, "sync"))
    backend.let_pass(SOON_MS)
    assert not waiting.is_over
    commit.result()
    waiting.result()
    assert value(db, path, LEFT) == 2
