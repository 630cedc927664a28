"""Early locks: what ends them, and which arguments are refused."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.backends import Backend
from conformance.locking import (
    FAR,
    begin_beside,
    end,
    is_free,
    keys,
    stand_in_line,
    wait_until_free,
)
from conformance.tables import APART, PLAIN, MakeTable, read, value
from dodona._core.protocol.steps import Protocol
from dodona._core.writing.early_locks import ROWS_MAX
from dodona.client import Client, Transaction
from dodona.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    SchemaViolation,
    TableNotFound,
    TableNotMounted,
    TransactionClosed,
    TransactionConflict,
)

pytestmark = [
    pytest.mark.part("transactions on real processes"),
    pytest.mark.usefixtures("long_leases"),
]


# ---- what ends locks


def refuse(db: Client, tx: Transaction, path: str) -> None:
    """The commit of the owner meets a row that was written after its start."""
    db.insert_rows(path, [{"k": 2, "v": 1}])
    tx.insert_rows(path, [{"k": 2, "v": 2}])
    with pytest.raises(TransactionConflict):
        tx.commit()


def fail_in_the_block(db: Client, tx: Transaction, path: str) -> None:
    with pytest.raises(ZeroDivisionError), tx:
        tx.insert_rows(path, [{"k": 1, "v": 1 // 0}])


def commit_a_write(db: Client, tx: Transaction, path: str) -> None:
    tx.insert_rows(path, [{"k": 1, "v": 1}])
    tx.commit()


ENDS: dict[str, Callable[[Client, Transaction, str], Any]] = {
    "abort": lambda db, tx, path: tx.abort(),
    "commit": commit_a_write,
    "commit without writes": lambda db, tx, path: tx.commit(),
    "refused commit": refuse,
    "exception in the block": fail_in_the_block,
}


@pytest.mark.parametrize("end_of_it", ENDS)
def test_the_end_of_a_transaction_releases_its_locks(
    backend: Backend, db: Client, other: Client, make_table: MakeTable, end_of_it: str
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    tx = db.begin(locks={path: keys(1, FAR)})
    waiting = stand_in_line(backend, other, {path: keys(1, FAR, 3, FAR + 3)}, 3)
    ENDS[end_of_it](db, tx, path)
    assert waiting.result().locked_rows == {path: keys(1, 3, FAR, FAR + 3)}
    end(other, waiting.result())
    wait_until_free(backend, db, path, FAR)


def test_an_aborted_transaction_takes_no_calls(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    tx = db.begin(locks={path: keys(1)})
    tx.abort()
    tx.abort()
    with pytest.raises(TransactionClosed):
        tx.insert_rows(path, [{"k": 1, "v": 1}])
    tx = db.begin(locks={path: keys(1)})
    tx.commit()
    with pytest.raises(TransactionClosed):
        tx.abort()


def test_a_transaction_that_cannot_begin_releases_its_locks(
    backend: Backend, db: Client, make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_table(PLAIN)

    def fail(*_: Any) -> Protocol[None]:
        raise InvalidRequest("no")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(type(db._session), "_prepare_buffer", fail)
        with pytest.raises(InvalidRequest):
            db.begin(locks={path: keys(1)})
    wait_until_free(backend, db, path, 1)


def test_an_unmount_ends_locks_and_lines(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    tx = db.begin(locks={path: keys(1)})
    waiting = stand_in_line(backend, other, {path: keys(1, 2)})
    db.unmount_table(path)
    with pytest.raises(TableNotMounted) as error:
        waiting.result()
    assert error.value.attributes["table"] == path
    db.mount_table(path)
    with other.begin(locks={path: keys(1, 2)}, nowait=True) as later:
        later.insert_rows(path, [{"k": 1, "v": 1}])
        tx.insert_rows(path, [{"k": 1, "v": 2}])
        with pytest.raises(DodonaError) as refusal:
            tx.commit()
        assert refusal.value.is_retryable
    assert value(db, path, 1) == 1


@pytest.mark.parametrize("written", [1, 2])
def test_a_restart_ends_locks_and_the_commit_is_refused(
    backend: Backend, make_table: MakeTable, written: int
) -> None:
    """The row that was locked and not written takes part in the commit."""
    path, db = make_table(PLAIN), backend.db
    tx = db.begin(locks={path: keys(1)})
    tx.insert_rows(path, [{"k": written, "v": 1}])
    backend.restart_cells()
    db.insert_rows(path, [{"k": 1, "v": 2}])
    with pytest.raises(DodonaError) as error:
        tx.commit()
    assert error.value.is_retryable
    assert read(db, path) == [{"k": 1, "v": 2}]


@pytest.mark.parametrize("backend", ["simulator"], indirect=True)
def test_a_lock_ends_after_its_lease(backend: Backend, db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    tx = db.begin(locks={path: keys(1)})
    backend.let_pass(9_000)
    assert not is_free(db, path, 1)
    backend.let_pass(3_000)
    assert is_free(db, path, 1)
    tx.insert_rows(path, [{"k": 1, "v": 1}])
    tx.commit()
    assert value(db, path, 1) == 1, "nobody else has written the row"


@pytest.mark.parametrize("backend", ["simulator"], indirect=True)
def test_an_owner_keeps_its_first_cell_while_it_waits_for_the_second(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    """Its lease of 10 s is renewed for as long as it waits."""
    path = make_table(PLAIN, pivot_keys=APART)
    tx = db.begin(locks={path: keys(FAR)})
    waiting = begin_beside(backend, other, {path: keys(1, FAR)}, wait_ms=30_000)
    line = []
    for _ in range(2):
        backend.let_pass(9_000)
        assert not is_free(db, path, 1)
        line.append(begin_beside(backend, db, {path: keys(FAR)}, wait_ms=30_000))
    backend.let_pass(3_000)
    assert waiting.is_over, "the lease of the other owner is over"
    assert waiting.result().locked_rows == {path: keys(1, FAR)}
    assert tx.state.value == "active"
    end(other, waiting.result())
    for it in line:
        end(db, it.result())


# ---- arguments


def test_a_table_without_atomicity_has_no_locks(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, atomicity="none")
    with pytest.raises(InvalidRequest, match="atomicity") as error:
        db.begin(locks={path: keys(1)})
    assert error.value.attributes["table"] == path
    with pytest.raises(InvalidRequest, match="atomicity full"):
        db.begin(atomicity="none", locks={path: keys(1)})
    db.insert_rows(path, [{"k": 1, "v": 1}])


def test_a_transaction_has_a_limit_of_locked_rows(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path, second = make_table(PLAIN), make_table(PLAIN)
    with db.begin(locks={path: keys(*range(ROWS_MAX))}) as tx:
        assert len(tx.locked_rows[path]) == ROWS_MAX
    with pytest.raises(LimitExceeded, match="at most 10000 rows") as error:
        db.begin(locks={path: keys(*range(ROWS_MAX)), second: keys(1)})
    assert error.value.attributes["table"] == second
    wait_until_free(backend, db, path, 1)


def test_a_table_that_cannot_be_written_has_no_locks(
    db: Client, make_table: MakeTable, new_path: str
) -> None:
    path = make_table(PLAIN, mount=False)
    with pytest.raises(TableNotMounted) as error:
        db.begin(locks={path: keys(1)})
    assert error.value.attributes["table"] == path
    with pytest.raises(TableNotFound):
        db.begin(locks={new_path: keys(1)})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"locks": []}, "locks are a dict"),
        ({"locks": {}}, "with a path"),
        ({"locks": "//t"}, "locks are a dict"),
        ({"nowait": True}, "give locks, too"),
        ({"wait_ms": 5}, "give locks, too"),
        ({"skip_locked": 5}, "give locks, too"),
        ({"wait_ms": 5, "nowait": True}, "only one of"),
        ({"skip_locked": 5, "nowait": True}, "only one of"),
        ({"skip_locked": 5, "wait_ms": 5}, "only one of"),
        ({"wait_ms": 0}, "wait_ms"),
        ({"wait_ms": 30_001}, "wait_ms"),
        ({"wait_ms": "1"}, "wait_ms"),
        ({"nowait": 1}, "nowait"),
        ({"skip_locked": 0}, "skip_locked"),
        ({"skip_locked": 10_001}, "skip_locked"),
        ({"skip_locked": True}, "skip_locked"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(
    db: Client, make_table: MakeTable, given: dict[str, Any], text: str
) -> None:
    path = make_table(PLAIN)
    has_no_locks = text == "give locks, too"
    locks = {} if has_no_locks else {"locks": {path: keys(1)}}
    with pytest.raises(InvalidRequest, match=text):
        db.begin(**{**locks, **given})
    assert is_free(db, path, 1)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"k": "one"}], "takes an int"),
        ([{}], "missing key column 'k'"),
        ([{"k": 1, "v": 1}], "v"),
        ([1], "a list of dicts|not int"),
        (1, "a list of dicts"),
        ({"k": 1}, "a list of dicts"),
    ],
)
def test_keys_that_are_none_are_refused(
    db: Client, make_table: MakeTable, rows: Any, text: str
) -> None:
    path = make_table(PLAIN)
    with pytest.raises(InvalidRequest, match=text) as error:
        db.begin(locks={path: rows})
    if isinstance(error.value, SchemaViolation):
        assert error.value.attributes["table"] == path
    with pytest.raises(InvalidRequest):
        db.begin(locks={5: keys(1)})  # type: ignore[dict-item]
