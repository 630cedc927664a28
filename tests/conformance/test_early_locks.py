"""Early locks: who gets a row, what an owner sees, and what others do meanwhile."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from conformance.backends import Backend, Simulated
from conformance.locking import (
    FAR,
    SOON_MS,
    begin_beside,
    end,
    is_free,
    keys,
    locked,
    stand_in_line,
    wait_until,
    wait_until_free,
)
from conformance.selections import ON_SEVERAL_CELLS
from conformance.stepping import prepare
from conformance.tables import APART, GROUPS, PLAIN, MakeTable, read, refused, value
from dodona._core.protocol.steps import Protocol
from dodona.client import Client, Transaction
from dodona.errors import (
    DodonaError,
    RowBlocked,
    TransactionConflict,
)

pytestmark = [
    pytest.mark.part("transactions on real processes"),
    pytest.mark.usefixtures("long_leases"),
]

WRITER_COUNT, STEP_COUNT = 8, 5


# ---- what an owner has


def test_an_owner_reads_the_newest_version_and_commits(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    first = db.begin(locks={path: keys(1)})
    waiting = stand_in_line(backend, other, {path: keys(1, 2)})
    first.insert_rows(path, [{"k": 1, "v": 1}])
    first.commit()
    second = waiting.result()
    assert second.start_timestamp is not None
    assert first.commit_timestamp is not None
    assert second.start_timestamp > first.commit_timestamp
    assert value(other, path, 1, timestamp=second.start_timestamp) == 1
    session = other._session
    other._run(session.insert_rows(second, path, [{"k": 1, "v": 2}]))
    other._run(session.commit(second))
    assert value(db, path, 1) == 2


def test_locked_rows_are_named_and_need_not_exist(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    with db.begin(locks={path: keys(FAR, 1, 1)}) as tx:
        assert tx.locked_rows == {path: keys(1, FAR)}
        assert tx.lookup_rows(path, keys(1, FAR)) == []
    assert tx.state.value == "committed"
    assert read(db, path) == [], "a lock makes no row"
    assert db.begin().locked_rows == {}


def test_a_set_without_rows_locks_nothing(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    with db.begin(locks={path: []}) as tx:
        assert tx.locked_rows == {path: []}
        tx.insert_rows(path, [{"k": 1, "v": 1}])
    assert value(db, path, 1) == 1


def test_rows_of_two_tables_and_two_cells_are_locked_together(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    one, two = make_table(PLAIN, pivot_keys=APART), make_table(GROUPS, pivot_keys=APART)
    tx = db.begin(locks={one: keys(1, FAR), two: keys(1, FAR)})
    assert tx.locked_rows == {one: keys(1, FAR), two: keys(1, FAR)}
    taken = [(path, key) for path in (one, two) for key in (1, FAR)]
    assert not any(is_free(other, *it) for it in taken)
    assert is_free(other, one, 2)
    tx.insert_rows(one, [{"k": 1, "v": 1}, {"k": FAR, "v": 1}])
    tx.insert_rows(two, [{"k": FAR, "a": 1}], update=True)
    tx.commit()
    assert read(db, one) == [{"k": 1, "v": 1}, {"k": FAR, "v": 1}]
    assert value(db, two, FAR, "a") == 1
    for it in taken:
        wait_until_free(backend, other, *it)  # also those that were not written


def test_a_locked_row_excludes_all_lock_groups(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(GROUPS)
    with db.begin(locks={path: keys(1)}):
        tx = other.begin()
        tx.insert_rows(path, [{"k": 1, "b": 1}], update=True)
        with pytest.raises(TransactionConflict):
            tx.commit()


# ---- lines


def test_owners_wait_in_order(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    tx = db.begin(locks={path: keys(1)})
    line = [stand_in_line(backend, other, {path: keys(1, 10 + it)}) for it in range(4)]
    tx.abort()
    while line:
        buffer = line.pop(0).result()
        backend.let_pass(SOON_MS)
        assert not any(it.is_over for it in line), "one owner has the row"
        end(other, buffer)


@pytest.mark.parametrize("cells", [1, 2])
def test_owners_that_name_rows_in_any_order_do_not_wait_for_each_other(
    backend: Backend, db: Client, other: Client, make_table: MakeTable, cells: int
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    far = FAR if cells == 2 else 2
    orders = [(db, keys(1, far)), (other, keys(far, 1))] * 4
    begun = [(it, begin_beside(backend, it, {path: rows})) for it, rows in orders]

    def end_those_that_have_begun() -> bool:
        for client, it in begun:
            if it.is_over and (buffer := it.result()).is_active:
                end(client, buffer)
        return all(it.is_over for _, it in begun)

    wait_until(backend, end_those_that_have_begun, "they wait for each other")


@pytest.mark.parametrize("how", [{"wait_ms": 50}, {"nowait": True}])
def test_a_wait_ends_with_the_row_and_its_owner(
    backend: Backend, db: Client, other: Client, make_table: MakeTable, how: dict[str, Any]
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    tx = db.begin(locks={path: keys(FAR)})
    owner = tx._buffer.locked.owner
    with refused(RowBlocked, is_retryable=True, key={"k": FAR}, table=path, owner=owner):
        other.begin(locks={path: keys(1, FAR)}, **how)
    wait_until_free(backend, db, path, 1)
    tx.insert_rows(path, [{"k": FAR, "v": 1}])
    tx.commit()
    wait_until_free(backend, db, path, FAR)
    with other.begin(locks={path: keys(1, FAR)}, **how) as later:
        assert later.lookup_rows(path, keys(FAR)) == [{"k": FAR, "v": 1}]


@ON_SEVERAL_CELLS
def test_a_request_waits_for_a_transaction_that_commits(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    tx = db.begin()
    tx.insert_rows(path, [{"k": 1, "v": 1}, {"k": FAR, "v": 1}])
    commit = prepare(db, tx)
    with refused(RowBlocked, is_retryable=True, table=path, key={"k": 1}, winner=tx.id):
        other.begin(locks={path: keys(1)}, nowait=True)
    waiting = stand_in_line(backend, other, {path: keys(1, 2)})
    commit.result()
    at = waiting.result().start_timestamp
    assert at is not None
    assert tx.commit_timestamp is not None
    assert at > tx.commit_timestamp
    end(other, waiting.result())


# ---- rows that are free


def test_free_rows_are_taken_up_to_a_number(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    wanted = {path: keys(*range(6))}
    with db.begin(locks={path: keys(1, 3)}), other.begin(locks=wanted, skip_locked=2) as tx:
        assert locked(tx, path) == [0, 2]
        with db.begin(locks=wanted, skip_locked=6) as rest:
            assert locked(rest, path) == [4, 5]
            with other.begin(locks=wanted, skip_locked=1) as nothing:
                assert nothing.locked_rows == {path: []}
    wait_until_free(backend, db, path, *range(6))
    assert locked(db.begin(locks=wanted, skip_locked=6), path) == [0, 1, 2, 3, 4, 5]


def test_free_rows_of_several_cells_and_tables_are_taken(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    one, two = make_table(PLAIN, pivot_keys=APART), make_table(PLAIN, pivot_keys=APART)
    wanted = {one: keys(1, 2, FAR, FAR + 1), two: keys(1, FAR)}
    free = {one: [2, FAR + 1], two: [1, FAR]}
    with db.begin(locks={one: keys(1, FAR)}):
        for wanted_count, found in ((10, 4), (3, 3), (10, 4)):
            for path, rows in free.items():
                wait_until_free(backend, db, path, *rows)
            with other.begin(locks=wanted, skip_locked=wanted_count) as tx:
                taken = [(path, key) for path in wanted for key in locked(tx, path)]
                assert len(taken) == found
                assert all(key in free[path] for path, key in taken)
                assert not any(is_free(db, *it) for it in taken)


def test_a_row_that_another_owner_waits_for_is_not_free(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    tx = db.begin(locks={path: keys(1)})
    waiting = stand_in_line(backend, other, {path: keys(1, 2)})
    with db.begin(locks={path: keys(1, 2, 3)}, skip_locked=3) as later:
        assert locked(later, path) == [3]
    tx.abort()
    end(other, waiting.result())


# ---- writers that lock nothing


@ON_SEVERAL_CELLS
def test_a_plain_writer_is_refused_and_names_the_owner(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    tx = db.begin(locks={path: keys(1)})
    for written in ([1], [1, FAR]):
        writer = other.begin()
        writer.insert_rows(path, [{"k": it, "v": 9} for it in written])
        with refused(
            TransactionConflict,
            is_retryable=True,
            key={"k": 1},
            table=path,
            winner=tx._buffer.locked.owner,
        ):
            writer.commit()
    tx.insert_rows(path, [{"k": 1, "v": 1}])
    tx.commit()
    assert read(db, path) == [{"k": 1, "v": 1}]


def test_a_write_without_a_transaction_waits_in_line(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    tx = db.begin(locks={path: keys(1)})
    rows = [{"k": 1, "v": 9}]
    writing = backend.start(other, other._session.write_rows(path, rows, False, "sync"))
    backend.let_pass(SOON_MS)
    assert not writing.is_over
    tx.insert_rows(path, [{"k": 1, "v": 1}])
    tx.commit()
    at = writing.result()
    assert at is not None
    assert tx.commit_timestamp is not None
    assert at > tx.commit_timestamp
    assert value(db, path, 1) == 9


def test_reads_pass_early_locks(db: Client, other: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    db.insert_rows(path, [{"k": 1, "v": 1}])
    with db.begin(locks={path: keys(1)}) as tx:
        assert value(other, path, 1) == 1
        assert read(other, path) == [{"k": 1, "v": 1}]
        tx.insert_rows(path, [{"k": 1, "v": 2}])
        assert value(other, path, 1) == 1
    assert value(other, path, 1) == 2


# ---- functions that run as transactions


def add_one(client: Client, path: str, key: int) -> Protocol[int]:
    """Do in a protocol what `run_in_transaction` does. Return the number of attempts."""
    session = client._session
    rerun = session.rerun(None, 30_000)
    buffer = None
    while True:
        try:
            buffer = yield from session.begin_attempt(rerun, ())
            at = buffer.start_timestamp
            assert at is not None
            (row,) = yield from session.lookup_rows(path, keys(key), None, False, at)
            changed = [{"k": key, "v": row["v"] + 1}]
            yield from session.insert_rows(buffer, path, changed)
            yield from session.commit(buffer)
        except DodonaError as error:
            if not (yield from session.after_failure(rerun, buffer, error)):
                continue
        return rerun.attempt_count + 1


def start_counting(backend: Backend, client: Client, path: str) -> Callable[[], None]:
    """A writer that adds to a row again and again. → waits for its end."""
    if isinstance(backend, Simulated):

        def protocol() -> Protocol[None]:
            for _ in range(STEP_COUNT):
                yield from add_one(client, path, 1)

        return backend.start(client, protocol()).result
    failures: list[DodonaError] = []

    def step(tx: Transaction) -> None:
        (row,) = tx.lookup_rows(path, keys(1))
        tx.insert_rows(path, [{"k": 1, "v": row["v"] + 1}])

    def run() -> None:
        try:
            for _ in range(STEP_COUNT):
                client.run_in_transaction(step)
        except DodonaError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def join() -> None:
        thread.join()
        assert not failures, "nobody gives up"

    return join


def test_a_counter_of_eight_writers_loses_no_step(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    db.insert_rows(path, [{"k": 1, "v": 0}])
    clients = [backend.new_client() for _ in range(WRITER_COUNT)]
    for join in [start_counting(backend, it, path) for it in clients]:
        join()
    assert value(db, path, 1) == WRITER_COUNT * STEP_COUNT
    wait_until_free(backend, db, path, 1)


def test_a_function_locks_its_rows_from_the_third_conflict_on(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    seen: list[dict[str, list[dict[str, Any]]]] = []

    def function(tx: Transaction) -> int:
        seen.append(tx.locked_rows)
        tx.insert_rows(path, [{"k": 1, "v": 1}])
        tx.lock_rows(path, keys(FAR), lock_type="exclusive")
        if not tx.locked_rows:
            other.insert_rows(path, [{"k": FAR, "v": 2}])
        return len(seen)

    assert db.run_in_transaction(function) == 4
    assert seen == [{}, {}, {}, {path: keys(1, FAR)}]
    assert read(db, path) == [{"k": 1, "v": 1}, {"k": FAR, "v": 2}]
    wait_until_free(backend, other, path, FAR)
