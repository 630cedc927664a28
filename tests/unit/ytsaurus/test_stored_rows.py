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
from suite.column_values import LOGICAL, NESTED, an_example


@pytest.mark.parametrize("name", [*TYPES, *LOGICAL, *NESTED])
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
        ({"type_v3": {"type_name": "list", "item": "tz_date"}}, "must be one of"),
        ({"type_v3": {"type_name": "dict", "key": "date", "value": "int8"}}, "keys of a dict"),
        ({"type": "list<int8>"}, "must be one of"),
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


def test_a_nested_type_has_a_map_in_type_v3_and_is_any_in_type() -> None:
    name = "list<struct<a:int8,b:optional<dict<utf8,decimal(5,2)>>>>"
    decimal = {"type_name": "decimal", "precision": 5, "scale": 2}
    members = [
        {"name": "a", "type": "int8"},
        {
            "name": "b",
            "type": {
                "type_name": "optional",
                "item": {"type_name": "dict", "key": "utf8", "value": decimal},
            },
        },
    ]
    v3 = {"type_name": "list", "item": {"type_name": "struct", "members": members}}
    assert columns_of([{"name": "v", "type_v3": v3}]) == [
        {"name": "v", "type": name, "required": True}
    ]
    (shown,) = yt_schema([{"name": "v", "type": name, "required": True}]).value
    assert (shown["type"], shown["type_v3"]) == ("any", v3)


def test_types_of_type_v3_are_not_nested_without_end() -> None:
    v3: Any = "int8"
    for _ in range(1000):
        v3 = {"type_name": "list", "item": v3}
    with pytest.raises(SchemaViolation, match="16 deep"):
        columns_of([{"name": "v", "type_v3": v3}])


@pytest.mark.parametrize("name", [*LOGICAL, *NESTED])
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
        ("list<optional<date>>", [Uint64(1), None], [date(1970, 1, 2), None]),
        ("list<double>", [1, 0.5], [1.0, 0.5]),
        ("struct<a:int8,b:optional<utf8>>", {"a": 1}, {"a": 1, "b": None}),
        ("struct<a:int8,b:utf8>", {"b": "x", "a": 1}, {"a": 1, "b": "x"}),
        ("struct<a:int8,b:utf8>", [1, "x"], {"a": 1, "b": "x"}),
        ("dict<utf8,string>", [["x", "y"]], {"x": b"y"}),
        ("dict<utf8,string>", {"x": "y"}, {"x": b"y"}),
    ],
)
def test_a_value_may_have_each_form_of_yson(name: str, given: Any, value: Any) -> None:
    assert given_rows(schema_of(name), [{"v": given}]) == [{"v": value}]


@pytest.mark.parametrize(
    ("name", "given"),
    [("date", 60_000), ("date", -1), ("date", "2024-05-31"), ("int8", 300), ("uuid", b"1"),
     ("decimal(5,2)", b"\xff\xff\xff\xff"), ("float", 0.1), ("json", "{"), ("int8", True),
     ("float", (1 << 24) + 1), ("list<double>", [(1 << 53) + 1]), ("list<float>", [(1 << 24) + 1]),
     ("dict<utf8,double>", {"a": Uint64((1 << 64) - 1)}),
     ("list<int8>", [300]), ("list<int8>", [None]), ("list<int8>", 1), ("list<int8>", "x"),
     ("struct<a:int8>", {"a": 1, "b": 1}), ("struct<a:int8>", {}), ("struct<a:int8>", [1, 2]),
     ("dict<utf8,int8>", [["a", 1], ["a", 2]]), ("dict<utf8,int8>", [["a"]]),
     ("dict<utf8,int8>", ["a"])],
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


def test_numbers_inside_have_the_type_of_yson() -> None:
    schema = schema_of("dict<utf8,list<struct<a:uint8,b:int8,c:date>>>")
    value = {"x": [{"a": 1, "b": 2, "c": date(1970, 1, 2)}]}
    shown = shown_row({"v": value}, shown_by_name(schema))["v"]
    (
        (
            key,
            ((found,)),
        ),
    ) = [(it[0], it[1]) for it in shown]
    assert (key, [type(it) for it in found.values()]) == ("x", [Uint64, int, Uint64])
