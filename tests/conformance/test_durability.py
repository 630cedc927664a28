"""What was acknowledged is there after a crash, and what was under way is wholly there or not."""

from typing import Any

import pytest

from conformance.backends import Backend, Simulated, until_it_works
from conformance.stepping import prepare
from conformance.tables import APART, PLAIN, TWO_COLUMNS, MakeTable, read, refused, value
from dodona.client import Client
from dodona.errors import SnapshotTooOld, TransactionConflict
from dodona.types import LockType


def test_committed_rows_survive_in_both_modes_and_all_their_versions(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    full = make_table(TWO_COLUMNS, pivot_keys=APART)
    none = make_table(TWO_COLUMNS, atomicity="none")
    stamps: dict[str, list[Any]] = {full: [], none: []}
    for path, seen in stamps.items():
        seen.append(db.insert_rows(path, [{"k": key, "v": key, "w": b"x"} for key in (1, 2, 100)]))
        seen.append(db.insert_rows(path, [{"k": 1, "v": 5}], update=True))
        seen.append(db.delete_rows(path, [{"k": 2}]))
    before = {at: read(db, path, timestamp=at) for path in stamps for at in stamps[path]}
    assert [len(rows) for rows in before.values()] == [3, 3, 2] * 2
    backend.restart_cells()
    assert {at: read(db, path, timestamp=at) for path in stamps for at in stamps[path]} == before


def test_tables_survive_a_restart_of_the_master(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, pivot_keys=APART)
    db.insert_rows(path, [{"k": 1, "v": 1}])
    before = db.get_table(path)
    backend.restart_master()
    assert db.get_table(path) == before
    db.insert_rows(path, [{"k": 100, "v": 1}])
    assert len(read(db, path)) == 2


def test_a_transaction_from_before_a_restart_is_refused(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    """The locks of those who committed meanwhile are forgotten: it could overlook a conflict."""
    path = make_table(attributes={"enable_shared_write_locks": True})
    ways: list[LockType | None] = [None, "exclusive", "shared_strong", "shared_write"]
    old = [db.begin() for _ in ways]
    for key, lock_type in enumerate(ways):
        with db.begin() as winner:
            if lock_type is None:
                winner.insert_rows(path, [{"k": key, "v": 1}])
            else:
                winner.lock_rows(path, [{"k": key}], lock_type=lock_type)
        old[key].insert_rows(path, [{"k": key, "v": 2}])
    backend.restart_cells()
    for transaction in old:
        with refused(SnapshotTooOld, is_retryable=True, table=path):
            transaction.commit()
    assert read(db, path) == [{"k": 0, "v": 1}]
    db.run_in_transaction(lambda again: again.insert_rows(path, [{"k": 0, "v": 2}]))
    assert value(db, path, 0) == 2


def test_a_snapshot_from_before_a_restart_can_still_be_read(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    old = db.begin()
    db.insert_rows(path, [{"k": 1, "v": 2}])
    backend.restart_cells()
    assert old.lookup_rows(path, [{"k": 1}]) == [{"k": 1, "v": 1}]


@pytest.mark.parametrize("backend", ["simulator"], indirect=True)
def test_a_prepared_transaction_keeps_its_locks_through_a_restart_and_then_commits(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=APART)
    early = db.begin()
    early.insert_rows(path, [{"k": 1, "v": 5}])
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 1, "v": 1}, {"k": 100, "v": 1}])
    commit = prepare(db, transaction)
    assert isinstance(backend, Simulated)
    with backend.cells_are_apart():  # nobody can find out what became of it
        backend.restart_cells()
        late = db.begin()
        late.insert_rows(path, [{"k": 100, "v": 2}])
        waiting = backend.start(db, db._session.commit(late._buffer))
        backend.let_pass(500)
        assert not waiting.is_over
    with refused(SnapshotTooOld, is_retryable=True):
        early.commit()
    first, second = commit.result(), waiting.result()
    assert first is not None
    assert second is not None
    assert first < second
    assert [row["v"] for row in read(db, path)] == [1, 2]


def test_locks_of_a_transaction_begun_after_a_restart_are_kept_as_before(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    backend.restart_cells()
    reader, writer = db.begin(), db.begin()
    writer.insert_rows(path, [{"k": 1, "v": 1}])
    reader.lock_rows(path, [{"k": 1}])
    reader.commit()
    with refused(TransactionConflict, is_retryable=True):
        writer.commit()


def test_settings_and_states_survive(backend: Backend, db: Client, make_table: MakeTable) -> None:
    frozen, mounted = make_table(), make_table()
    db.insert_rows(frozen, [{"k": 1, "v": 1}])
    db.freeze_table(frozen)
    db.set(f"{mounted}/@enable_shared_write_locks", True)
    db.remount_table(mounted)
    backend.restart_master()
    backend.restart_cells()
    assert [it.state for it in db.get_table(frozen).tablets] == ["frozen"]
    assert read(db, frozen) == [{"k": 1, "v": 1}]

    def write() -> None:
        with db.begin() as transaction:
            transaction.insert_rows(mounted, [{"k": 1, "v": 1}], lock_type="shared_write")

    until_it_works(backend, write)
    assert value(db, mounted, 1) == 1


def test_a_crash_loses_at_most_the_last_asynchronous_writes(simulator: Backend) -> None:
    db = simulator.db
    db.create_table("//t", PLAIN, atomicity="none", mount=True)
    count = 200
    for key in range(count):
        db.insert_rows("//t", [{"k": key, "v": key}], durability="async")
    simulator.restart_cells()
    left = [row["k"] for row in read(db, "//t")]
    assert left == list(range(len(left)))
    assert len(left) > count // 2  # the log is about 100 ms behind at most


def test_asynchronous_writes_become_durable_by_themselves(simulator: Backend) -> None:
    db = simulator.db
    db.create_table("//t", PLAIN, atomicity="none", mount=True)
    db.insert_rows("//t", [{"k": 1, "v": 1}], durability="async")
    simulator.let_pass(200)
    simulator.restart_cells()
    assert read(db, "//t") == [{"k": 1, "v": 1}]
