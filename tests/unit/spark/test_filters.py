"""Filters of Spark as Arrow expressions, compared with their meaning value by value; and as ranges.

Owns: a second telling of what Spark means by a filter, in plain Python, three-valued.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from dodona.schema import Column, ColumnType, TableSchema
from dodona.types import KEY_MAX, KEY_MIN
from dodona_wire.rows.arrow import arrow_schema
from dodona_wire.rows.columns import SortOrder
from pyspark_dodona.filters import expression_of, key_range_of
from pyspark_dodona.ranges import Range, cut, intersection, is_empty

MAX_INT, MIN_INT = (1 << 63) - 1, -(1 << 63)
VALUES: Final[dict[ColumnType, list[Any]]] = {
    "int64": [None, 0, 1, -1, MAX_INT, MIN_INT],
    "uint64": [None, 0, 1, MAX_INT, MAX_INT + 1, (1 << 64) - 1],
    "double": [None, 0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 5e-324],
    "boolean": [None, True, False],
    "string": [None, b"", b"\x00", b"\x00\xff", b"a", b"\xff"],
    "utf8": [None, "", "a", "ab", "b", "é", "\U0001f600", "a\x00", "A"],
    "any": [None, b"\xc3", b"\x01", b"\xa1x"],
}
COLUMNS: Final = tuple([Column(f"c {kind}", kind) for kind in VALUES])
KEYED: Final = TableSchema.parse([Column("k", "int64", "ascending"), *COLUMNS])
COMPARISONS: Final = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
MATCHES: Final = (StringStartsWith, StringEndsWith, StringContains)


SAYS: Final[dict[type, Callable[[Any, Any], bool]]] = {
    EqualTo: lambda one, other: rank(one) == rank(other),
    EqualNullSafe: lambda one, other: rank(one) == rank(other),
    GreaterThan: lambda one, other: rank(one) > rank(other),
    GreaterThanOrEqual: lambda one, other: rank(one) >= rank(other),
    LessThan: lambda one, other: rank(one) < rank(other),
    LessThanOrEqual: lambda one, other: rank(one) <= rank(other),
    StringStartsWith: lambda one, other: one.startswith(other),
    StringEndsWith: lambda one, other: one.endswith(other),
    StringContains: lambda one, other: other in one,
}


def table_of(kind: ColumnType) -> Any:
    """One column with all the values above, and their places."""
    column = Column(f"c {kind}", kind)
    field = arrow_schema(KEYED).field(column.name)
    places = pa.array(range(len(VALUES[kind])))
    return pa.table({"place": places, column.name: pa.array(VALUES[kind], field.type)})


def meant(condition: Filter, value: Any) -> bool | None:
    """What Spark says of one value. `-0.0 == 0.0` in Python as there; NaN is above all and equals
    itself."""
    if isinstance(condition, Not):
        inner = meant(condition.child, value)
        return None if inner is None else not inner
    if isinstance(condition, IsNull | IsNotNull):
        return (value is None) == isinstance(condition, IsNull)
    other = getattr(condition, "value", None)
    if isinstance(condition, In):
        found = [meant(EqualTo(condition.attribute, it), value) for it in condition.value]
        return True if True in found else None if None in found else False
    if isinstance(condition, EqualNullSafe) and (value is None or other is None):
        return value is None and other is None
    return None if value is None or other is None else bool(SAYS[type(condition)](value, other))


def rank(value: Any) -> Any:
    """For comparing as Spark does: texts by their UTF-8."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def kept(condition: Filter, kind: ColumnType) -> list[int] | None:
    """The places of the values that the expression keeps; None if there is no expression."""
    expression = expression_of(COLUMNS, condition)
    if expression is None:
        return None
    places: list[int] = table_of(kind).filter(expression).column("place").to_pylist()
    return places


def spark_s(kind: ColumnType, value: Any) -> Any:
    """As Spark hands a constant over."""
    return Decimal(value) if kind == "uint64" and value is not None else value


def conditions(kind: ColumnType) -> list[Filter]:
    path = (f"c {kind}",)
    constants = [spark_s(kind, it) for it in VALUES[kind] if it is not None]
    found: list[Filter] = [IsNull(path), IsNotNull(path), EqualNullSafe(path, None)]
    found += [it(path, value) for it in COMPARISONS for value in constants]
    found += [EqualNullSafe(path, value) for value in constants]
    found += [In(path, (*constants[:at], None)[: at + 1]) for at in range(len(constants))]
    found += [In(path, tuple(constants[at : at + 2])) for at in range(len(constants))]
    if kind == "utf8":
        found += [it(path, value) for it in MATCHES for value in constants]
    return [*found, *[Not(it) for it in found]]


@pytest.mark.parametrize("kind", VALUES)
def test_an_arrow_expression_keeps_the_same_values_as_the_filter_of_spark(kind: ColumnType) -> None:
    handled = 0
    for condition in conditions(kind):
        found = kept(condition, kind)
        if found is not None:
            handled += 1
            values = list(enumerate(VALUES[kind]))
            expected = [place for place, value in values if meant(condition, value) is True]
            assert found == expected, condition
    assert handled > 0.5 * len(conditions(kind))


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("absent",), 1),
        EqualTo(("c int64", "nested"), 1),
        EqualTo(("c int64",), 1 << 63),
        EqualTo(("c int64",), True),
        EqualTo(("c int64",), 1.0),
        EqualTo(("c int64",), None),
        EqualTo(("c uint64",), Decimal("0.5")),
        EqualTo(("c uint64",), Decimal(-1)),
        EqualTo(("c double",), math.nan),
        GreaterThan(("c double",), math.nan),
        In(("c double",), (1.0, math.nan)),
        In(("c int64",), (1, "x")),
        GreaterThan(("c boolean",), False),
        EqualTo(("c utf8",), b"x"),
        StringStartsWith(("c string",), "x"),
        Not(EqualTo(("absent",), 1)),
        Not(Not(EqualTo(("c double",), math.nan))),
    ],
)
def test_a_filter_that_cannot_be_expressed_exactly_is_left_to_spark(condition: Filter) -> None:
    assert expression_of(COLUMNS, condition) is None
    if not isinstance(condition, Not):
        assert key_range_of(KEYED, [condition]) == Range()


def test_a_filter_of_an_unknown_kind_is_left_to_spark() -> None:
    class Strange(Filter):
        attribute = ("c int64",)

    assert expression_of(COLUMNS, Strange()) is None


# ---- ranges of keys

KEYS: Final = TableSchema.parse(
    [
        Column("k", "int64", "ascending"),
        Column("t", "utf8", "ascending"),
        Column("u", "uint64", "ascending"),
        Column("v", "int64"),
    ]
)
K, T, U = ("k",), ("t",), ("u",)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], Range()),
        ([EqualTo(("v",), 1), IsNotNull(K)], Range()),
        ([EqualTo(T, "x")], Range()),
        ([EqualTo(K, 5)], Range((5,), (6,))),
        ([EqualTo(K, MAX_INT)], Range((MAX_INT,), None)),
        ([EqualNullSafe(K, 5), EqualTo(T, "x")], Range((5, "x"), (5, "x\0"))),
        ([EqualNullSafe(K, None)], Range()),
        ([GreaterThan(K, 5), LessThan(K, 9)], Range((5,), (10,))),
        ([GreaterThanOrEqual(K, 5), GreaterThan(K, 3), LessThanOrEqual(K, 9)], Range((5,), (10,))),
        ([In(K, (7, None, 3))], Range((3,), (8,))),
        ([In(K, (None,))], Range()),
        ([EqualTo(K, 1), StringStartsWith(T, "ab")], Range((1, "ab"), (1, "ac\0"))),
        ([EqualTo(K, 1), StringStartsWith(T, "a\ud7ff")], Range((1, "a\ud7ff"), (1, "a\ue000\0"))),
        ([EqualTo(K, 1), StringStartsWith(T, "\U0010ffff")], Range((1, "\U0010ffff"), (2,))),
        (
            [EqualTo(K, 1), EqualTo(T, "x"), LessThan(U, Decimal(7))],
            Range((1, "x"), (1, "x", 8)),
        ),
        ([GreaterThan(K, 9), LessThan(K, 3)], Range((9,), (4,))),
        ([Not(EqualTo(K, 5))], Range()),
        ([StringContains(K, "x"), StringEndsWith(T, "x")], Range()),
    ],
)
def test_a_range_from_filters(given: list[Filter], expected: Range) -> None:
    assert key_range_of(KEYS, given) == expected


DOWN: Final = TableSchema.parse(
    [
        Column("k", "int64", "descending"),
        Column("t", "utf8", "descending"),
        Column("u", "uint64", "ascending"),
        Column("v", "int64"),
    ]
)
LAST: Final = chr(0x10FFFF)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([EqualTo(T, "x")], Range()),
        ([EqualTo(K, 5)], Range((5,), (4,))),
        ([EqualTo(K, -MAX_INT - 1)], Range((-MAX_INT - 1,), (None,))),
        ([EqualTo(K, 5), EqualTo(T, "x")], Range((5, "x"), (5, "w" + 4 * LAST))),
        ([EqualTo(K, 5), EqualTo(T, "x\0")], Range((5, "x\0"), (5, "x"))),
        ([EqualTo(K, 5), EqualTo(T, "")], Range((5, ""), (5, None))),
        ([EqualNullSafe(K, None)], Range()),
        ([GreaterThan(K, 5), LessThan(K, 9)], Range((9,), (4,))),
        ([GreaterThanOrEqual(K, 5)], Range(None, (4,))),
        ([LessThanOrEqual(K, 5)], Range((5,), None)),
        ([In(K, (7, None, 3))], Range((7,), (2,))),
        (
            [EqualTo(K, 1), StringStartsWith(T, "ab")],
            Range((1, "ac"), (1, "aa" + 4 * LAST)),
        ),
        (
            [EqualTo(K, 1), EqualTo(T, "x\0"), LessThan(U, Decimal(7))],
            Range((1, "x\0"), (1, "x\0", 8)),
        ),
    ],
)
def test_a_range_from_filters_over_descending_columns(given: list[Filter], expected: Range) -> None:
    assert key_range_of(DOWN, given) == expected


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("kind", [it for it in VALUES if it != "any"])
def test_no_row_that_is_kept_lies_outside_of_the_range(kind: ColumnType, order: SortOrder) -> None:
    schema = TableSchema.parse([Column(f"c {kind}", kind, order), Column("v", "int64")])
    narrowed = 0
    for condition in conditions(kind):
        keys = key_range_of(schema, [condition])
        narrowed += keys != Range()
        lower = KEY_MIN if keys.lower is None else schema.bound_of(keys.lower)
        upper = KEY_MAX if keys.upper is None else schema.bound_of(keys.upper)
        for value in VALUES[kind]:
            if value == value and meant(condition, value) is True:  # a key has no NaN
                assert lower <= schema.key_of({f"c {kind}": value}) < upper, (condition, value)
    assert narrowed > 10 or kind == "boolean"


def test_an_intersection_of_key_ranges_has_only_the_common_keys() -> None:
    ranges = [Range((1,), (5,)), Range((None,), (4, "x")), Range(), Range((1, "b"), None)]
    assert intersection(KEYS, ranges) == Range((1, "b"), (4, "x"))
    assert intersection(KEYS, []) == Range()
    assert is_empty(KEYS, Range((2,), (2,)))
    assert is_empty(KEYS, Range((2, "x"), (2,)))
    assert is_empty(KEYS, Range(None, ()))
    assert not is_empty(KEYS, Range((2,), (2, "x")))
    assert not is_empty(KEYS, Range((2,), None))
    assert cut(Range((1,), None), [(2,), (3, "x")]) == [
        Range((1,), (2,)),
        Range((2,), (3, "x")),
        Range((3, "x"), None),
    ]
