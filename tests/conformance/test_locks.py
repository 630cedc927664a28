"""Row locks: what two transactions whose lives overlap may both do to one row.

Owns: the matrix of lock types, the lock groups, locks without data, and what a conflict says.
"""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.backends import Backend, until_it_works
from conformance.tables import GROUPS, MAIN_LOCK, PLAIN, MakeTable, read, refused, value
from dodona.client import Client, Transaction
from dodona.errors import InvalidRequest, TransactionConflict
from dodona.types import LockType

pytestmark = pytest.mark.part("transactions on real processes")

Modify = Callable[[Transaction, str, int], None]


def _write(transaction: Transaction, path: str, key: int) -> None:
    transaction.insert_rows(path, [{"k": key, "v": 1}])


def _delete(transaction: Transaction, path: str, key: int) -> None:
    transaction.delete_rows(path, [{"k": key}])


def _shared_write(transaction: Transaction, path: str, key: int) -> None:
    transaction.insert_rows(path, [{"k": key, "v": 1}], lock_type="shared_write")


def _lock(lock_type: LockType) -> Modify:
    def lock(transaction: Transaction, path: str, key: int) -> None:
        transaction.lock_rows(path, [{"k": key}], lock_type=lock_type)

    return lock


WAYS: dict[str, Modify] = {
    "write": _write,
    "delete": _delete,
    "shared write": _shared_write,
    "exclusive lock": _lock("exclusive"),
    "shared_write lock": _lock("shared_write"),
    "shared_strong lock": _lock("shared_strong"),
    "shared_weak lock": _lock("shared_weak"),
}
READ_LOCKS = {"shared_strong lock", "shared_weak lock"}
SHARED_WRITES = {"shared write", "shared_write lock"}
EVERYTHING = set(WAYS)
WRITES = EVERYTHING - READ_LOCKS
SHARED = {"attributes": {"enable_shared_write_locks": True}}


@pytest.mark.parametrize(
    ("first", "losers"),
    [
        ("write", EVERYTHING),
        ("delete", EVERYTHING),
        ("exclusive lock", EVERYTHING),
        ("shared write", EVERYTHING - SHARED_WRITES),
        ("shared_write lock", EVERYTHING - SHARED_WRITES),
        ("shared_strong lock", WRITES),
        ("shared_weak lock", set()),
    ],
)
def test_a_transaction_is_refused_if_an_overlapping_commit_took_an_excluding_lock(
    db: Client, make_table: MakeTable, first: str, losers: set[str]
) -> None:
    path = make_table(PLAIN, **SHARED)
    lost = set()
    for key, (second, modify) in enumerate(WAYS.items()):
        early, late = db.begin(), db.begin()
        WAYS[first](early, path, key)
        modify(late, path, key)
        early.commit()
        try:
            late.commit()
        except TransactionConflict:
            lost.add(second)
    assert lost == losers


@pytest.mark.parametrize("first", WAYS)
def test_a_transaction_does_not_conflict_with_a_commit_before_its_start(
    db: Client, make_table: MakeTable, first: str
) -> None:
    path = make_table(PLAIN, **SHARED)
    for key, modify in enumerate(WAYS.values()):
        with db.begin() as early:
            WAYS[first](early, path, key)
        with db.begin() as late:
            modify(late, path, key)


@pytest.mark.parametrize("first", WAYS)
def test_an_aborted_transaction_causes_no_conflict(
    db: Client, make_table: MakeTable, first: str
) -> None:
    path = make_table(PLAIN, **SHARED)
    for key, modify in enumerate(WAYS.values()):
        aborted, late = db.begin(), db.begin()
        WAYS[first](aborted, path, key)
        aborted.abort()
        modify(late, path, key)
        late.commit()


# ---- groups


def _update(*columns: str) -> Modify:
    def update(transaction: Transaction, path: str, key: int) -> None:
        row = {"k": key, **dict.fromkeys(columns, 1)}
        transaction.insert_rows(path, [row], update=True)

    return update


def _overwrite(*columns: str) -> Modify:
    def overwrite(transaction: Transaction, path: str, key: int) -> None:
        transaction.insert_rows(path, [{"k": key, **dict.fromkeys(columns, 1)}])

    return overwrite


def _lock_group(transaction: Transaction, path: str, key: int) -> None:
    transaction.lock_rows(path, [{"k": key}], ["a"])


GROUP_WAYS: dict[str, Modify] = {
    "a": _update("a"),
    "b": _update("b"),
    "a and b": _update("a", "b"),
    "main": _update("main"),
    "overwrite": _overwrite("b"),
    "delete": _delete,
    "read lock of a": _lock_group,
    "read lock of main": _lock("shared_strong"),
}
MAIN_WRITES = {"main", "overwrite", "delete"}
READ_LOCKS_OF_GROUPS = {"read lock of a", "read lock of main"}


@pytest.mark.parametrize(
    ("first", "losers"),
    [
        ("a", {"a", "a and b", *MAIN_WRITES, "read lock of a", "read lock of main"}),
        ("b", {"b", "a and b", *MAIN_WRITES, "read lock of main"}),
        ("a and b", set(GROUP_WAYS)),
        ("main", set(GROUP_WAYS)),
        ("overwrite", set(GROUP_WAYS)),
        ("delete", set(GROUP_WAYS)),
        ("read lock of a", {"a", "a and b", *MAIN_WRITES}),
        ("read lock of main", {"a", "b", "a and b", *MAIN_WRITES}),
    ],
)
def test_writers_of_different_groups_both_commit_and_the_main_lock_excludes_all(
    db: Client, make_table: MakeTable, first: str, losers: set[str]
) -> None:
    path = make_table(GROUPS)
    db.insert_rows(path, [{"k": key, "c": 0} for key in range(len(GROUP_WAYS))])
    assert _losers(db, path, first) == losers


def _losers(db: Client, path: str, first: str) -> set[str]:
    """Of those that began before one that does this commits, and come after it."""
    lost = set()
    for key, (second, modify) in enumerate(GROUP_WAYS.items()):
        early, late = db.begin(), db.begin()
        GROUP_WAYS[first](early, path, key)
        modify(late, path, key)
        early.commit()
        try:
            late.commit()
        except TransactionConflict:
            lost.add(second)
    return lost


@pytest.mark.parametrize(
    ("first", "losers"),
    [
        ("a", {"a", "a and b", *MAIN_WRITES, *READ_LOCKS_OF_GROUPS}),
        ("b", {"b", "a and b", *MAIN_WRITES, *READ_LOCKS_OF_GROUPS}),
        ("read lock of a", {"a", "b", "a and b", *MAIN_WRITES}),
    ],
)
@pytest.mark.parametrize("is_deleted", [False, True])
def test_creating_an_absent_row_conflicts_with_read_locks_on_its_other_groups(
    db: Client, make_table: MakeTable, first: str, losers: set[str], is_deleted: bool
) -> None:
    """A lock of some groups of a row that is absent is broken by whoever creates the row by
    others, and breaks them. (Writers of different groups still both create it.)"""
    path = make_table(GROUPS)
    if is_deleted:
        keys = [{"k": key} for key in range(len(GROUP_WAYS))]
        db.insert_rows(path, [{**key, "c": 0} for key in keys])
        db.delete_rows(path, keys)
    assert _losers(db, path, first) == losers


def test_writers_of_two_groups_may_both_lock_a_third_for_reading(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(GROUPS)
    db.insert_rows(path, [{"k": 1, "c": 0}])
    transactions = {"a": db.begin(), "b": db.begin()}
    for column, transaction in transactions.items():
        transaction.insert_rows(path, [{"k": 1, column: 1}], update=True)
        transaction.lock_rows(path, [{"k": 1}], ["c"], "shared_weak")
    for transaction in transactions.values():
        transaction.commit()
    assert read(db, path) == [{"k": 1, "a": 1, "b": 1, "c": 0, "main": None}]


@pytest.mark.parametrize("lock_type", ["shared_weak", "shared_strong"])
def test_a_read_lock_on_a_group_with_a_concurrent_write_is_refused(
    db: Client, make_table: MakeTable, lock_type: LockType
) -> None:
    path = make_table(GROUPS)
    reader, writer = db.begin(), db.begin()
    writer.insert_rows(path, [{"k": 1, "a": 1}], update=True)
    writer.commit()
    reader.lock_rows(path, [{"k": 1}], ["a"], lock_type)
    with refused(TransactionConflict, is_retryable=True, key={"k": 1}, lock="a"):
        reader.commit()


def test_a_read_lock_on_one_group_lets_another_be_written(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(GROUPS)
    db.insert_rows(path, [{"k": 1, "c": 0}])
    reader, writer = db.begin(), db.begin()
    reader.lock_rows(path, [{"k": 1}], ["a"])
    reader.commit()
    writer.insert_rows(path, [{"k": 1, "b": 1}], update=True)
    writer.commit()


def test_a_cell_remembers_the_last_write_of_each_lock_group(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(GROUPS)
    old = {column: db.begin() for column in ("a", "b", "c")}
    for column in ("b", "a"):
        with db.begin() as transaction:
            transaction.insert_rows(path, [{"k": 1, column: 1}], update=True)
    for column, transaction in old.items():
        transaction.insert_rows(path, [{"k": 1, column: 2}], update=True)
    for column in ("a", "b"):
        with refused(TransactionConflict, is_retryable=True, lock=column):
            old[column].commit()
    old["c"].commit()


# ---- locks without data


def test_the_order_of_calls_does_not_matter_but_that_of_commits(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    first, second = db.begin(), db.begin()
    first.lock_rows(path, [{"k": 1}])
    second.insert_rows(path, [{"k": 1, "v": 1}])
    second.commit()
    with refused(TransactionConflict, is_retryable=True):
        first.commit()


def test_a_transaction_of_locks_alone_gets_a_commit_timestamp(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    transaction = db.begin()
    transaction.lock_rows(path, [{"k": 1}])
    committed_at = transaction.commit()
    assert committed_at is not None
    assert transaction.start_timestamp is not None
    assert committed_at > transaction.start_timestamp


@pytest.mark.parametrize("lock_type", ["exclusive", "shared_write", "shared_strong"])
def test_a_lock_makes_no_row(db: Client, make_table: MakeTable, lock_type: LockType) -> None:
    path = make_table(PLAIN, **SHARED)
    with db.begin() as transaction:
        transaction.lock_rows(path, [{"k": 1}], lock_type=lock_type)
    assert read(db, path) == []
    assert db.lookup_rows(path, [{"k": 1}], keep_missing=True) == [None]


def test_an_absent_row_can_be_locked_against_insertion(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    reader, writer = db.begin(), db.begin()
    reader.lock_rows(path, [{"k": 1}], lock_type="shared_strong")
    writer.insert_rows(path, [{"k": 1, "v": 1}])
    reader.commit()
    with refused(TransactionConflict, "read-locked", is_retryable=True):
        writer.commit()
    assert read(db, path) == []


def test_a_transaction_may_write_a_row_that_the_transaction_locks(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    lock_types: list[LockType] = ["shared_weak", "shared_strong", "exclusive"]
    for lock_type in lock_types:
        with db.begin() as transaction:
            transaction.lock_rows(path, [{"k": 1}], lock_type=lock_type)
            transaction.insert_rows(path, [{"k": 1, "v": 1}])
            transaction.lock_rows(path, [{"k": 1}], lock_type=lock_type)
    assert value(db, path, 1) == 1


def test_no_locks_are_nothing_to_do(db: Client, make_table: MakeTable) -> None:
    path = make_table(GROUPS)
    empty, writer = db.begin(), db.begin()
    empty.lock_rows(path, [{"k": 1}], [])
    writer.insert_rows(path, [{"k": 1, "a": 1}])
    writer.commit()
    assert empty.commit() is None


@pytest.mark.parametrize("name", ["d", MAIN_LOCK, ""])
def test_an_unknown_lock_group_is_refused_at_the_call(
    db: Client, make_table: MakeTable, name: str
) -> None:
    path = make_table(GROUPS)
    transaction = db.begin()
    with refused(InvalidRequest, f'Lock group "{name}" not found in schema', is_retryable=False):
        transaction.lock_rows(path, [{"k": 1}], ["a", name])
    transaction.insert_rows(path, [{"k": 2, "a": 1}])
    transaction.commit()


def test_an_unknown_lock_type_is_refused_at_the_call(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    unknown: Any = "shared"
    transaction = db.begin()
    with refused(InvalidRequest, is_retryable=False):
        transaction.lock_rows(path, [{"k": 1}], lock_type=unknown)
    with refused(InvalidRequest, is_retryable=False):
        transaction.insert_rows(path, [{"k": 1, "v": 1}], lock_type="shared_strong")


# ---- shared write locks


def test_of_two_overlapping_shared_writes_the_later_commit_wins(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, **SHARED)
    first, second = db.begin(), db.begin()
    second.insert_rows(path, [{"k": 1, "v": 2}], lock_type="shared_write")
    first.insert_rows(path, [{"k": 1, "v": 1}], lock_type="shared_write")
    second.commit()
    first.commit()
    assert value(db, path, 1) == 1


def test_shared_write_locks_are_refused_until_the_table_allows_them(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    text = "Shared write locks are not allowed for the table"

    def try_to_write() -> None:
        with db.begin() as transaction:
            transaction.insert_rows(path, [{"k": 1, "v": 1}], lock_type="shared_write")

    with refused(InvalidRequest, text, is_retryable=False, table=path):
        try_to_write()
    db.set(f"{path}/@enable_shared_write_locks", True)
    with refused(InvalidRequest, text, is_retryable=False):
        try_to_write()  # settings apply from the next mount or remount
    assert read(db, path) == []
    db.remount_table(path)
    until_it_works(backend, try_to_write)
    assert value(db, path, 1) == 1


def test_a_group_taken_both_ways_in_one_transaction_is_taken_exclusively(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, **SHARED)
    both, shared = db.begin(), db.begin()
    both.insert_rows(path, [{"k": 1, "v": 1}], lock_type="shared_write")
    both.insert_rows(path, [{"k": 1, "v": 2}])
    shared.insert_rows(path, [{"k": 1, "v": 3}], lock_type="shared_write")
    both.commit()
    with refused(TransactionConflict, is_retryable=True):
        shared.commit()


# ---- what a conflict says


def test_a_conflict_names_the_row_the_lock_and_the_winner(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(GROUPS)
    loser, winner = db.begin(), db.begin()
    loser.insert_rows(path, [{"k": 7, "a": 1}], update=True)
    winner.insert_rows(path, [{"k": 7, "a": 2}], update=True)
    won_at = winner.commit()
    (tablet,) = db.get_table(path).tablets
    with refused(
        TransactionConflict,
        "concurrent",
        is_retryable=True,
        key={"k": 7},
        lock="a",
        table=path,
        tablet=tablet.tablet,
        start_timestamp=loser.start_timestamp,
        winner_timestamp=won_at,
    ) as refusal:
        loser.commit()
    assert refusal.error.code == 1700
    assert loser.state.value == "aborted"


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("write", "was written by"),
        ("shared write", "was written in shared mode by"),
        ("exclusive lock", "was locked by"),
        ("shared_strong lock", "was read-locked by"),
    ],
)
def test_a_conflict_error_reports_how_the_other_transaction_used_the_row(
    db: Client, make_table: MakeTable, first: str, words: str
) -> None:
    path = make_table(PLAIN, **SHARED)
    early, late = db.begin(), db.begin()
    WAYS[first](early, path, 1)
    _write(late, path, 1)
    early.commit()
    with refused(TransactionConflict, words, is_retryable=True, lock=MAIN_LOCK, key={"k": 1}):
        late.commit()


def test_one_lost_row_loses_the_whole_transaction(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, pivot_keys=[[], [100]])
    loser, winner = db.begin(), db.begin()
    loser.insert_rows(path, [{"k": key, "v": 1} for key in (1, 50, 100, 150)])
    winner.insert_rows(path, [{"k": 150, "v": 2}])
    winner.commit()
    with refused(TransactionConflict, is_retryable=True, key={"k": 150}):
        loser.commit()
    assert read(db, path) == [{"k": 150, "v": 2}]
