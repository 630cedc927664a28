"""Logical types in YTsaurus's API: schemas in both spellings, and values in their stored form."""

from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from dodona.errors import SchemaViolation
from dodona.schema import Column, TableSchema
from dodona_wire.rows.logical_types import TYPES
from dodona_ytsaurus.terms.schemas import columns_of, yt_schema
from dodona_ytsaurus.terms.stored_rows import given_key, given_rows, shown_by_name, shown_row
from dodona_ytsaurus.yson import Uint64
from suite.column_values import LOGICAL, an_example


@pytest.mark.parametrize("name", [*TYPES, *LOGICAL])
def test_a_schema_comes_back_as_it_was(name: str) -> None:
    column = {"name": "v", "type": name}
    (shown,) = yt_schema([column]).value
    (found,) = columns_of([shown])
    assert found == {**column, "required": False}


def test_a_decimal_is_a_type_of_its_own_in_type_v3_only() -> None:
    v3 = {"type_name": "decimal", "precision": 10, "scale": 2}
    (found,) = columns_of([{"name": "v", "type_v3": v3}])
    assert found == {"name": "v", "type": "decimal(10,2)", "required": True}
    (shown,) = yt_schema([found]).value
    assert (shown["type"], shown["type_v3"]) == ("string", v3)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"type_v3": {"type_name": "decimal", "precision": 77, "scale": 0}}, "1 to 76"),
        ({"type_v3": {"type_name": "decimal", "precision": "9", "scale": 0}}, "whole numbers"),
        ({"type_v3": {"type_name": "list", "item": "int8"}}, "must be one of"),
        ({"type_v3": "tz_date"}, "must be one of"),
        ({"type": "decimal(5,2)"}, "must be one of"),
        ({"type": ["int8"]}, "must be one of"),
    ],
)
def test_a_type_that_dodona_lacks_is_refused(column: dict[str, Any], text: str) -> None:
    with pytest.raises(SchemaViolation, match=text) as caught:
        columns_of([{"name": "v", **column}])
    assert caught.value.attributes["column"] == "v"


def schema_of(name: str) -> TableSchema:
    return TableSchema.parse([Column("k", "int64", "ascending"), Column("v", name)])


@pytest.mark.parametrize("name", LOGICAL)
def test_values_go_in_and_out_in_their_stored_form(name: str) -> None:
    schema, value = schema_of(name), an_example(name)
    (_, _, (stored,)) = schema.write_of({"k": 1, "v": value})
    assert shown_row({"k": 1, "v": value}, shown_by_name(schema)) == {"k": 1, "v": stored}
    assert given_rows(schema, [{"k": 1, "v": stored}]) == [{"k": 1, "v": value}]
    assert given_rows(schema, [{"k": 1, "v": None}]) == [{"k": 1, "v": None}]


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("date", Uint64(1), date(1970, 1, 2)),
        ("float", 1, 1.0),
        ("uuid", "0123456789abcdef", UUID(bytes=b"0123456789abcdef")),
        ("decimal(5,2)", b"\x80\x00\x00\x96", Decimal("1.50")),
    ],
)
def test_a_value_may_have_each_form_of_yson(name: str, given: Any, value: Any) -> None:
    assert given_rows(schema_of(name), [{"v": given}]) == [{"v": value}]


@pytest.mark.parametrize(
    ("name", "given"),
    [("date", 60_000), ("date", -1), ("date", "2024-05-31"), ("int8", 300), ("uuid", b"1"),
     ("decimal(5,2)", b"\xff\xff\xff\xff"), ("float", 0.1), ("json", "{"), ("int8", True)],
)  # fmt: skip
def test_a_value_outside_of_the_type_is_refused_with_its_row(name: str, given: Any) -> None:
    with pytest.raises(SchemaViolation) as caught:
        given_rows(schema_of(name), [{"v": None}, {"v": given}])
    assert caught.value.attributes["column"] == "v"
    assert caught.value.attributes["row_index"] == 1


def test_rows_of_other_tables_are_not_touched() -> None:
    rows = [{"k": 1, "v": b"x"}]
    assert given_rows(schema_of("string"), rows) is rows
    assert shown_by_name(schema_of("string")) == {}


def test_a_key_has_stored_values_too() -> None:
    schema = TableSchema.parse([Column("k", "date", "ascending"), Column("v", "int8")])
    assert given_key(schema, [1]) == [date(1970, 1, 2)]
    assert given_key(schema, []) == []
    assert given_key(schema, [None, 5]) == [None, 5]
