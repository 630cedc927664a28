"""The isolation of a table's readers: when each client uses a changed setting, and what it does."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.tables import MakeTable, refused, value
from dodona.client import Client
from dodona.errors import TransactionConflict
from dodona.transaction import Transaction


def look_up(transaction: Transaction, path: str) -> None:
    transaction.lookup_rows(path, [{"k": 1}])


READS: list[Callable[[Transaction, str], object]] = [
    look_up,
    lambda transaction, path: transaction.lookup_rows(path, [{"k": 1}], columns=["v"]),
    lambda transaction, path: transaction.lookup_versions(path, [{"k": 1}]),
    lambda transaction, path: transaction.select(path),
    lambda transaction, path: transaction.read_arrow(path),
    lambda transaction, path: transaction._run(
        transaction._session.first_rows(path, 1, 100, transaction=transaction._buffer), None
    ),
    lambda transaction, path: transaction.query(f"select v from [{path}]"),
]


def is_validated(
    db: Client, path: str, read: Callable[[Transaction, str], object] = look_up
) -> bool:
    """Whether a commit would validate what a transaction reads of the table."""
    transaction = db.begin()
    read(transaction, path)
    reads = transaction._buffer.reads
    transaction.abort()
    return reads is not None and any(it.count for it in reads.tables.values())


def test_a_client_that_sets_the_isolation_uses_it_from_then_on(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    assert not is_validated(db, path)
    db.set(f"{path}/@isolation", "serializable")
    assert is_validated(db, path)
    db.set(f"{path}/@isolation", None)
    assert not is_validated(db, path)


@pytest.mark.parametrize("read", READS)
def test_other_clients_use_it_once_the_table_was_unmounted_and_mounted(
    db: Client, other: Client, make_table: MakeTable, read: Callable[[Transaction, str], object]
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    assert not is_validated(other, path)
    db.set(f"{path}/@isolation", "serializable")
    db.remount_table(path)
    assert not is_validated(other, path)
    db.unmount_table(path)
    db.mount_table(path)
    assert is_validated(other, path, read)


def test_other_clients_use_it_after_they_looked_the_table_up(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table()
    assert not is_validated(other, path)
    db.set(f"{path}/@isolation", "serializable")
    assert other.get_table(path).settings.isolation == "serializable"
    assert is_validated(other, path)


def skew(db: Client, path: str, **options: Any) -> None:
    """Two transactions each rely on the row that the other one changes."""
    with db.begin(**options) as one, db.begin(**options) as another:
        for transaction, read, written in ((one, 1, 2), (another, 2, 1)):
            assert transaction.lookup_rows(path, [{"k": read}]) == [{"k": read, "v": 0}]
            transaction.insert_rows(path, [{"k": written, "v": 1}])


def test_write_skew_is_refused_in_a_serializable_table(db: Client, make_table: MakeTable) -> None:
    path = make_table(attributes={"isolation": "serializable"})
    rows = [{"k": 1, "v": 0}, {"k": 2, "v": 0}]
    db.insert_rows(path, rows)
    with refused(TransactionConflict, is_retryable=True):
        skew(db, path)
    db.insert_rows(path, rows)
    skew(db, path, isolation="snapshot")
    db.insert_rows(path, rows)
    db.set(f"{path}/@isolation", None)
    skew(db, path)
    db.insert_rows(path, rows)
    with refused(TransactionConflict, is_retryable=True):
        skew(db, path, isolation="serializable")


def test_a_serializable_function_runs_until_what_it_read_is_unchanged(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(attributes={"isolation": "serializable"})
    db.insert_rows(path, [{"k": 1, "v": 0}, {"k": 2, "v": 0}])
    seen = []

    def copy(transaction: Transaction) -> None:
        (row,) = transaction.lookup_rows(path, [{"k": 1}])
        seen.append(row["v"])
        if len(seen) == 1:
            db.insert_rows(path, [{"k": 1, "v": 5}])
        transaction.insert_rows(path, [{"k": 2, "v": seen[-1]}])

    db.run_in_transaction(copy)
    assert seen == [0, 5]
    assert value(db, path, 2) == 5
    seen.clear()
    db.insert_rows(path, [{"k": 1, "v": 0}])
    db.run_in_transaction(copy, isolation="snapshot")
    assert seen == [0]
