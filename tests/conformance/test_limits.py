"""Transactions are short and write a limited amount of data."""

import pytest

from conformance.backends import Backend, ClientClock
from conformance.tables import APART, PLAIN, MakeTable, read, refused
from dodona._core.protocol.limits import ROWS_MAX, SessionLimits, TransactionLimits
from dodona.client import Client
from dodona.errors import LimitExceeded, SchemaViolation, SnapshotTooOld
from dodona.values import VALUE_BYTES_MAX

MINUTE_MS = 60_000


def test_a_transaction_writes_at_most_a_hundred_thousand_rows(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    transaction = db.begin()
    assert ROWS_MAX == 100_000
    transaction.insert_rows(path, [{"k": key, "v": 0} for key in range(ROWS_MAX)])
    with refused(LimitExceeded, is_retryable=False, table=path):
        transaction.insert_rows(path, [{"k": -1, "v": 0}])
    with refused(LimitExceeded, is_retryable=False, table=path):
        transaction.delete_rows(path, [{"k": -1}])
    transaction.insert_rows(path, [{"k": 1, "v": 1}])  # one of its rows: no more than before
    transaction.abort()


def _small(backend: Backend, **bounds: int) -> Client:
    return backend.new_client(limits=SessionLimits(transaction=TransactionLimits(**bounds)))


def test_rows_that_are_locked_count_as_well(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    transaction = _small(backend, rows_max=2).begin()
    transaction.insert_rows(path, [{"k": 1, "v": 1}])
    transaction.lock_rows(path, [{"k": 2}])
    with refused(LimitExceeded, is_retryable=False, table=path):
        transaction.lock_rows(path, [{"k": 3}])
    transaction.lock_rows(path, [{"k": 1}])
    transaction.commit()
    assert read(db, path) == [{"k": 1, "v": 1}]


def test_a_call_that_passes_a_limit_buffers_nothing(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    with _small(backend, rows_max=3).begin() as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 1}])
        with refused(LimitExceeded, is_retryable=False):
            transaction.insert_rows(path, [{"k": key, "v": 2} for key in (1, 2, 3, 4)])
    assert read(db, path) == [{"k": 1, "v": 1}]


def test_the_rows_of_all_tables_count_together(backend: Backend, make_table: MakeTable) -> None:
    paths = [make_table(), make_table()]
    transaction = _small(backend, rows_max=3).begin()
    transaction.insert_rows(paths[0], [{"k": 1, "v": 1}, {"k": 2, "v": 1}])
    with refused(LimitExceeded, is_retryable=False, table=paths[1]):
        transaction.insert_rows(paths[1], [{"k": 1, "v": 1}, {"k": 2, "v": 1}])


def test_a_transaction_writes_a_limited_amount_of_bytes(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table([PLAIN[0], {"name": "v", "type": "string"}])
    with _small(backend, bytes_max=2_000).begin() as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": b"x" * 1_000}])
        with refused(LimitExceeded, is_retryable=False, table=path):
            transaction.insert_rows(path, [{"k": 2, "v": b"x" * 1_000}])
        transaction.insert_rows(path, [{"k": 1, "v": b"y" * 1_000}])  # instead of what was there
    assert read(db, path) == [{"k": 1, "v": b"y" * 1_000}]


def test_the_servers_have_the_same_limit(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    transaction = _small(backend, rows_max=2 * ROWS_MAX).begin()
    transaction.insert_rows(path, [{"k": key, "v": 0} for key in range(ROWS_MAX + 1)])
    with refused(LimitExceeded, is_retryable=False):
        transaction.commit()
    assert list(db.select(path, upper=[10])) == []


def test_a_value_is_at_most_sixteen_mebibytes(db: Client, make_table: MakeTable) -> None:
    path = make_table([PLAIN[0], {"name": "v", "type": "string"}])
    assert VALUE_BYTES_MAX == 16 << 20
    with refused(SchemaViolation, is_retryable=False, column="v"):
        db.insert_rows(path, [{"k": 1, "v": b"x" * (VALUE_BYTES_MAX + 1)}])
    assert read(db, path) == []


@pytest.mark.parametrize("age_ms", [MINUTE_MS - 2_000, MINUTE_MS + 2_000])
def test_a_transaction_lives_at_most_a_minute(
    backend: Backend, db: Client, make_table: MakeTable, age_ms: int
) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    clock = ClientClock()
    client = backend.new_client(clock=clock)
    transaction = client.begin()
    transaction.insert_rows(path, [{"k": 1, "v": 1}])
    clock.instant_skew_ms += age_ms
    if age_ms < MINUTE_MS:
        transaction.commit()
        return
    with refused(SnapshotTooOld, is_retryable=True, transaction=transaction.id):
        transaction.commit()
    assert transaction.state.value == "aborted"
    client.run_in_transaction(lambda again: again.insert_rows(path, [{"k": 1, "v": 1}]))
    assert read(db, path) == [{"k": 1, "v": 1}]


@pytest.mark.parametrize("keys", [(1,), (1, 100)])
def test_a_cell_refuses_an_old_transaction_although_the_client_allows_its_age(
    simulator: Backend, keys: tuple[int, ...]
) -> None:
    """Whatever its client thinks of the time."""
    db = _small(simulator, life_ms_max=10 * MINUTE_MS)
    db.create_table("//t", PLAIN, pivot_keys=APART, mount=True)
    transaction = db.begin()
    transaction.insert_rows("//t", [{"k": key, "v": 1} for key in keys])
    simulator.let_pass(MINUTE_MS + 2_000)
    with refused(SnapshotTooOld, is_retryable=True):
        transaction.commit()
    assert read(db, "//t") == []
