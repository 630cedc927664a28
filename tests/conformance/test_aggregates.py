"""Aggregate columns: changes that are folded when somebody reads."""

from typing import Any

import pytest

from conformance.backends import Backend
from conformance.tables import KEY, SUM, MakeTable, Row, Schema, read, refused, value
from dodona.client import Client
from dodona.errors import SchemaViolation, TransactionConflict

ALL: Schema = [
    KEY,
    {"name": "sum", "type": "int64", "aggregate": "sum"},
    {"name": "min", "type": "int64", "aggregate": "min"},
    {"name": "max", "type": "int64", "aggregate": "max"},
    {"name": "first", "type": "int64", "aggregate": "first"},
]


def _all(number: int | None) -> Row:
    return {"k": 1} | dict.fromkeys(("sum", "min", "max", "first"), number)


def _change(db: Client, path: str, *changes: int | None) -> None:
    for change in changes:
        db.insert_rows(path, [_all(change)], aggregate=True)


def _seen(db: Client, path: str, **options: Any) -> list[int | None]:
    (row,) = db.lookup_rows(path, [{"k": 1}], **options)
    return [row[name] for name in ("sum", "min", "max", "first")]


# ---- folding


def test_changes_are_folded_by_each_columns_function(db: Client, make_table: MakeTable) -> None:
    path = make_table(ALL)
    _change(db, path, 5, 3, 9)
    assert _seen(db, path) == [17, 3, 9, 5]


def test_changes_are_folded_onto_the_plain_value_before_them(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(ALL)
    _change(db, path, 100)
    db.insert_rows(path, [_all(10)])
    _change(db, path, 5, 30)
    assert _seen(db, path) == [45, 5, 30, 10]


@pytest.mark.parametrize("aggregate", ["min", "max"])
def test_not_a_number_counts_the_same_in_one_transaction_and_in_several(
    db: Client, make_table: MakeTable, aggregate: str
) -> None:
    path = make_table([KEY, {"name": "v", "type": "double", "aggregate": aggregate}])
    nan = float("nan")
    groups: list[list[list[float]]] = [
        [[5.0], [nan, 1.0]],
        [[5.0], [nan], [1.0]],
        [[5.0, nan], [1.0]],
        [[1.0], [nan], [5.0]],
    ]
    for key, transactions in enumerate(groups):
        for changes in transactions:
            with db.begin() as transaction:
                for change in changes:
                    transaction.insert_rows(path, [{"k": key, "v": change}], aggregate=True)
    expected = repr(1.0 if aggregate == "min" else nan)
    assert [repr(row["v"]) for row in read(db, path)] == [expected] * len(groups)
    db.unmount_table(path)
    db.mount_table(path)
    assert [repr(row["v"]) for row in read(db, path)] == [expected] * len(groups)


def test_a_plain_value_replaces_all_earlier_changes(db: Client, make_table: MakeTable) -> None:
    path = make_table(ALL)
    _change(db, path, 5, 3)
    db.insert_rows(path, [_all(1)])
    assert _seen(db, path) == [1, 1, 1, 1]


def test_a_deletion_resets_the_base_of_aggregate_changes(db: Client, make_table: MakeTable) -> None:
    path = make_table(ALL)
    db.insert_rows(path, [_all(10)])
    _change(db, path, 5)
    db.delete_rows(path, [{"k": 1}])
    assert read(db, path) == []
    _change(db, path, 7)
    assert _seen(db, path) == [7, 7, 7, 7]


def test_null_is_no_change(db: Client, make_table: MakeTable) -> None:
    path = make_table(ALL)
    _change(db, path, 5, None)
    assert _seen(db, path) == [5, 5, 5, 5]


def test_a_plain_null_counts_as_no_value(db: Client, make_table: MakeTable) -> None:
    path = make_table(ALL)
    _change(db, path, 5)
    db.insert_rows(path, [_all(None)])
    assert _seen(db, path) == [None, None, None, None]
    _change(db, path, 3, 4)
    assert _seen(db, path) == [7, 3, 4, 3]


def test_columns_that_a_change_does_not_name_stay(db: Client, make_table: MakeTable) -> None:
    path = make_table(ALL)
    db.insert_rows(path, [_all(10)])
    db.insert_rows(path, [{"k": 1, "sum": 1}], aggregate=True)
    assert _seen(db, path) == [11, 10, 10, 10]


def test_plain_columns_beside_a_change_are_overwritten_or_kept_as_always(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM)
    db.insert_rows(path, [{"k": 1, "total": 1, "v": 1}, {"k": 2, "total": 1, "v": 1}])
    db.insert_rows(path, [{"k": 1, "total": 2}], aggregate=True)
    db.insert_rows(path, [{"k": 2, "total": 2}], update=True, aggregate=True)
    assert read(db, path) == [{"k": 1, "total": 3, "v": None}, {"k": 2, "total": 3, "v": 1}]
    db.insert_rows(path, [{"k": 1, "total": 2, "v": 5}], aggregate=True)
    assert read(db, path)[0] == {"k": 1, "total": 5, "v": 5}


def test_a_read_at_a_timestamp_combines_the_changes_up_to_the_timestamp(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM)
    stamps = [
        db.insert_rows(path, [{"k": 1, "total": number}], aggregate=True) for number in range(1, 5)
    ]
    totals = [value(db, path, 1, "total", timestamp=stamp) for stamp in stamps]
    assert totals == [1, 3, 6, 10]


@pytest.mark.parametrize(
    ("column_type", "numbers", "total"),
    [
        ("int64", [(1 << 63) - 1, 1], -(1 << 63)),
        ("int64", [-(1 << 63), -1], (1 << 63) - 1),
        ("uint64", [(1 << 64) - 1, 2], 1),
        ("double", [0.5, 0.25], 0.75),
    ],
)
def test_sums_of_integers_wrap_around(
    db: Client, make_table: MakeTable, column_type: str, numbers: list[Any], total: Any
) -> None:
    path = make_table([KEY, {"name": "v", "type": column_type, "aggregate": "sum"}])
    for number in numbers:
        db.insert_rows(path, [{"k": 1, "v": number}], aggregate=True)
    assert value(db, path, 1) == total


@pytest.mark.parametrize(("function", "kept"), [("first", b"b"), ("min", b"a"), ("max", b"c")])
def test_text_is_compared_and_not_summed(
    db: Client, make_table: MakeTable, function: str, kept: bytes
) -> None:
    path = make_table([KEY, {"name": "v", "type": "string", "aggregate": function}])
    for text in (b"b", b"c", b"a"):
        db.insert_rows(path, [{"k": 1, "v": text}], aggregate=True)
    assert value(db, path, 1) == kept


# ---- in one transaction


@pytest.mark.parametrize(
    ("steps", "total"),
    [
        pytest.param([("change", 1), ("change", 2)], 13, id="change, change"),
        pytest.param([("write", 1), ("change", 2)], 3, id="write, change"),
        pytest.param([("change", 1), ("write", 2)], 2, id="change, write"),
        pytest.param([("delete", 0), ("change", 2)], 2, id="delete, change"),
        pytest.param([("change", 2), ("delete", 0), ("change", 3)], 3, id="and again"),
    ],
)
def test_changes_and_writes_of_one_transaction_come_to_one(
    db: Client, make_table: MakeTable, steps: list[tuple[str, int]], total: int
) -> None:
    path = make_table(SUM)
    db.insert_rows(path, [{"k": 1, "total": 10}])
    with db.begin() as transaction:
        for step, number in steps:
            if step == "delete":
                transaction.delete_rows(path, [{"k": 1}])
            else:
                row = {"k": 1, "total": number}
                transaction.insert_rows(path, [row], aggregate=step == "change")
    assert value(db, path, 1, "total") == total


# ---- at the same time


def test_overlapping_changes_conflict_unless_their_locks_are_shared(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM)
    first, second = db.begin(), db.begin()
    for transaction in (first, second):
        transaction.insert_rows(path, [{"k": 1, "total": 1}], update=True, aggregate=True)
    first.commit()
    with refused(TransactionConflict, is_retryable=True):
        second.commit()
    assert value(db, path, 1, "total") == 1


def test_overlapping_changes_under_shared_write_locks_all_count(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM, attributes={"enable_shared_write_locks": True})
    transactions = [db.begin() for _ in range(10)]
    for transaction in transactions:
        row = {"k": 1, "total": 1}
        transaction.insert_rows(path, [row], update=True, aggregate=True, lock_type="shared_write")
    for transaction in transactions:
        transaction.commit()
    assert value(db, path, 1, "total") == 10


def test_overlapping_changes_of_non_atomic_transactions_all_count(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM, atomicity="none")
    transactions = [db.begin("none") for _ in range(3)]
    for transaction in transactions:
        transaction.insert_rows(path, [{"k": 1, "total": 1}], update=True, aggregate=True)
    for transaction in transactions:
        transaction.commit()
    assert value(db, path, 1, "total") == 3


def test_a_retried_aggregate_change_counts_once(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM, pivot_keys=[[], [100]])
    for round_ in range(5):
        is_first = True

        def change(transaction: Any) -> None:
            nonlocal is_first
            rows = [{"k": 1, "total": 1}, {"k": 100, "total": 1}]
            transaction.insert_rows(path, rows, update=True, aggregate=True)
            if is_first:
                is_first = False
                other.insert_rows(path, [{"k": 1, "total": 1}], update=True, aggregate=True)

        db.run_in_transaction(change)
        assert not is_first
        assert [row["total"] for row in read(db, path)] == [2 * round_ + 2, round_ + 1]


def test_changes_survive_a_restart(backend: Backend, db: Client, make_table: MakeTable) -> None:
    path = make_table(ALL)
    db.insert_rows(path, [_all(10)])
    _change(db, path, 5, 30)
    backend.restart_cells()
    assert _seen(db, path) == [45, 5, 30, 10]
    _change(db, path, 1)
    assert _seen(db, path) == [46, 1, 30, 10]


# ---- schemas


def test_an_unknown_aggregate_is_refused(db: Client, new_path: str) -> None:
    schema = [KEY, {"name": "v", "type": "int64", "aggregate": "mean"}]
    with refused(SchemaViolation, is_retryable=False):
        db.create_table(new_path, schema)
    assert not db.exists(new_path)


def test_a_sum_of_text_is_refused(db: Client, new_path: str) -> None:
    with refused(SchemaViolation, is_retryable=False, column="v"):
        db.create_table(new_path, [KEY, {"name": "v", "type": "string", "aggregate": "sum"}])


def test_a_key_column_does_not_aggregate(db: Client, new_path: str) -> None:
    with refused(SchemaViolation, is_retryable=False, column="k"):
        db.create_table(new_path, [{**KEY, "aggregate": "sum"}, {"name": "v", "type": "int64"}])


def test_a_required_aggregate_column_has_to_be_given(db: Client, make_table: MakeTable) -> None:
    path = make_table(
        [
            KEY,
            {"name": "v", "type": "int64", "aggregate": "sum", "required": True},
            {"name": "w", "type": "int64"},
        ]
    )
    for is_change in (False, True):
        with refused(SchemaViolation, is_retryable=False, column="v"):
            db.insert_rows(path, [{"k": 1, "w": 1}], aggregate=is_change)
