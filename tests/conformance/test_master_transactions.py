"""Master transactions: they change the tree, all at once, and never rows."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.backends import Backend, Simulated
from conformance.tables import PLAIN, MakeTable, read, refused
from dodona.client import Client
from dodona.errors import (
    DodonaError,
    InvalidRequest,
    NodeLocked,
    TransactionClosed,
    TransactionNotFound,
)
from dodona_wire.messages.tree import LockMode

pytestmark = pytest.mark.part("transactions on real processes")


@pytest.fixture
def folder(db: Client, new_path: str) -> str:
    db.create_directory(new_path, recursive=True)
    return new_path


def test_changes_of_a_master_transaction_become_visible_at_its_commit(
    db: Client, other: Client, folder: str
) -> None:
    db.create_directory(f"{folder}/old")
    with db.begin_master() as transaction:
        transaction.create_directory(f"{folder}/a")
        transaction.create_table(f"{folder}/t", PLAIN)
        transaction.set(f"{folder}/a/@x", 1)
        transaction.move(f"{folder}/old", f"{folder}/new")
        assert transaction.list(folder) == ["a", "new", "t"]
        assert transaction.get(f"{folder}/a/@x") == 1
        assert other.list(folder) == ["old"]
        assert not db.exists(f"{folder}/t")
    assert other.list(folder) == ["a", "new", "t"]
    assert other.get(f"{folder}/a/@x") == 1


def test_an_aborted_one_leaves_nothing(db: Client, folder: str) -> None:
    def fail() -> None:
        with db.begin_master() as transaction:
            transaction.create_table(f"{folder}/t", PLAIN)
            transaction.set(f"{folder}/@x", 1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    transaction = db.begin_master()
    transaction.create_directory(f"{folder}/a")
    transaction.abort()
    assert db.list(folder) == []
    assert not db.exists(f"{folder}/@x")


def test_a_table_made_in_one_can_be_used_after_the_commit(db: Client, folder: str) -> None:
    with db.begin_master() as transaction:
        transaction.create_table(f"{folder}/t", PLAIN)
    db.mount_table(f"{folder}/t")
    db.insert_rows(f"{folder}/t", [{"k": 1, "v": 1}])
    assert read(db, f"{folder}/t") == [{"k": 1, "v": 1}]


def test_a_nested_master_transaction_passes_its_changes_to_the_outer_transaction(
    db: Client, folder: str
) -> None:
    with db.begin_master() as outer:
        outer.create_directory(f"{folder}/a")
        with outer.begin() as inner:
            assert inner.exists(f"{folder}/a")
            inner.create_directory(f"{folder}/a/b")
            assert not outer.exists(f"{folder}/a/b")
        assert outer.exists(f"{folder}/a/b")
        dropped = outer.begin()
        dropped.create_directory(f"{folder}/c")
        dropped.abort()
        assert not db.exists(f"{folder}/a")
    assert db.get(folder) == {"a": {"b": {}}}


def test_an_abort_of_a_master_transaction_also_ends_nested_transactions(
    db: Client, folder: str
) -> None:
    outer = db.begin_master()
    inner = outer.begin()
    inner.create_directory(f"{folder}/a")
    outer.abort()
    with pytest.raises(DodonaError) as caught:
        inner.commit()
    assert isinstance(caught.value, TransactionNotFound | TransactionClosed)
    assert db.list(folder) == []


def test_a_finished_one_takes_nothing_more(db: Client, folder: str) -> None:
    transaction = db.begin_master()
    transaction.commit()
    with refused(TransactionClosed, is_retryable=False):
        transaction.create_directory(f"{folder}/a")
    with refused(TransactionClosed, is_retryable=False):
        transaction.abort()


# ---- locks


def test_a_node_changed_by_a_master_transaction_is_locked_until_its_end(
    db: Client, other: Client, folder: str
) -> None:
    db.create_directory(f"{folder}/a")
    transaction = db.begin_master()
    transaction.set(f"{folder}/a/@x", 1)
    with refused(NodeLocked, is_retryable=True):
        other.set(f"{folder}/a/@x", 2)
    with refused(NodeLocked, is_retryable=True):
        other.remove(f"{folder}/a")
    transaction.commit()
    other.set(f"{folder}/a/@x", 2)
    assert db.get(f"{folder}/a/@x") == 2


def test_two_master_transactions_may_create_different_nodes_in_one_directory(
    db: Client, other: Client, folder: str
) -> None:
    first, second = db.begin_master(), other.begin_master()
    first.create_directory(f"{folder}/a")
    second.create_directory(f"{folder}/b")
    with refused(NodeLocked, is_retryable=True):
        second.create_directory(f"{folder}/a")
    first.commit()
    second.commit()
    assert db.list(folder) == ["a", "b"]


def test_an_exclusive_lock_keeps_all_others_out(db: Client, other: Client, folder: str) -> None:
    holder, candidate = db.begin_master(), other.begin_master()
    holder.lock(folder)
    modes: list[LockMode] = ["exclusive", "shared"]
    for mode in modes:
        with refused(NodeLocked, is_retryable=True):
            candidate.lock(folder, mode)
    with refused(NodeLocked, is_retryable=True):
        other.create_directory(f"{folder}/a")
    holder.abort()
    candidate.lock(folder, "shared")


def test_shared_locks_go_together_unless_they_are_of_the_same_child_or_attribute(
    db: Client, other: Client, folder: str
) -> None:
    first, second = db.begin_master(), other.begin_master()
    first.lock(folder, "shared", child="a")
    second.lock(folder, "shared", child="b")
    second.lock(folder, "shared", attribute="x")
    with refused(NodeLocked, is_retryable=True):
        second.lock(folder, "shared", child="a")
    with refused(NodeLocked, is_retryable=True):
        first.lock(folder, "shared", attribute="x")
    with refused(NodeLocked, is_retryable=True):
        first.lock(folder, "exclusive")


def test_a_snapshot_lock_shows_the_node_as_of_the_time_of_the_lock(
    db: Client, other: Client, folder: str
) -> None:
    db.set(f"{folder}/@x", 1)
    transaction = db.begin_master()
    transaction.lock(folder, "snapshot")
    other.set(f"{folder}/@x", 2)
    assert transaction.get(f"{folder}/@x") == 1
    transaction.abort()
    assert db.get(f"{folder}/@x") == 2


def test_a_table_that_is_locked_is_not_mounted_unmounted_or_altered(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(mount=False)
    holder = db.begin_master()
    holder.lock(path)
    changes: list[Callable[[], None]] = [
        lambda: other.mount_table(path),
        lambda: other.alter_table(path, [*PLAIN, {"name": "w", "type": "int64"}]),
        lambda: other.reshard_table(path, pivot_keys=[[], [1]]),
        lambda: other.remove(path),
    ]
    for change in changes:
        with refused(NodeLocked, is_retryable=True):
            change()
    holder.abort()
    other.mount_table(path)


# ---- life


def test_a_master_transaction_without_pings_is_aborted(simulator: Simulated) -> None:
    db, run = simulator.db, simulator.db._driver.run
    transaction = run(db._session.catalog.begin(5_000, "nobody watches it"))
    run(transaction.create_directory("//a"))
    for _ in range(4):
        simulator.let_pass(3_000)
        run(transaction.ping())
    simulator.let_pass(8_000)
    with refused(TransactionNotFound, is_retryable=True):
        run(transaction.commit())
    assert not db.exists("//a")
    db.create_directory("//a")


def test_a_master_transaction_stays_open_while_its_client_runs(simulator: Simulated) -> None:
    transaction = simulator.db.begin_master(timeout_ms=2_000)
    transaction.create_directory("//a")
    simulator.let_pass(60_000)
    transaction.commit()
    assert simulator.db.exists("//a")


def test_a_master_transaction_survives_a_restart_of_the_master(
    backend: Backend, db: Client, other: Client, folder: str
) -> None:
    transaction = db.begin_master()
    transaction.create_directory(f"{folder}/a")
    transaction.lock(folder, "shared", child="b")
    backend.restart_master()
    with refused(NodeLocked, is_retryable=True):
        other.create_directory(f"{folder}/b")
    assert transaction.exists(f"{folder}/a")
    transaction.commit()
    assert db.list(folder) == ["a"]


# ---- the two kinds keep apart


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("insert_rows", [[{"k": 1, "v": 1}]]),
        ("delete_rows", [[{"k": 1}]]),
        ("lock_rows", [[{"k": 1}]]),
    ],
)
def test_a_master_transaction_writes_no_rows(
    db: Client, make_table: MakeTable, method: str, arguments: list[Any]
) -> None:
    path = make_table()
    transaction = db.begin_master()
    with refused(InvalidRequest, is_retryable=False):
        getattr(transaction, method)(path, *arguments)
    transaction.abort()
    assert read(db, path) == []


def test_a_tablet_transaction_has_no_calls_of_the_tree(db: Client) -> None:
    transaction = db.begin()
    for name in ("create_table", "create_directory", "remove", "move", "set", "lock"):
        assert not hasattr(transaction, name)


def test_an_open_master_transaction_is_no_hindrance_to_rows(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    holder = db.begin_master()
    holder.lock(path)
    db.insert_rows(path, [{"k": 1, "v": 1}])
    assert read(db, path) == [{"k": 1, "v": 1}]
    holder.abort()
