"""Reads: which state a read sees, at every kind of timestamp, and what it gives back."""

from typing import Any

import pytest

from conformance.backends import Backend
from conformance.tables import (
    APART,
    KEY,
    PLAIN,
    TWO_COLUMNS,
    MakeTable,
    Schema,
    read,
    refused,
    value,
)
from dodona.client import Client
from dodona.errors import InvalidRequest, SchemaViolation
from dodona.types import (
    ASYNC_LAST_COMMITTED,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    Timestamp,
)

pytestmark = pytest.mark.part("transactions on real processes")


def _insert(db: Client, path: str, key: int, new_value: int) -> Timestamp:
    at = db.insert_rows(path, [{"k": key, "v": new_value}])
    assert at is not None
    return at


# ---- which state


def test_a_transaction_reads_the_state_at_its_start(db: Client, make_table: MakeTable) -> None:
    path = make_table(pivot_keys=APART)
    _insert(db, path, 1, 1)
    transaction = db.begin()
    _insert(db, path, 1, 2)
    _insert(db, path, 100, 2)
    assert transaction.lookup_rows(path, [{"k": 1}, {"k": 100}]) == [{"k": 1, "v": 1}]
    assert list(transaction.select(path)) == [{"k": 1, "v": 1}]
    db.delete_rows(path, [{"k": 1}])
    assert list(transaction.select(path)) == [{"k": 1, "v": 1}]


def test_a_transaction_sees_exactly_the_commits_before_its_start(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=APART)
    for number in range(10):
        rows = [{"k": 1, "v": number}, {"k": 100, "v": number}]
        committed_at = other.insert_rows(path, rows)
        transaction = db.begin()
        assert committed_at is not None
        assert transaction.start_timestamp is not None
        assert committed_at < transaction.start_timestamp
        other.insert_rows(path, [{"k": 1, "v": -1}, {"k": 100, "v": -1}])
        assert [row["v"] for row in transaction.select(path)] == [number, number]


def test_a_read_sees_commits_up_to_and_including_its_timestamp(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    first = _insert(db, path, 1, 1)
    second = _insert(db, path, 1, 2)
    deleted = db.delete_rows(path, [{"k": 1}])
    assert deleted is not None
    seen = {
        at: [row["v"] for row in read(db, path, timestamp=at)]
        for at in (first - 1, first, second - 1, second, deleted - 1, deleted)
    }
    assert list(seen.values()) == [[], [1], [1], [2], [2], []]
    again = _insert(db, path, 1, 3)
    assert value(db, path, 1, timestamp=Timestamp(second)) == 2
    assert read(db, path, timestamp=again - 1) == []


def test_without_a_timestamp_the_newest_is_read(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table()
    for number in range(5):
        _insert(other, path, 1, number)
        assert value(db, path, 1) == number
        assert value(db, path, 1, timestamp=SYNC_LAST_COMMITTED) == number
        assert read(db, path) == [{"k": 1, "v": number}]


def test_async_last_committed_reads_applied_rows(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    _insert(db, path, 1, 1)
    assert value(db, path, 1, timestamp=ASYNC_LAST_COMMITTED) == 1
    assert read(db, path, timestamp=ASYNC_LAST_COMMITTED) == [{"k": 1, "v": 1}]


def test_the_smallest_timestamp_reads_an_empty_table(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    _insert(db, path, 1, 1)
    assert read(db, path, timestamp=MIN_TIMESTAMP) == []
    assert db.lookup_rows(path, [{"k": 1}], timestamp=MIN_TIMESTAMP) == []


@pytest.mark.parametrize(
    "timestamp", [0, -1, MAX_TIMESTAMP + 2, SYNC_LAST_COMMITTED + 1, 1 << 62, 1.5, None, True]
)
def test_what_is_no_timestamp_is_refused(db: Client, make_table: MakeTable, timestamp: Any) -> None:
    path = make_table()
    for call in (
        lambda: db.lookup_rows(path, [{"k": 1}], timestamp=timestamp),
        lambda: db.select(path, timestamp=timestamp),
    ):
        with refused(InvalidRequest, "Invalid read timestamp", is_retryable=False):
            call()


def test_a_read_at_a_future_timestamp_is_refused(db: Client, make_table: MakeTable) -> None:
    """What a read finds there could still change."""
    path = make_table()
    in_an_hour = Timestamp(db.generate_timestamp() + (3600 << 30))
    for call in (
        lambda: db.lookup_rows(path, [{"k": 1}], timestamp=in_an_hour),
        lambda: db.select(path, timestamp=in_an_hour),
    ):
        with refused(InvalidRequest, is_retryable=False):
            call()


def test_one_snapshot_never_shows_a_part_of_a_transaction(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=APART)
    for number in range(20):
        rows = [{"k": 1, "v": number}, {"k": 100, "v": number}]
        writing = backend.start(other, other._session.write_rows(path, rows, False, "sync"))
        values = [row["v"] for row in read(db, path)]
        assert values in ([], [number - 1] * 2, [number] * 2)
        writing.result()
    assert [row["v"] for row in read(db, path)] == [19, 19]


# ---- own writes


def test_own_writes_are_not_read(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    _insert(db, path, 1, 1)
    with db.begin() as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 2}, {"k": 2, "v": 2}])
        assert list(transaction.select(path)) == [{"k": 1, "v": 1}]
        assert transaction.lookup_rows(path, [{"k": 1}, {"k": 2}]) == [{"k": 1, "v": 1}]


def test_a_transaction_with_read_own_writes_reads_its_own_writes(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": key, "v": key, "w": b"old"} for key in (1, 2, 3)])
    with db.begin(read_own_writes=True) as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 10}], update=True)
        transaction.insert_rows(path, [{"k": 2, "v": 20}, {"k": 4, "v": 40}])
        transaction.delete_rows(path, [{"k": 3}])
        seen = [
            {"k": 1, "v": 10, "w": b"old"},
            {"k": 2, "v": 20, "w": None},
            {"k": 4, "v": 40, "w": None},
        ]
        assert list(transaction.select(path)) == seen
        assert transaction.lookup_rows(path, [{"k": key} for key in (1, 2, 3, 4)]) == seen
        assert [row["k"] for row in transaction.select(path, [2], [4])] == [2]
    assert read(db, path) == seen


def test_a_transaction_with_read_own_writes_reads_its_own_aggregate_changes(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table([KEY, {"name": "v", "type": "int64", "aggregate": "sum"}])
    _insert(db, path, 1, 5)
    with db.begin(read_own_writes=True) as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 2}, {"k": 2, "v": 3}], aggregate=True)
        assert [row["v"] for row in transaction.select(path)] == [7, 3]


# ---- what comes back


def test_rows_come_back_in_the_order_of_their_keys_asked_for_and_as_often(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, pivot_keys=APART)
    db.insert_rows(path, [{"k": key, "v": key, "w": b"x"} for key in (1, 2, 100)])
    keys = [{"k": key} for key in (100, 1, 5, 1, 2, 100)]
    assert [row["k"] for row in db.lookup_rows(path, keys)] == [100, 1, 1, 2, 100]
    found = db.lookup_rows(path, keys, columns=["w", "v"])
    assert [row["v"] for row in found] == [100, 1, 1, 2, 100]
    assert [row.keys() for row in found] == [{"v", "w"}] * 5


def test_missing_rows_are_left_out_or_none(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    _insert(db, path, 2, 2)
    keys = [{"k": 1}, {"k": 2}, {"k": 3}]
    assert db.lookup_rows(path, keys) == [{"k": 2, "v": 2}]
    assert db.lookup_rows(path, keys, keep_missing=True) == [None, {"k": 2, "v": 2}, None]
    with db.begin() as transaction:
        found = transaction.lookup_rows(path, keys, keep_missing=True)
    assert found == [None, {"k": 2, "v": 2}, None]


def test_a_select_gives_a_range_in_key_order(db: Client, make_table: MakeTable) -> None:
    path = make_table(pivot_keys=APART)
    db.insert_rows(path, [{"k": key, "v": key} for key in (150, 1, 100, 50, 99)])

    def keys(lower: list[int] | None, upper: list[int] | None) -> list[int]:
        return [row["k"] for row in db.select(path, lower, upper)]

    assert keys(None, None) == [1, 50, 99, 100, 150]
    assert keys([50], [100]) == [50, 99]
    assert keys([100], None) == [100, 150]
    assert keys(None, [1]) == []
    assert keys([60], [60]) == []
    assert keys([], []) == []


def test_the_first_key_columns_are_a_range(db: Client, make_table: MakeTable) -> None:
    keys = [{"name": name, "type": "int64", "sort_order": "ascending"} for name in ("a", "b")]
    path = make_table([*keys, {"name": "v", "type": "int64"}])
    db.insert_rows(path, [{"a": a, "b": b, "v": 0} for a in (1, 2, 3) for b in (1, 2)])
    assert [row["a"] for row in db.select(path, [2], [3])] == [2, 2]
    assert [(row["a"], row["b"]) for row in db.select(path, [1, 2], [2, 2])] == [(1, 2), (2, 1)]


def test_key_columns_of_several_types_are_ordered_one_after_the_other_with_null_first(
    db: Client, make_table: MakeTable
) -> None:
    types = {"a": "utf8", "b": "boolean"}
    keys = [{"name": it, "type": types[it], "sort_order": "ascending"} for it in types]
    path = make_table([*keys, {"name": "v", "type": "int64"}], pivot_keys=[[], ["m"], ["m", True]])
    order = [(a, b) for a in (None, "a", "m", "z") for b in (None, False, True)]
    db.insert_rows(path, [{"a": a, "b": b, "v": 0} for a, b in reversed(order)])

    def seen(lower: list[Any] | None, upper: list[Any] | None) -> list[tuple[Any, Any]]:
        return [(row["a"], row["b"]) for row in db.select(path, lower, upper)]

    assert seen(None, None) == order
    assert seen(["m"], ["m", True]) == [("m", None), ("m", False)]
    assert seen(["m", False], ["z"]) == [("m", False), ("m", True)]


def test_arrow_tables_hold_the_same_rows(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS, pivot_keys=APART)
    db.insert_rows(path, [{"k": key, "v": None, "w": b"x"} for key in (1, 2, 100)])
    assert db.read_arrow(path).to_pylist() == read(db, path)
    assert db.read_arrow(path, [2], [100]).to_pylist() == list(db.select(path, [2], [100]))


def test_a_projection_may_leave_out_a_required_column(db: Client, make_table: MakeTable) -> None:
    schema: Schema = [*PLAIN, {"name": "needed", "type": "int64", "required": True}]
    path = make_table(schema)
    db.insert_rows(path, [{"k": 1, "v": 1, "needed": 1}])
    assert list(db.select(path, columns=["v"])) == [{"v": 1}]
    assert db.lookup_rows(path, [{"k": 1}], columns=["k"]) == [{"k": 1}]


def test_an_unknown_column_is_refused(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    for call in (
        lambda: db.lookup_rows(path, [{"k": 1}], columns=["x"]),
        lambda: db.select(path, columns=["x"]),
    ):
        with refused(SchemaViolation, is_retryable=False, column="x"):
            call()


@pytest.mark.parametrize("key", [{"v": 1}, {"k": 1, "v": 1}, {"k": "1"}])
def test_what_is_no_key_is_refused(db: Client, make_table: MakeTable, key: dict[str, Any]) -> None:
    path = make_table()
    with refused(SchemaViolation, is_retryable=False, table=path, row_index=1):
        db.lookup_rows(path, [{"k": 1}, key])


@pytest.mark.parametrize("rest", ["{v}", "[1:2]"])
def test_a_path_has_no_columns_and_no_ranges(db: Client, make_table: MakeTable, rest: str) -> None:
    path = make_table()
    with pytest.raises(InvalidRequest):
        db.lookup_rows(path + rest, [{"k": 1}])
