"""Python rows as Arrow tables: what becomes of them, and which row and column is told of."""

from typing import Any

import pyarrow
import pytest

from dodona._core.writing.row_tables import table_of_rows
from dodona.errors import SchemaViolation
from dodona.schema import TableSchema

SCHEMA = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "part", "type": "utf8", "sort_order": "ascending"},
        {"name": "value", "type": "double", "required": True},
        {"name": "raw", "type": "string"},
        {"name": "more", "type": "any"},
    ]
)


def made(*rows: dict[str, Any], first_row: int = 0, is_update: bool = False) -> Any:
    return table_of_rows(SCHEMA, rows, first_row, is_update=is_update)


def test_columns_come_in_the_table_s_order_and_types() -> None:
    table = made(
        {"more": {"x": [1]}, "value": 1, "id": 1, "part": "a"},
        {"id": 2, "value": 0.5, "part": None, "raw": "text"},
    )
    assert table.schema == pyarrow.schema(
        [
            ("id", pyarrow.int64()),
            ("part", pyarrow.string()),
            pyarrow.field("value", pyarrow.float64(), nullable=False),
            ("raw", pyarrow.binary()),
            ("more", pyarrow.binary()),
        ]
    )
    assert table.to_pylist() == [
        {"id": 1, "part": "a", "value": 1.0, "raw": None, "more": b"\x81\xa1x\x91\x01"},
        {"id": 2, "part": None, "value": 0.5, "raw": b"text", "more": None},
    ]


def test_columns_that_no_row_names_are_left_out() -> None:
    assert made(GOOD).column_names == ["id", "part", "value"]


def refusal(*rows: dict[str, Any], **options: Any) -> dict[str, Any]:
    with pytest.raises(SchemaViolation) as refused:
        made(*rows, **options)
    return refused.value.attributes


GOOD = {"id": 1, "part": "a", "value": 1.0}


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({**GOOD, "id": "x"}, "id"),
        ({**GOOD, "id": 1 << 63}, "id"),
        ({**GOOD, "value": None}, "value"),
        ({"id": 1, "part": "a"}, "value"),
        ({**GOOD, "value": "x"}, "value"),
        ({**GOOD, "raw": 1}, "raw"),
        ({**GOOD, "part": b"x"}, "part"),
        ({**GOOD, "more": object()}, "more"),
        ({**GOOD, "nope": 1}, "nope"),
        ({"id": 1, "value": 1.0}, "part"),
        ({"part": "a", "value": 1.0}, "id"),
        ({}, "id"),
    ],
)
def test_the_row_and_the_column_that_do_not_fit_are_named(row: dict[str, Any], column: str) -> None:
    attributes = refusal(GOOD, row, GOOD, first_row=100)
    assert attributes["column"] == column
    assert attributes["row_index"] == 101


def test_rows_that_update_name_the_same_columns() -> None:
    updated = {**GOOD, "raw": b"x"}
    assert made(updated, updated, is_update=True).num_rows == 2
    assert refusal(updated, GOOD, first_row=5, is_update=True) == {"row_index": 6}
    with pytest.raises(SchemaViolation, match="name the same columns"):
        made(GOOD, updated, is_update=True)


def test_key_columns_are_named_by_each_row_and_may_be_null() -> None:
    with pytest.raises(SchemaViolation, match="missing key column 'part'"):
        made({"id": 1, "value": 1.0})
    assert made({**GOOD, "part": None}).column("part").to_pylist() == [None]
