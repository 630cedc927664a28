"""Constants of a plan: which stored value each stands for, and which value follows it."""

import math
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest

from dodona._core.sql.constants import constant, successor
from dodona_wire.rows.logical_types import TYPES, logical_type
from dodona_wire.rows.logical_values import FLOAT_MAX, load_of, single

DOUBLE_MAX = math.nextafter(math.inf, 0)
MOMENTS = "TIMESTAMP WITH TIME ZONE"
NOON = "2024-05-31 12:00:00"
NOON_S = int(datetime(2024, 5, 31, 12, tzinfo=UTC).timestamp())
TEXT = "a3bb189e-8bf9-3888-9912-ace4e6543002"


def literal(kind: str, text: str) -> dict[str, Any]:
    return {"type": "VALUE_CONSTANT", "literal": {"kind": kind, "text": text}}


def whole(text: str) -> dict[str, Any]:
    return literal("INTEGER", text)


def number(text: str) -> dict[str, Any]:
    return literal("NUMERIC", text)


def word(text: str) -> dict[str, Any]:
    return literal("STRING", text)


def cast(type_name: str, child: dict[str, Any]) -> dict[str, Any]:
    return {"type": "OPERATOR_CAST", "type_expr": {"type_name": type_name}, "child": child}


@pytest.mark.parametrize(
    ("name", "tree", "stored"),
    [
        ("int64", whole("9223372036854775807"), (1 << 63) - 1),
        ("int64", whole("-9223372036854775808"), -(1 << 63)),
        ("int64", number("5"), 5),
        ("uint64", whole("0"), 0),
        ("uint64", whole("18446744073709551615"), (1 << 64) - 1),
        ("double", number("-1.5"), -1.5),
        ("double", whole("3"), 3.0),
        ("utf8", word("é"), "é"),
        ("string", cast("BLOB", word(r"\x00a\xFFb")), b"\x00a\xffb"),
        ("int8", whole("-128"), -128),
        ("float", number("0.1"), single(0.1)),
        ("interval64", whole("5"), 5),
        ("date", cast("DATE", word("1970-01-02")), 1),
        ("timestamp", cast(MOMENTS, word(f"{NOON}.000001+00")), NOON_S * 1_000_000 + 1),
        ("datetime", cast(MOMENTS, word(f"{NOON}+00")), NOON_S),
        ("datetime", cast(MOMENTS, word(f"{NOON}.5+00")), NOON_S),
        ("datetime64", cast(MOMENTS, word("1969-12-31 23:59:58.5+00")), -2),
        ("decimal(5,2)", number("1.5"), b"\x80\x00\x00\x96"),
        ("decimal(5,2)", whole("3"), b"\x80\x00\x01\x2c"),
        ("uuid", cast("UUID", word(TEXT)), UUID(TEXT).bytes),
    ],
)
def test_a_constant_stands_for_this_stored_value(
    name: str, tree: dict[str, Any], stored: Any
) -> None:
    found = constant(tree, logical_type(name))
    assert (found, type(found)) == (stored, type(stored))


@pytest.mark.parametrize(
    ("name", "tree"),
    [
        ("int64", whole("9223372036854775808")),
        ("int64", whole("-9223372036854775809")),
        ("int64", number("1.5")),
        ("int64", word("5")),
        ("int64", cast("BIGINT", word("5"))),
        ("int64", literal("NULL_LITERAL", "")),
        ("int64", {"type": "VALUE_CONSTANT", "literal": None}),
        ("int64", {**whole("5"), "type": "COLUMN_REF"}),
        ("uint64", whole("-1")),
        ("uint64", whole("18446744073709551616")),
        ("double", number("1e400")),
        ("double", word("1.5")),
        ("boolean", whole("1")),
        ("any", whole("1")),
        ("utf8", whole("5")),
        ("utf8", cast("VARCHAR", word("x"))),
        ("string", word("x")),
        ("string", cast("BLOB", word("é"))),
        ("string", cast("VARCHAR", word("x"))),
        ("string", cast("BLOB", whole("5"))),
        ("string", {**cast("BLOB", word("x")), "type": "FUNCTION"}),
        ("int8", whole("128")),
        ("int8", number("1.5")),
        ("float", number("1e39")),
        ("interval", whole("5")),
        ("date", word("1970-01-02")),
        ("date", cast("DATE", word("infinity"))),
        ("date", cast("DATE", word("1969-12-31"))),
        ("datetime", cast(MOMENTS, word(NOON))),
        ("datetime", cast(MOMENTS, word(f"{NOON}+02"))),
        ("timestamp", cast("TIMESTAMP", word(f"{NOON}+00"))),
        ("decimal(5,2)", number("1.555")),
        ("decimal(5,2)", cast("DECIMAL(5,2)", word("1.5"))),
        ("uuid", cast("UUID", word(TEXT[1:]))),
        ("json", whole("1")),
        ("json", word("1")),
    ],
)
def test_a_constant_that_the_type_does_not_have_makes_no_range_smaller(
    name: str, tree: dict[str, Any]
) -> None:
    assert constant(tree, logical_type(name)) is None


def test_an_interval64_has_both_ends_of_its_range() -> None:
    kind = logical_type("interval64")
    for end in (kind.lowest, kind.highest):
        assert constant(whole(str(end)), kind) == end
    assert constant(whole(str(kind.lowest - 1)), kind) is None
    assert constant(whole(str(kind.highest + 1)), kind) is None


@pytest.mark.parametrize(
    ("name", "value", "following"),
    [
        ("int64", -1, 0),
        ("int64", (1 << 63) - 2, (1 << 63) - 1),
        ("int64", (1 << 63) - 1, None),
        ("uint64", (1 << 64) - 2, (1 << 64) - 1),
        ("uint64", (1 << 64) - 1, None),
        ("string", b"a", b"a\0"),
        ("utf8", "a", "a\0"),
        ("double", 0.0, 5e-324),
        ("double", 1.0, 1 + 2**-52),
        ("double", DOUBLE_MAX, None),
        ("float", 0.0, 2.0**-149),
        ("float", -0.0, 2.0**-149),
        ("float", -(2.0**-149), -0.0),
        ("float", 1.0, 1 + 2**-23),
        ("float", -1.0, -1 + 2**-24),
        ("float", FLOAT_MAX, None),
        ("uuid", b"\0" * 15 + b"\xff", b"\0" * 14 + b"\1\0"),
        ("uuid", b"\xff" * 15 + b"\xfe", b"\xff" * 16),
        ("uuid", b"\xff" * 16, None),
        ("decimal(5,2)", b"\x7f\xff\xff\xff", b"\x80\0\0\0"),
        ("json", "1", None),
        ("boolean", False, None),
        ("any", b"\xc0", None),
    ],
)
def test_the_next_value_follows_with_none_between(name: str, value: Any, following: Any) -> None:
    assert successor(value, logical_type(name)) == following


@pytest.mark.parametrize(
    "name", [it.name for it in TYPES.values() if isinstance(it.lowest, int)] + ["decimal(39,1)"]
)
def test_no_value_follows_the_last_one_of_a_range(name: str) -> None:
    kind = logical_type(name)
    assert successor(kind.highest, kind) is None
    if kind.size_bytes:
        second = (int.from_bytes(kind.lowest, "big") + 1).to_bytes(kind.size_bytes, "big")
        last_but_one = (int.from_bytes(kind.highest, "big") - 1).to_bytes(kind.size_bytes, "big")
    else:
        second, last_but_one = kind.lowest + 1, kind.highest - 1
    assert successor(kind.lowest, kind) == second
    assert successor(last_but_one, kind) == kind.highest


def test_the_day_after_a_constant_is_the_next_day() -> None:
    kind = logical_type("date32")
    following = successor(constant(cast("DATE", word("2024-02-29")), kind), kind)
    assert load_of(kind)(following) == date(2024, 3, 1)
