"""Bulk loads: rows of every type, of narrow tables and of wide ones, and rows that do not fit."""

import pyarrow as pa
import pytest

from conformance.tables import KEY, SUM, MakeTable, Schema, read, refused
from dodona.client import Client
from dodona.errors import SchemaViolation

TYPES: Schema = [
    {"name": "a", "type": "utf8", "sort_order": "ascending"},
    {"name": "b", "type": "uint64", "sort_order": "ascending"},
    {"name": "i", "type": "int64"},
    {"name": "u", "type": "uint64"},
    {"name": "d", "type": "double"},
    {"name": "t", "type": "boolean"},
    {"name": "s", "type": "string"},
    {"name": "x", "type": "utf8"},
    {"name": "y", "type": "any"},
]


def test_values_of_every_type_come_back_as_they_were(db: Client, make_table: MakeTable) -> None:
    """As rows that were inserted: `any` travels as in a table that is read in bulk."""
    names = [column["name"] for column in TYPES]
    content = [
        dict(zip(names, values, strict=True))
        for values in (
            ("", 0, -(1 << 63), 0, -0.0, False, b"", "", {"a": [1, None, "z"]}),
            ("ä", (1 << 64) - 1, (1 << 63) - 1, (1 << 64) - 1, 1e308, True, b"\0\xff", "ö", 5),
            ("ä", 1 << 63, *[None] * 7),
            (None, None, 1, 2, float("inf"), None, b"z", "z", [True, -1.5]),
        )
    ]
    source, path = make_table(TYPES), make_table(TYPES, pivot_keys=[[], ["a"], ["ä", 1 << 63]])
    db.insert_rows(source, content)
    with db.loads.begin([path]) as load, db.hold_snapshot([source]) as snapshot:
        load.write(path, snapshot.read_batches(source))
    assert read(db, path) == read(db, source)
    assert len(read(db, path)) == 4
    with db.loads.begin([path], mode="delete") as load:
        load.write(path, pa.table({"a": ["ä"], "b": pa.array([(1 << 64) - 1], pa.uint64())}))
    assert [row["b"] for row in read(db, path)] == [None, 0, 1 << 63]


@pytest.mark.parametrize("count", [64, 65, 130])
def test_wide_tables_are_loaded_and_updated(db: Client, make_table: MakeTable, count: int) -> None:
    names = [f"c{number}" for number in range(count)]
    path = make_table([KEY, *[{"name": name, "type": "int64"} for name in names]])
    columns = [[at, None] for at in range(count)]
    with db.loads.begin([path]) as load:
        load.write(path, pa.table({"k": [1, 2], **dict(zip(names, columns, strict=True))}))
    with db.loads.begin([path], mode="update") as load:
        load.write(path, pa.table({"k": [2], names[-1]: [7], names[0]: [8]}))
    first, second = read(db, path)
    assert first == {"k": 1, **dict(zip(names, range(count), strict=True))}
    assert second == {"k": 2, **dict.fromkeys(names), names[-1]: 7, names[0]: 8}


def test_columns_with_an_aggregate_get_plain_values(db: Client, make_table: MakeTable) -> None:
    path = make_table(SUM)
    db.insert_rows(path, [{"k": 1, "total": 5, "v": 1}])
    with db.loads.begin([path]) as load:
        load.write(path, pa.table({"k": [1, 2], "total": [10, 20], "v": [1, 2]}))
    assert [row["total"] for row in read(db, path)] == [10, 20]
    db.insert_rows(path, [{"k": 1, "total": 1}], update=True, aggregate=True)
    assert [row["total"] for row in read(db, path)] == [11, 20]
    load = db.loads.begin([path], mode="update")
    with refused(SchemaViolation, "aggregate", is_retryable=False, columns=["total"]):
        load.write(path, pa.table({"k": [2], "total": [7]}))
    load.write(path, pa.table({"k": [2], "v": [7]}))
    load.publish()
    assert [(row["total"], row["v"]) for row in read(db, path)] == [(11, 1), (20, 7)]


def test_required_columns_have_to_be_given(db: Client, make_table: MakeTable) -> None:
    schema = [
        {**KEY, "required": True},
        {"name": "v", "type": "int64", "required": True},
        {"name": "w", "type": "int64"},
    ]
    path = make_table(schema)
    load = db.loads.begin([path])
    nothing = pa.array([None], pa.int64())
    for data in ({"k": [1]}, {"k": [1], "w": [1]}, {"k": [1], "v": nothing}, {"v": [1]}):
        with refused(SchemaViolation, is_retryable=False):
            load.write(path, pa.table(data))
    with refused(SchemaViolation, is_retryable=False):
        load.write(path, pa.table({"k": nothing, "v": [1]}))
    load.write(path, pa.table({"k": [1], "v": [1]}))
    load.publish()
    with db.loads.begin([path], mode="update") as load:
        load.write(path, pa.table({"k": [1], "w": [5]}))
    assert read(db, path) == [{"k": 1, "v": 1, "w": 5}]


def test_rows_that_do_not_fit_are_refused(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    load = db.loads.begin([path])
    for data in (
        pa.table({"k": ["x"], "v": [1]}),
        pa.table({"k": [1], "z": [1]}),
        pa.table({"k": pa.array([1 << 63], pa.uint64()), "v": [1]}),
    ):
        with refused(SchemaViolation, is_retryable=False, table=path):
            load.write(path, data)
    assert load.publish().row_count == 0
