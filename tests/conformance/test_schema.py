"""Schemas and pivot keys: what a table may look like."""

from typing import Any

import pytest

from conformance.tables import KEY, PLAIN, MakeTable, Row, Schema, read, refused
from dodona.client import Client
from dodona.errors import DodonaError, InvalidRequest, SchemaViolation, TableExists, TableNotFound

VALUE: Row = {"name": "v", "type": "int64"}


def _columns(count: int, **properties: Any) -> Schema:
    return [{"name": f"c{at}", "type": "int64", **properties} for at in range(count)]


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param([], id="no columns"),
        pytest.param([KEY], id="key columns only"),
        pytest.param([VALUE], id="no key columns"),
        pytest.param([VALUE, KEY], id="a key column behind others"),
        pytest.param([KEY, VALUE, VALUE], id="two columns of one name"),
        pytest.param([KEY, {**VALUE, "name": ""}], id="an empty name"),
        pytest.param([KEY, {**VALUE, "name": "x" * 257}], id="a name that is too long"),
        pytest.param([KEY, {**VALUE, "type": "int"}], id="an unknown type"),
        pytest.param([KEY, {**VALUE, "colour": "red"}], id="an unknown property"),
        pytest.param([KEY, {**VALUE, "expression": "k + 1"}], id="a computed value column"),
        pytest.param(
            [{**KEY, "name": "h", "expression": "farm_hash(j)"}, KEY, VALUE],
            id="a computed column of a column that is not there",
        ),
        pytest.param([{**KEY, "type": "any"}, VALUE], id="a key of type any"),
        pytest.param([{**KEY, "lock": "a"}, VALUE], id="a lock on a key column"),
        pytest.param([KEY, {**VALUE, "lock": ""}], id="an empty lock name"),
        pytest.param([KEY, {**VALUE, "lock": "x" * 257}], id="a lock name that is too long"),
        pytest.param([{**KEY, "sort_order": "upwards"}, VALUE], id="an unknown order"),
    ],
)
def test_a_schema_that_can_not_be_makes_no_table(db: Client, new_path: str, schema: Schema) -> None:
    with refused(SchemaViolation, is_retryable=False):
        db.create_table(new_path, schema)
    assert not db.exists(new_path)


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        pytest.param(
            [*_columns(32, sort_order="ascending"), VALUE],
            [*_columns(33, sort_order="ascending"), VALUE],
            id="key columns",
        ),
        pytest.param([KEY, *_columns(1024)], [KEY, *_columns(1025)], id="value columns"),
        pytest.param(
            [KEY, *[{**it, "lock": it["name"]} for it in _columns(31)]],
            [KEY, *[{**it, "lock": it["name"]} for it in _columns(32)]],
            id="lock groups, the main one included",
        ),
    ],
)
def test_a_schema_has_limits_for_key_columns_value_columns_and_lock_groups(
    db: Client, new_path: str, fits: Schema, does_not: Schema
) -> None:
    with refused(SchemaViolation, is_retryable=False):
        db.create_table(new_path, does_not)
    db.create_table(new_path, fits)


def test_a_table_with_the_maximum_number_of_columns_keeps_its_rows(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table([KEY, *_columns(1024)])
    first: Row = {"k": 1} | {f"c{at}": at for at in range(1024)}
    db.insert_rows(path, [first])
    db.insert_rows(path, [{"k": 1, "c1023": -1}], update=True)
    assert read(db, path) == [first | {"c1023": -1}]
    assert read(db, path, ["c5", "c1023"]) == [{"c5": 5, "c1023": -1}]


@pytest.mark.parametrize(
    "pivot_keys",
    [
        pytest.param([], id="none"),
        pytest.param([[1]], id="the first is not empty"),
        pytest.param([[], [1], [1]], id="one twice"),
        pytest.param([[], [2], [1]], id="out of order"),
        pytest.param([[], []], id="empty twice"),
        pytest.param([[], ["x"]], id="of another type"),
        pytest.param([[], [1, 2]], id="more values than key columns"),
    ],
)
def test_pivot_keys_that_can_not_be_make_no_table(
    db: Client, new_path: str, pivot_keys: list[list[Any]]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        db.create_table(new_path, PLAIN, pivot_keys=pivot_keys)
    assert not caught.value.is_retryable
    assert not db.exists(new_path)


def test_a_tablet_count_divides_all_integers_evenly(db: Client, new_path: str) -> None:
    db.create_table(new_path, [{**KEY, "type": "uint64"}, VALUE], tablet_count=4)
    pivots = [tablet.pivot_key for tablet in db.get_table(new_path).tablets]
    assert pivots == [(), (1 << 62,), (1 << 63,), (3 << 62,)]


def test_a_tablet_count_does_not_divide_doubles(db: Client, new_path: str) -> None:
    with refused(InvalidRequest, is_retryable=False):
        db.create_table(new_path, [{**KEY, "type": "double"}, VALUE], tablet_count=4)


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_a_table_has_one_to_ten_thousand_tablets(db: Client, new_path: str, count: int) -> None:
    with refused(InvalidRequest, is_retryable=False):
        db.create_table(new_path, PLAIN, tablet_count=count)


def test_a_path_holds_one_table(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    with refused(TableExists, is_retryable=False):
        db.create_table(path, PLAIN)
    assert read(db, path) == [{"k": 1, "v": 1}]


@pytest.mark.parametrize("path", ["", "x", "/x", "//", "//x/", "//x//y", "//x/@y"])
def test_a_table_at_an_invalid_path_is_refused(db: Client, path: str) -> None:
    with pytest.raises(DodonaError) as caught:
        db.create_table(path, PLAIN)
    assert isinstance(caught.value, InvalidRequest)


def test_an_unknown_atomicity_makes_no_table(db: Client, new_path: str) -> None:
    some: Any = "some"
    with refused(InvalidRequest, is_retryable=False):
        db.create_table(new_path, PLAIN, atomicity=some)
    with refused(TableNotFound, is_retryable=False):
        db.get_table(new_path)
