"""Serializable transactions: what they read is as it was at their commit, or the commit fails."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.backends import Backend
from conformance.selections import ON_SEVERAL_CELLS
from conformance.stepping import prepare
from conformance.tables import APART, GROUPS, PLAIN, MakeTable, read, refused, value
from dodona.client import Client, Transaction
from dodona.errors import TransactionConflict
from dodona.types import Isolation

pytestmark = pytest.mark.part("transactions on real processes")

NEAR, FAR = 1, 150
"""Keys of two tablets."""
ISOLATIONS: list[Isolation] = ["snapshot", "serializable"]


def rows(*keys: int, v: int = 1) -> list[dict[str, int]]:
    return [{"k": key, "v": v} for key in keys]


def keys(*numbers: int) -> list[dict[str, int]]:
    return [{"k": number} for number in numbers]


def commits(transaction: Transaction) -> bool:
    try:
        transaction.commit()
    except TransactionConflict:
        return False
    return True


# ---- anomalies


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_write_skew_is_refused(
    isolation: Isolation, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    db.insert_rows(path, rows(NEAR, FAR))
    one, two = db.begin(isolation=isolation), other.begin(isolation=isolation)
    for tx, own in ((one, NEAR), (two, FAR)):
        assert sum(it["v"] for it in tx.lookup_rows(path, keys(NEAR, FAR))) == 2
        tx.insert_rows(path, rows(own, v=0))
    assert commits(one)
    assert commits(two) is (isolation == "snapshot")
    total = sum(it["v"] for it in read(db, path))
    assert total == (0 if isolation == "snapshot" else 1)


def select(tx: Transaction, path: str) -> int:
    return len(tx.select(path, [0], [200]))


def select_all(tx: Transaction, path: str) -> int:
    return len(tx.select(path, columns=["k"]))


def read_arrow(tx: Transaction, path: str) -> int:
    count: int = tx.read_arrow(path).num_rows
    return count


def look_up(tx: Transaction, path: str) -> int:
    return len(tx.lookup_rows(path, keys(*range(NEAR, FAR + 1))))


def look_up_versions(tx: Transaction, path: str) -> int:
    return len(tx.lookup_versions(path, keys(NEAR, FAR)))


def query(tx: Transaction, path: str) -> int:
    found = tx.query(f"select count(*) as n from [{path}] where k between 0 and 199")
    count: int = found.to_pylist()[0]["n"]
    return count


COUNTS = [select, select_all, read_arrow, look_up, look_up_versions, query]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("count", COUNTS, ids=lambda it: it.__name__)
def test_phantoms_are_refused(
    count: Callable[[Transaction, str], int],
    isolation: Isolation,
    db: Client,
    other: Client,
    make_table: MakeTable,
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    one, two = db.begin(isolation=isolation), other.begin(isolation=isolation)
    for tx, own in ((one, NEAR), (two, FAR)):
        assert count(tx, path) == 0
        tx.insert_rows(path, rows(own))
    assert commits(one)
    assert commits(two) is (isolation == "snapshot")


def test_a_deleted_row_is_a_change(db: Client, other: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    db.insert_rows(path, rows(NEAR))
    tx = db.begin(isolation="serializable")
    tx.lookup_rows(path, keys(NEAR))
    other.delete_rows(path, keys(NEAR))
    tx.insert_rows(path, rows(2))
    assert not commits(tx)


def test_changes_beside_what_was_read_are_none(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    tx = db.begin(isolation="serializable")
    tx.select(path, [10], [20])
    tx.lookup_rows(path, keys(30, FAR))
    other.insert_rows(path, rows(9, 20, 29, 31, FAR - 1, FAR + 1))
    tx.insert_rows(path, rows(40))
    assert commits(tx)


def test_rows_that_the_transaction_changes_itself_are_no_conflict(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    db.insert_rows(path, rows(NEAR, 2, FAR))
    with db.begin(isolation="serializable") as tx:
        tx.select(path)
        tx.lookup_rows(path, keys(NEAR, 2, 3, FAR))
        tx.insert_rows(path, rows(NEAR, 3, v=2))
        tx.delete_rows(path, keys(2))
    assert read(db, path) == rows(NEAR, 3, v=2) + rows(FAR)


# ---- lock groups


def test_other_groups_may_change_and_rows_may_not_appear(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(GROUPS)
    db.insert_rows(path, [{"k": NEAR, "a": 1, "b": 1}])
    one, two = db.begin(isolation="serializable"), db.begin(isolation="serializable")
    one.lookup_rows(path, keys(NEAR), ["a"])
    two.lookup_rows(path, keys(2), ["a"])
    other.insert_rows(path, [{"k": NEAR, "b": 2}, {"k": 2, "b": 2}], update=True)
    for tx in (one, two):
        tx.insert_rows(path, [{"k": 10, "main": 1}])
    assert not commits(two), "the row was absent, and is there by another group"
    assert commits(one)


# ---- what a refusal says


def test_a_refusal_names_the_row_or_the_range(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    one, two = db.begin(isolation="serializable"), db.begin(isolation="serializable")
    one.lookup_rows(path, keys(NEAR))
    two.select(path, [0], [20])
    winner = other.insert_rows(path, rows(NEAR))
    for tx in (one, two):
        tx.insert_rows(path, rows(50))
    about: dict[str, Any] = {"table": path, "winner_timestamp": winner, "key": {"k": NEAR}}
    with refused(TransactionConflict, is_retryable=True, **about):
        one.commit()
    with refused(TransactionConflict, is_retryable=True, **about, range=[[0], [20]]):
        two.commit()


def test_a_function_runs_again_until_what_it_read_is_unchanged(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    changes: Iterator[int] = iter(range(1, 4))

    def copy(tx: Transaction) -> int:
        seen: int = sum(it["v"] for it in tx.lookup_rows(path, keys(FAR)))
        for it in changes:
            other.insert_rows(path, rows(FAR, v=it))
            break
        tx.insert_rows(path, rows(NEAR, v=seen))
        return seen

    assert db.run_in_transaction(copy, isolation="serializable") >= 2
    assert value(db, path, NEAR) == value(db, path, FAR)


# ---- transactions that only read


def test_a_transaction_that_has_only_read_commits_without_a_request(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    tx = db.begin(isolation="serializable")
    tx.select(path)
    other.insert_rows(path, rows(NEAR))
    assert tx.commit() is None
    assert db.begin(isolation="serializable").commit() is None


# ---- the default of a client


def test_a_client_may_make_all_its_transactions_serializable(
    db: Client, other: Client, make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_table(PLAIN)
    monkeypatch.setattr(db._session._context, "isolation", "serializable")
    one, two = db.begin(), db.begin(isolation="snapshot")
    for number, tx in enumerate((one, two)):
        tx.lookup_rows(path, keys(NEAR))
        tx.insert_rows(path, rows(10 + number))
    other.insert_rows(path, rows(NEAR))
    assert not commits(one)
    assert commits(two)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_table_may_have_an_isolation_of_its_own(
    isolation: Isolation,
    db: Client,
    other: Client,
    make_table: MakeTable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(db._session._context, "isolation", "snapshot")
    plain, path = make_table(PLAIN), make_table(PLAIN)
    db.set(f"{path}/@isolation", isolation)
    one, two, three = db.begin(), db.begin(), db.begin(isolation="snapshot")
    for number, (tx, which) in enumerate(((one, path), (two, plain), (three, path))):
        tx.lookup_rows(which, keys(NEAR))
        tx.insert_rows(which, rows(10 + number))
    other.insert_rows(path, rows(NEAR))
    other.insert_rows(plain, rows(NEAR))
    assert commits(one) is (isolation == "snapshot")
    assert commits(two)
    assert commits(three)


# ---- several tables and cells


def test_a_table_that_was_only_read_is_validated(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    settings, data = make_table(PLAIN), make_table(PLAIN)
    db.insert_rows(settings, rows(NEAR))
    first, second = (db.begin(isolation="serializable") for _ in range(2))
    for number, tx in enumerate((first, second)):
        assert tx.lookup_rows(settings, keys(NEAR)) == rows(NEAR)
        tx.insert_rows(data, rows(number))
    assert commits(first)
    other.insert_rows(settings, rows(NEAR, v=2))
    with refused(TransactionConflict, is_retryable=True, table=settings):
        second.commit()


@ON_SEVERAL_CELLS
def test_a_cell_that_was_only_read_holds_the_rows_until_the_outcome(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    tx, writer = db.begin(isolation="serializable"), other.begin()
    tx.lookup_rows(path, keys(FAR))
    tx.insert_rows(path, rows(NEAR))
    commit = prepare(db, tx)
    writer.insert_rows(path, rows(FAR, FAR + 1))
    writing = backend.start(other, other._session.commit(writer._buffer))
    backend.let_pass(20)
    assert not writing.is_over, "the writer waits for the reader"
    at = commit.result()
    ended = writing.result()
    assert at is not None
    assert ended is not None
    assert ended > at


@ON_SEVERAL_CELLS
def test_write_skew_of_two_cells_at_the_same_time_is_refused(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    db.insert_rows(path, rows(NEAR, FAR))
    clients, transactions = (db, other), list[Transaction]()
    for client, own in zip(clients, (NEAR, FAR), strict=True):
        tx = client.begin(isolation="serializable")
        tx.select(path)
        tx.insert_rows(path, rows(own, v=0))
        transactions.append(tx)
    running = [
        backend.start(client, client._session.commit(tx._buffer))
        for client, tx in zip(clients, transactions, strict=True)
    ]
    results: list[Any] = []
    for it in running:
        try:
            results.append(it.result())
        except TransactionConflict:
            results.append(None)
    assert results.count(None) >= 1
    assert sum(it["v"] for it in read(db, path)) >= 1


def test_a_frozen_table_may_be_read(db: Client, make_table: MakeTable) -> None:
    frozen, data = make_table(PLAIN, pivot_keys=APART), make_table(PLAIN)
    db.insert_rows(frozen, rows(NEAR, FAR))
    db.freeze_table(frozen)
    with db.begin(isolation="serializable") as tx:
        assert len(tx.select(frozen)) == 2
        tx.insert_rows(data, rows(NEAR))
    assert read(db, data) == rows(NEAR)


def test_the_times_of_writes_are_read_with_any_columns(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    """`lookup_versions` says when a row was written, also in columns that were not asked for."""
    path, elsewhere = make_table(GROUPS), make_table(PLAIN)
    db.insert_rows(path, [{"k": 1, "a": 1, "b": 1}])
    tx = db.begin(isolation="serializable")
    tx.lookup_versions(path, keys(1), ["a"])
    tx.insert_rows(elsewhere, rows(1))
    other.insert_rows(path, [{"k": 1, "b": 2}], update=True)
    assert not commits(tx)
