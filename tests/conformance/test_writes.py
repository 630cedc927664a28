"""Writes: what insert and delete make of a row, alone and several in one transaction."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.tables import KEY, TWO_COLUMNS, MakeTable, Row, Schema, read, refused, value
from dodona.client import Client
from dodona.errors import (
    SchemaViolation,
    TableNotFound,
    TransactionClosed,
    TransactionConflict,
)

pytestmark = pytest.mark.part("transactions on real processes")

TYPED: Schema = [
    KEY,
    {"name": "int64", "type": "int64"},
    {"name": "uint64", "type": "uint64"},
    {"name": "double", "type": "double"},
    {"name": "boolean", "type": "boolean"},
    {"name": "string", "type": "string"},
    {"name": "utf8", "type": "utf8"},
    {"name": "any", "type": "any"},
]
REQUIRED: Schema = [
    KEY,
    {"name": "needed", "type": "int64", "required": True},
    {"name": "v", "type": "int64"},
]


# ---- overwrite, update, delete


def test_an_insert_sets_missing_columns_to_null(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": 1, "v": 1, "w": b"x"}])
    db.insert_rows(path, [{"k": 1, "v": 2}])
    assert read(db, path) == [{"k": 1, "v": 2, "w": None}]


def test_an_update_does_not_change_missing_columns(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": 1, "v": 1, "w": b"x"}])
    db.insert_rows(path, [{"k": 1, "v": 2}], update=True)
    assert read(db, path) == [{"k": 1, "v": 2, "w": b"x"}]


def test_an_update_of_no_row_makes_one(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": 1, "v": 2}], update=True)
    assert read(db, path) == [{"k": 1, "v": 2, "w": None}]


def test_an_update_after_a_deletion_restores_only_its_own_columns(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": 1, "v": 1, "w": b"x"}])
    db.delete_rows(path, [{"k": 1}])
    db.insert_rows(path, [{"k": 1, "v": 2}], update=True)
    assert read(db, path) == [{"k": 1, "v": 2, "w": None}]


def test_a_row_of_nulls_is_a_row(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": 1, "v": None}])
    assert read(db, path) == [{"k": 1, "v": None, "w": None}]


def test_deleting_a_missing_row_is_not_an_error(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    assert db.delete_rows(path, [{"k": 1}]) is not None
    assert read(db, path) == []


def test_an_overwriting_insert_touches_every_lock_group(db: Client, make_table: MakeTable) -> None:
    path = make_table([*TWO_COLUMNS, {"name": "g", "type": "int64", "lock": "g"}])
    first, second = db.begin(), db.begin()
    first.insert_rows(path, [{"k": 1, "v": 1}])
    second.insert_rows(path, [{"k": 1, "g": 1}], update=True)
    first.commit()
    with refused(TransactionConflict, is_retryable=True):
        second.commit()


# ---- several writes of one row in one transaction


def test_writes_of_one_row_merge_column_by_column(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": 1, "v": 0, "w": b"old"}])
    with db.begin() as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 1}], update=True)
        transaction.insert_rows(path, [{"k": 1, "w": b"new"}], update=True)
        transaction.insert_rows(path, [{"k": 1, "v": 2}], update=True)
    assert read(db, path) == [{"k": 1, "v": 2, "w": b"new"}]


def test_a_write_and_then_a_deletion_is_a_deletion(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": 1, "v": 0}])
    with db.begin() as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 1}])
        transaction.delete_rows(path, [{"k": 1}])
    assert read(db, path) == []


def test_a_deletion_and_then_an_update_writes_nulls_elsewhere(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": 1, "v": 0, "w": b"old"}])
    with db.begin() as transaction:
        transaction.delete_rows(path, [{"k": 1}])
        transaction.insert_rows(path, [{"k": 1, "v": 1}], update=True)
    assert read(db, path) == [{"k": 1, "v": 1, "w": None}]


# ---- what a row may be


def test_values_of_every_type_come_back_as_they_were(db: Client, make_table: MakeTable) -> None:
    path = make_table(TYPED)
    nested = {"list": [1, "two", None, {"three": 3.5}], "bytes": b"\x00\xff", "true": True}
    rows: list[dict[str, Any]] = [
        {"k": 1, "int64": -(1 << 63), "uint64": (1 << 64) - 1, "double": 0.5, "boolean": False}
        | {"string": b"\xff\x00", "utf8": "ünï", "any": nested},
        {"k": 2, "int64": 0, "uint64": 0, "double": 0.0, "boolean": True}
        | {"string": b"", "utf8": "", "any": []},
        {"k": 3} | dict.fromkeys([column["name"] for column in TYPED[1:]]),
    ]
    db.insert_rows(path, rows)
    assert read(db, path) == rows


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        ("int64", "1"),
        ("int64", 1 << 63),
        ("uint64", -1),
        ("double", "0.5"),
        ("boolean", 1),
        ("string", 1),
        ("utf8", b"x"),
    ],
)
def test_a_value_of_another_type_is_refused_at_the_call(
    db: Client, make_table: MakeTable, column: str, wrong: Any
) -> None:
    path = make_table(TYPED)
    transaction = db.begin()
    rows = [{"k": 1, "int64": 1}, {"k": 2, column: wrong}]
    with refused(SchemaViolation, is_retryable=False, table=path, column=column, row_index=1):
        transaction.insert_rows(path, rows)
    transaction.commit()
    assert read(db, path) == []


def test_a_null_in_a_key_and_zero_are_different_rows(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 0, "v": 0}, {"k": None, "v": 1}, {"k": -1, "v": 2}])
    assert [row["k"] for row in read(db, path)] == [None, -1, 0]
    assert value(db, path, 0) == 0
    assert db.lookup_rows(path, [{"k": None}]) == [{"k": None, "v": 1}]


def test_keys_of_text_are_ordered_by_their_bytes(db: Client, make_table: MakeTable) -> None:
    path = make_table([{**KEY, "type": "string"}, {"name": "v", "type": "int64"}])
    keys = [b"", b"\x00", b"\x00\x01", b"a", b"a\x00", b"ab", b"b", b"\xff"]
    db.insert_rows(path, [{"k": key, "v": 1} for key in reversed(keys)])
    assert [row["k"] for row in read(db, path)] == keys


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"k": 1}, id="nothing but the key"),
        pytest.param({"k": 1, "v": 1, "x": 1}, id="an unknown column"),
    ],
)
def test_a_row_that_does_not_fit_changes_nothing(
    db: Client, make_table: MakeTable, row: dict[str, Any]
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 0}])
    with refused(SchemaViolation, is_retryable=False, table=path, row_index=1):
        db.insert_rows(path, [{"k": 1, "v": 5}, row])
    with refused(SchemaViolation, is_retryable=False):
        db.insert_rows(path, [row], update=True)
    assert read(db, path) == [{"k": 1, "v": 0}]


@pytest.mark.parametrize("update", [False, True])
def test_a_required_column_has_to_be_given_in_both_modes(
    db: Client, make_table: MakeTable, update: bool
) -> None:
    path = make_table(REQUIRED)
    for row in ({"k": 1, "v": 1}, {"k": 1, "needed": None}):
        with refused(SchemaViolation, is_retryable=False, column="needed"):
            db.insert_rows(path, [row], update=update)
    db.insert_rows(path, [{"k": 1, "needed": 1}], update=update)
    assert value(db, path, 1, "needed") == 1


def test_a_key_column_that_is_not_named_is_an_error_and_null_is_given_as_such(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table([KEY, {**KEY, "name": "l"}, {"name": "v", "type": "int64"}])
    null, zero = {"k": 1, "l": None}, {"k": 1, "l": 0}
    transaction = db.begin()
    calls: list[Callable[[Row], Any]] = [
        lambda row: db.insert_rows(path, [{**zero, "v": 1}, {**row, "v": 1}]),
        lambda row: db.insert_rows(path, [{**zero, "v": 1}, {**row, "v": 1}], update=True),
        lambda row: db.delete_rows(path, [zero, row]),
        lambda row: db.lookup_rows(path, [zero, row]),
        lambda row: db.lookup_versions(path, [zero, row]),
        lambda row: transaction.insert_rows(path, [{**zero, "v": 1}, {**row, "v": 1}]),
        lambda row: transaction.delete_rows(path, [zero, row]),
        lambda row: transaction.lookup_rows(path, [zero, row]),
        lambda row: transaction.lock_rows(path, [zero, row]),
    ]
    for row, column in (({"k": 1}, "l"), ({"l": 1}, "k"), ({}, "k")):
        for call in calls:
            with refused(SchemaViolation, is_retryable=False, column=column) as refusal:
                call(row)
            assert refusal.error.attributes["row_index"] == 1
            assert "missing key column" in str(refusal.error)
    assert (transaction.commit(), read(db, path)) == (None, [])
    db.insert_rows(path, [{**null, "v": 1}, {**zero, "v": 2}])
    assert read(db, path)[0] == {**null, "v": 1}
    assert [row["v"] for row in db.lookup_rows(path, [null, zero])] == [1, 2]
    db.delete_rows(path, [null])
    assert read(db, path) == [{**zero, "v": 2}]


def test_a_required_key_column_has_to_be_given(db: Client, make_table: MakeTable) -> None:
    path = make_table([{**KEY, "required": True}, {"name": "v", "type": "int64"}])
    for row in ({"k": None, "v": 1}, {"v": 1}):
        with refused(SchemaViolation, is_retryable=False, column="k"):
            db.insert_rows(path, [row])
    with refused(SchemaViolation, is_retryable=False, column="k"):
        db.delete_rows(path, [{"k": None}])


def test_a_deletion_takes_key_columns_only(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    with refused(SchemaViolation, is_retryable=False):
        db.delete_rows(path, [{"k": 1, "v": 1}])
    assert value(db, path, 1) == 1


def test_not_a_number_is_refused_in_a_key_and_taken_in_a_value(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table([{**KEY, "type": "double"}, {"name": "v", "type": "double"}])
    nan = float("nan")
    with refused(SchemaViolation, is_retryable=False, column="k"):
        db.insert_rows(path, [{"k": nan, "v": 1.0}])
    db.insert_rows(path, [{"k": 1.0, "v": nan}])
    assert value(db, path, 1) != value(db, path, 1)


# ---- the life of a transaction


def test_no_reader_sees_buffered_writes_before_the_commit(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table()
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 1, "v": 1}])
    assert read(db, path) == []
    assert read(other, path) == []
    assert transaction.lookup_rows(path, [{"k": 1}]) == []
    transaction.commit()
    assert read(other, path) == [{"k": 1, "v": 1}]


def test_a_second_commit_is_refused(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 1, "v": 1}])
    transaction.commit()
    for call in (transaction.commit, transaction.abort):
        with refused(TransactionClosed, "already committed", is_retryable=False):
            call()
    with refused(TransactionClosed, is_retryable=False, transaction=transaction.id):
        transaction.insert_rows(path, [{"k": 2, "v": 1}])
    with refused(TransactionClosed, is_retryable=False):
        transaction.lookup_rows(path, [{"k": 2}])
    assert len(read(db, path)) == 1


def test_an_aborted_transaction_takes_nothing_more_and_leaves_nothing(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 1, "v": 1}])
    transaction.abort()
    transaction.abort()
    for call in (transaction.commit, lambda: transaction.delete_rows(path, [{"k": 1}])):
        with refused(TransactionClosed, "aborted", is_retryable=False):
            call()
    assert read(db, path) == []


def test_an_exception_in_a_with_block_aborts(db: Client, make_table: MakeTable) -> None:
    path = make_table()

    def fail() -> None:
        with db.begin() as transaction:
            transaction.insert_rows(path, [{"k": 1, "v": 1}])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert read(db, path) == []


def test_an_empty_transaction_commits_without_a_timestamp(db: Client) -> None:
    assert db.begin().commit() is None


def test_a_deletion_that_overlaps_a_committed_write_is_refused_at_its_commit(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    writer, deleter = db.begin(), db.begin()
    writer.insert_rows(path, [{"k": 1, "v": 1}])
    deleter.delete_rows(path, [{"k": 1}])
    writer.commit()
    with refused(TransactionConflict, is_retryable=True):
        deleter.commit()
    assert value(db, path, 1) == 1


def test_one_transaction_writes_any_rows_of_any_tables(db: Client, make_table: MakeTable) -> None:
    paths = [make_table(pivot_keys=[[], [100], [200]]) for _ in range(3)]
    keys = (0, 50, 100, 150, 200, 250)
    with db.begin() as transaction:
        for path in paths:
            transaction.insert_rows(path, [{"k": key, "v": 1} for key in keys])
    for path in paths:
        assert [row["k"] for row in read(db, path)] == list(keys)
        at = transaction.commit_timestamp
        assert at is not None
        assert read(db, path, timestamp=at - 1) == []
        assert len(read(db, path, timestamp=at)) == len(keys)


def test_many_calls_of_one_transaction_are_one_commit(db: Client, make_table: MakeTable) -> None:
    path = make_table(pivot_keys=[[], [500]])
    with db.begin() as transaction:
        for start in range(0, 1000, 50):
            keys = range(start, start + 50)
            transaction.insert_rows(path, [{"k": key, "v": key} for key in keys])
    assert [row["v"] for row in read(db, path)] == list(range(1000))


def test_a_table_that_is_not_there_is_reported_at_the_call(db: Client, new_path: str) -> None:
    with refused(TableNotFound, is_retryable=False):
        db.begin().insert_rows(new_path, [{"k": 1, "v": 1}])
