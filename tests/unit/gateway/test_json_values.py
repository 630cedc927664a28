"""JSON's spelling of what it lacks: examples; that nothing is lost is in the properties."""

import math
from typing import Any

import pytest

from dodona._core.reading.versions import VersionedRow, VersionedValue
from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import Column, TableSchema
from dodona.types import Timestamp
from dodona_gateway.core.content import decode_body, encode_body
from dodona_gateway.core.json_values import (
    convert_history,
    convert_rows,
    converters,
    given_rows,
)
from dodona_gateway.core.requests import InsertRows
from dodona_gateway.core.row_stream import LinesOfJson
from dodona_wire.rows.error_attributes import shown_attributes
from dodona_wire.rows.text_format import DEPTH_MAX, format_any, may_be_marked, unmarked

COLUMNS = [Column("n", "int64"), Column("s", "string"), Column("d", "double"), Column("a", "any")]
CONVERT = converters(COLUMNS)


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ({"n": 1 << 62, "s": b"text", "d": 0.5}, {"n": 1 << 62, "s": "text", "d": 0.5}),
        ({"s": "ä€".encode()}, {"s": "ä€"}),
        ({"s": b"\xff"}, {"s": {"$base64": "/w=="}}),
        ({"s": b"\xed\xa0\x80"}, {"s": {"$base64": "7aCA"}}),
        (
            {"s": None, "d": None, "a": None, "n": None},
            {"s": None, "d": None, "a": None, "n": None},
        ),
        ({"d": math.nan}, {"d": {"$double": "NaN"}}),
        ({"d": -math.inf}, {"d": {"$double": "-Infinity"}}),
        ({"a": b"text"}, {"a": {"$base64": "dGV4dA=="}}),
        ({"a": "text"}, {"a": "text"}),
        (
            {"a": {"$x": {"$dict": 1}, "z": [b"", math.inf]}},
            {"a": {"$x": {"$dict": {"$dict": 1}}, "z": [{"$base64": ""}, {"$double": "Infinity"}]}},
        ),
        ({}, {}),
    ],
)
def test_a_row_is_shown(row: dict[str, Any], shown: dict[str, Any]) -> None:
    assert convert_rows([row, None], CONVERT) == [shown, None]


def test_columns_that_json_has_are_left_alone() -> None:
    rows = [{"n": 1}, None]
    assert convert_rows(rows, converters([Column("n", "int64"), Column("u", "utf8")])) == rows


def test_version_histories_convert_special_values_to_json() -> None:
    at = Timestamp(7)
    values = {"d": [VersionedValue(at, math.nan), VersionedValue(at, None)]}
    row = VersionedRow({"s": b"\xff", "n": 1}, [at], [], values)
    shown = convert_history(row, CONVERT)
    assert shown.key == {"s": {"$base64": "/w=="}, "n": 1}
    assert [it.value for it in shown.values["d"]] == [{"$double": "NaN"}, None]


def test_attributes_of_errors_are_for_people() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    class Plain:
        """Whose text would be its place in memory."""

    assert shown_attributes({"it": [Plain()]}) == {"it": ["one Plain"]}
    shown = shown_attributes(
        {"key": {"s": b"text", "t": b"\xff"}, "all": (1, Odd()), "x": math.nan}
    )
    assert shown == {
        "key": {"s": "text", "t": {"$base64": "/w=="}},
        "all": [1, "odd"],
        "x": {"$double": "NaN"},
    }


@pytest.mark.parametrize(
    ("text", "may"),
    [(b'{"a": "b"}', False), (b'{"$base64": ""}', True), (b'{"\\u0024base64": ""}', True)],
)
def test_whether_there_may_be_marks_shows_at_a_glance(text: bytes, may: bool) -> None:
    assert may_be_marked(text) is may


@pytest.mark.parametrize(
    "value",
    [{"$base64": "a"}, {"$base64": None}, {"$double": "1"}, {"$double": 1}, {"$dict": 1},
     [{"$double": []}], {"$base64": "ä"}, {"$base64": "/w==\n"}],
)  # fmt: skip
def test_a_mark_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        unmarked(value, "a")


def nested(depth: int, *, is_map: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if is_map else [value]
    return value


@pytest.mark.parametrize("is_map", [True, False])
def test_depth_is_bounded(is_map: bool) -> None:
    deep = nested(DEPTH_MAX, is_map=is_map)
    assert unmarked(deep, "a") == deep
    for too_deep in (nested(DEPTH_MAX + 1, is_map=is_map), nested(900, is_map=is_map)):
        with pytest.raises(InvalidRequest, match="nested deeper"):
            unmarked(too_deep, "a")


def test_only_user_dicts_that_look_like_marked_values_are_escaped() -> None:
    for own in ({"$base64": 1}, {"$dict": {"$double": None}}):
        assert format_any(own) == {"$dict": spelled(own)}
        assert unmarked(format_any(own), "a") == own
    for plain in ({"$x": 1}, {"$base64": "", "b": 1}, {"a$": "$x"}):
        assert format_any(plain) == plain == unmarked(plain, "a")


def spelled(own: dict[str, Any]) -> dict[str, Any]:
    return {name: format_any(value) for name, value in own.items()}


NESTED: list[tuple[str, Any]] = [
    ("list<any>", [{"$base64": "aGk="}, {"$double": "NaN"}, {"$dict": {"a": 1}}, b"\xff"]),
    ("dict<utf8,any>", {"$dict": {"a": 1}}),
    ("dict<utf8,any>", {"$dict": {"$dict": {"a": {"$base64": b"x"}}}}),
    ("dict<utf8,utf8>", {"$base64": "aGk="}),
    ("dict<utf8,string>", {"$base64": b"\xff"}),
    ('struct<"$double":utf8>', {"$double": "NaN"}),
    ("list<optional<double>>", [math.inf, None, 0.5]),
    ("list<string>", [b"\xff", b"a"]),
]


@pytest.mark.parametrize("form", ["json", "msgpack", "ndjson"])
@pytest.mark.parametrize(("name", "value"), NESTED)
def test_a_nested_value_with_reserved_names_is_read_as_it_is_shown(
    name: str, value: Any, form: Any
) -> None:
    schema = TableSchema.parse([Column("k", "int64", "ascending"), Column("v", name)])
    ((shown,)) = convert_rows([{"k": 1, "v": value}], converters(schema.columns))
    if form == "ndjson":
        rows = LinesOfJson().feed(encode_body(shown, "json") + b"\n")
    else:
        body = encode_body({"table": "//t", "rows": [shown]}, form)
        rows = decode_body(body, form, InsertRows).rows
    assert given_rows(schema, rows, "//t", is_json=form != "msgpack") == [{"k": 1, "v": value}]


def test_a_value_of_json_is_nested_up_to_a_limit() -> None:
    schema = TableSchema.parse([Column("k", "int64", "ascending"), Column("a", "any")])
    rows = [{"k": 1, "a": nested(DEPTH_MAX + 1, is_map=False)}]
    with pytest.raises(SchemaViolation, match="nested deeper") as refused:
        given_rows(schema, rows, "//t", is_json=True)
    assert refused.value.attributes == {"column": "a", "row_index": 0, "table": "//t"}
