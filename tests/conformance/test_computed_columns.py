"""Computed key columns: rows and keys without them, over cells, in every way to write.

Owns: that all back ends compute and check them. The meaning of expressions is that of
tests/unit/client/test_computed_columns.py.
"""

from typing import Any, Final

import pytest

from conformance.tables import KEY, MakeTable, Row, Schema, refused
from dodona.client import Client
from dodona.errors import SchemaViolation, TransactionConflict
from dodona_wire.expressions.farm_hash import farm_hash

HASHED: Final[Schema] = [
    {**KEY, "name": "h", "type": "uint64", "expression": "farm_hash(k) % 100"},
    KEY,
    {"name": "v", "type": "int64"},
]
PIVOTS: Final[list[list[Any]]] = [[], [25], [50], [75]]


def hashed(k: int, v: int | None) -> Row:
    return {"h": farm_hash(k) % 100, "k": k, "v": v}


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda it: (it["h"], it["k"]))


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_rows_are_spread_by_the_computed_column(
    db: Client, other: Client, make_table: MakeTable, atomicity: str
) -> None:
    path = make_table(HASHED, pivot_keys=PIVOTS, atomicity=atomicity)
    db.insert_rows(path, [{"k": k, "v": k} for k in range(50)])
    assert list(other.select(path)) == in_order([hashed(k, k) for k in range(50)])
    found = other.lookup_rows(path, [{"k": k} for k in (7, 70, 8)])
    assert found == [hashed(7, 7), hashed(8, 8)]
    db.insert_rows(path, [row for row in other.select(path) if row["k"] < 5])
    db.delete_rows(path, [{"k": k} for k in range(5, 50)])
    db.delete_rows(path, [{"h": farm_hash(0) % 100, "k": 0}])
    assert list(other.select(path)) == in_order([hashed(k, k) for k in range(1, 5)])


def test_data_is_spread_by_the_computed_column(db: Client, make_table: MakeTable) -> None:
    path = make_table(HASHED, pivot_keys=PIVOTS)
    db.write(path, {"k": range(200), "v": [1] * 200})
    assert list(db.select(path)) == in_order([hashed(k, 1) for k in range(200)])
    with db.loads.begin([path]) as load:
        staged = load.write(path, {"k": [1, 300], "v": [2, 2]})
        load.publish(staged)
    assert db.lookup_rows(path, [{"k": 300}, {"k": 1}]) == [hashed(300, 2), hashed(1, 2)]


def test_transactions_conflict_on_keys_without_the_computed_column(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(HASHED, pivot_keys=PIVOTS)
    first, second = db.begin(), other.begin()
    first.insert_rows(path, [{"k": 1, "v": 1}, {"k": 2, "v": 1}])
    second.lock_rows(path, [{"k": 2}])
    first.commit()
    with pytest.raises(TransactionConflict) as error:
        second.commit()
    assert error.value.attributes["key"] == {"h": farm_hash(2) % 100, "k": 2}


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_a_wrong_value_changes_nothing(db: Client, make_table: MakeTable, atomicity: str) -> None:
    path = make_table(HASHED, pivot_keys=PIVOTS, atomicity=atomicity)
    wrong = {**hashed(1, 1), "h": (farm_hash(1) + 1) % 100}
    with refused(SchemaViolation, is_retryable=False):
        db.insert_rows(path, [{"k": 2, "v": 1}, wrong])
    with refused(SchemaViolation, is_retryable=False):
        db.lookup_rows(path, [{"h": wrong["h"], "k": 1}])
    assert list(db.select(path)) == []


def test_a_query_finds_rows_by_the_input_of_a_computed_column(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(HASHED, pivot_keys=PIVOTS)
    db.insert_rows(path, [{"k": k, "v": k} for k in range(50)])
    found = db.query(f"select v from [{path}] where k in (3, 4, 60)").column("v").to_pylist()
    assert sorted(found) == [3, 4]
