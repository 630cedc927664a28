"""Transactions that meet a change of their table: the error they get, and whether to rerun them.

Owns: for each such change, that a transaction begun before it is refused and leaves nothing, and
that its error is retryable exactly if running it again succeeds without anybody's doing.
"""

from collections.abc import Callable

import pytest

from conformance.backends import Backend
from conformance.tables import KEY, PLAIN, MakeTable, read, refused, value
from dodona.client import Client, Transaction
from dodona.errors import (
    DodonaError,
    SnapshotTooOld,
    TableNotFound,
    TableNotMounted,
    TransactionAborted,
    TransactionConflict,
)
from dodona.types import Atomicity

Change = Callable[[Client, str], None]


def _mount_again(db: Client, path: str) -> None:
    db.unmount_table(path)
    db.mount_table(path)


def _reshard(db: Client, path: str) -> None:
    db.unmount_table(path)
    db.reshard_table(path, pivot_keys=[[], [1], [2]])
    db.mount_table(path)


def _alter(db: Client, path: str) -> None:
    db.unmount_table(path)
    db.alter_table(path, [*PLAIN, {"name": "w", "type": "int64"}])
    db.mount_table(path)


def _make_anew(db: Client, path: str) -> None:
    db.unmount_table(path)
    db.remove_table(path)
    db.create_table(path, PLAIN, mount=True)


def _move(db: Client, path: str) -> None:
    db.unmount_table(path)
    db.move(path, f"{path}-moved")


def _remove(db: Client, path: str) -> None:
    db.unmount_table(path)
    db.remove_table(path)


PASSING: dict[str, tuple[Change, type[DodonaError]]] = {
    "it was mounted again": (_mount_again, SnapshotTooOld),
    "it was resharded": (_reshard, SnapshotTooOld),
    "it was altered": (_alter, TransactionAborted),
    "it was made anew": (_make_anew, SnapshotTooOld),
}
LASTING: dict[str, tuple[Change, type[DodonaError]]] = {
    "it was unmounted": (lambda db, path: db.unmount_table(path), TableNotMounted),
    "it was frozen": (lambda db, path: db.freeze_table(path), TableNotMounted),
    "it was moved": (_move, TableNotFound),
    "it was removed": (_remove, TableNotFound),
}


def _write(transaction: Transaction, path: str) -> None:
    transaction.insert_rows(path, [{"k": 1, "v": 1}], update=True)


@pytest.mark.parametrize("name", PASSING)
def test_a_transaction_from_before_is_refused_and_can_be_rerun(
    db: Client, make_table: MakeTable, name: str
) -> None:
    change, kind = PASSING[name]
    path = make_table()
    transaction = db.begin()
    _write(transaction, path)
    change(db, path)
    with refused(kind, is_retryable=True):
        transaction.commit()
    assert read(db, path) == []
    db.run_in_transaction(lambda again: _write(again, path), attempts_max=1)
    assert value(db, path, 1) == 1


@pytest.mark.parametrize("name", PASSING)
def test_a_rerun_function_overcomes_a_passing_change(
    db: Client, other: Client, make_table: MakeTable, name: str
) -> None:
    change, _ = PASSING[name]
    path = make_table()
    attempts = []

    def write(transaction: Transaction) -> None:
        attempts.append(transaction.id)
        _write(transaction, path)
        if len(attempts) == 1:
            change(other, path)

    db.run_in_transaction(write)
    assert len(attempts) >= 2
    assert value(db, path, 1) == 1


@pytest.mark.parametrize(("before", "after"), [("full", "none"), ("none", "full")])
def test_a_write_outside_any_transaction_can_be_repeated_when_the_atomicity_changed(
    db: Client, other: Client, make_table: MakeTable, before: Atomicity, after: Atomicity
) -> None:
    """Its mode is the table's, which its client remembers: no fault of the caller's."""
    path = make_table(atomicity=before)
    other.insert_rows(path, [{"k": 1, "v": 1}])
    calls: list[Callable[[], object]] = [
        lambda: other.insert_rows(path, [{"k": 1, "v": 2}]),
        lambda: other.delete_rows(path, [{"k": 1}]),
    ]
    for call in calls:
        db.unmount_table(path)
        db.set(f"{path}/@atomicity", after)
        db.mount_table(path)
        with refused(TransactionAborted, "atomicity changed", is_retryable=True, table=path):
            call()
        call()
        before, after = after, before
    assert read(db, path) == []


@pytest.mark.parametrize("name", LASTING)
def test_a_commit_to_an_unmounted_frozen_moved_or_removed_table_is_not_retryable(
    db: Client, make_table: MakeTable, name: str
) -> None:
    change, kind = LASTING[name]
    path = make_table()
    transaction = db.begin()
    _write(transaction, path)
    change(db, path)
    with refused(kind, is_retryable=False):
        transaction.commit()
    with refused(kind, is_retryable=False):
        db.insert_rows(path, [{"k": 1, "v": 1}])


def test_one_unmounted_table_refuses_the_whole_transaction(
    db: Client, make_table: MakeTable
) -> None:
    mounted, unmounted = make_table(), make_table()
    transaction = db.begin()
    for path in (mounted, unmounted):
        _write(transaction, path)
    db.unmount_table(unmounted)
    with refused(TableNotMounted, is_retryable=False):
        transaction.commit()
    assert read(db, mounted) == []


def test_rows_can_be_buffered_for_a_table_that_is_mounted_before_the_commit(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(mount=False)
    transaction = db.begin()
    _write(transaction, path)
    with refused(TableNotMounted, is_retryable=False, state="unmounted"):
        transaction.commit()
    late = db.begin()
    db.mount_table(path)
    _write(late, path)
    with refused(SnapshotTooOld, is_retryable=True):
        late.commit()


def test_a_remount_does_not_disturb_transactions(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    transaction = db.begin()
    _write(transaction, path)
    db.remount_table(path)
    transaction.commit()
    assert value(db, path, 1) == 1


def test_a_freeze_that_is_over_disturbs_no_transaction_and_hides_no_conflict(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    early, loser = db.begin(), db.begin()
    _write(early, path)
    loser.insert_rows(path, [{"k": 2, "v": 1}])
    db.insert_rows(path, [{"k": 2, "v": 2}])
    db.freeze_table(path)
    db.unfreeze_table(path)
    early.commit()
    with refused(TransactionConflict, is_retryable=True, key={"k": 2}):
        loser.commit()
    assert [row["v"] for row in read(db, path)] == [1, 2]


def test_snapshots_from_before_an_unmount_are_read_after_the_mount(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    at = db.insert_rows(path, [{"k": 1, "v": 1}])
    assert at is not None
    db.insert_rows(path, [{"k": 1, "v": 2}])
    _mount_again(db, path)
    assert read(db, path, timestamp=at) == [{"k": 1, "v": 1}]
    assert read(db, path, timestamp=at - 1) == []
    assert read(db, path) == [{"k": 1, "v": 2}]


def test_a_client_that_knew_another_schema_reads_by_the_new_one(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table()
    other.insert_rows(path, [{"k": 1, "v": 1}])
    db.unmount_table(path)
    db.remove_table(path)
    db.create_table(path, [KEY, {"name": "x", "type": "string"}], mount=True)
    assert list(other.select(path)) == []
    db.insert_rows(path, [{"k": 1, "x": b"y"}])
    assert other.lookup_rows(path, [{"k": 1}]) == [{"k": 1, "x": b"y"}]


def test_removing_a_mounted_table_unmounts_it(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    db.remove(path)
    assert not db.exists(path)
    with refused(TableNotFound, is_retryable=False):
        db.lookup_rows(path, [{"k": 1}])
    db.create_table(path, PLAIN, mount=True)
    assert read(db, path) == []
