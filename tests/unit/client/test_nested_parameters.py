"""Parameters of queries that are dicts and nested lists: what DuckDB gets, and what is refused.

Owns: that a nested value is in a query exactly what the caller passed. test_query_parameters.py has
single values and plain lists.
"""

import math
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona
import dodona.aio
from dodona import json_of_any
from dodona._core.protocol.limits import QueryLimits
from dodona._core.sql.engine import Engine
from dodona._core.sql.parameters import bound_parameters, checked_parameters
from dodona.errors import InvalidRequest, LimitExceeded, SchemaViolation
from suite.levels import examples

LIMITS = QueryLimits()
EAST = timezone(timedelta(hours=2))
KEY = {"name": "id", "type": "int64", "sort_order": "ascending"}
SCHEMA = [
    KEY,
    {"name": "price", "type": "struct<amount:decimal(10,2),cur:utf8,day:optional<date>>"},
    {"name": "stock", "type": "dict<utf8,uint32>"},
    {"name": "shelf", "type": "dict<int64,list<double>>"},
    {"name": "tags", "type": "list<struct<raw:string,n:optional<int64>>>"},
    {"name": "doc", "type": "any"},
]
HARD = "x' or id = 3 --"
FIRST: dict[str, Any] = {
    "id": 1,
    "price": {"amount": Decimal("1.50"), "cur": HARD, "day": date(2024, 2, 29)},
    "stock": {"Oslo": 3, "Rome'": 2**32 - 1},
    "shelf": {-(2**63): [0.5, float("nan")], 7: []},
    "tags": [{"raw": b"\xff\0'", "n": 2**63 - 1}, {"raw": b"", "n": None}],
    "doc": {"a": [1.0, float("nan"), float("-inf")], "b": {"$base64": b"\xff\0"}, "c": 2**64 - 1},
}
SECOND: dict[str, Any] = {
    "id": 2,
    "price": {"amount": Decimal("2.00"), "cur": "eur", "day": None},
    "stock": {},
    "shelf": {},
    "tags": [],
    "doc": [None, True, "é", -(2**63), {"x": {}}],
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(str(tmp_path_factory.mktemp("nested") / "data")) as db:
        db.create_table("//t", SCHEMA, mount=True)
        db.insert_rows("//t", [FIRST, SECOND, {"id": 3, "price": None}])
        yield db


def computed(text: str, value: Any) -> Any:
    """The value of an expression over `$value`, in an engine without tables."""
    engine = Engine(LIMITS)
    names = engine.check(f"select {text} as found")
    values = bound_parameters(names, checked_parameters({"value": value}, LIMITS))
    (row,) = engine.run(f"select {text} as found", values).to_pylist()
    return row["found"]


def ids(db: dodona.Client, where: str, **values: Any) -> list[int]:
    found = db.query(f"select id from [//t] where {where} order by id", values)
    numbers: list[int] = found["id"].to_pylist()
    return numbers


# ---- they meet columns


@pytest.mark.parametrize("column", ["price", "stock", "shelf", "tags"])
@pytest.mark.parametrize("row", [FIRST, SECOND], ids=["first", "second"])
def test_a_value_of_a_nested_column_is_equal_to_the_column(
    db: dodona.Client, column: str, row: dict[str, Any]
) -> None:
    (read,) = db.lookup_rows("//t", [{"id": row["id"]}])
    for value in (row[column], read[column]):
        assert ids(db, f"{column} = $value", value=value) == [row["id"]]
        assert ids(db, f"{column} in ($value, null)", value=value) == [row["id"]]


@pytest.mark.parametrize("row", [FIRST, SECOND], ids=["first", "second"])
def test_a_value_of_any_is_equal_as_its_json_text(db: dodona.Client, row: dict[str, Any]) -> None:
    (read,) = db.lookup_rows("//t", [{"id": row["id"]}])
    for value in (row["doc"], read["doc"]):
        assert ids(db, "doc = $text", text=json_of_any(value)) == [row["id"]]
    assert ids(db, "doc = $text", text=json_of_any(5)) == []


def test_a_json_text_is_that_of_a_value_that_the_column_could_have() -> None:
    assert json_of_any({"a": [1, 1.0, b"\xff", None]}) == '{"a":[1,1.0,{"$base64":"/w=="},null]}'
    with pytest.raises(SchemaViolation):
        json_of_any(2**64)
    with pytest.raises(SchemaViolation):
        json_of_any({1: 2})


def test_parts_of_a_parameter_are_used_and_bound_a_range(db: dodona.Client) -> None:
    assert ids(db, "id = $of.id", of={"id": 2, "note": HARD}) == [2]
    assert ids(db, "id in $of.ids", of={"ids": [2, 3]}) == [2, 3]
    assert ids(db, "id = $of[5]", of={5: 3}) == [3]
    assert ids(db, "id between $of[1][1] and $of[1][2]", of=[[2, 3]]) == [2, 3]
    assert ids(db, "stock['Oslo'] = $of['Oslo']", of={"Oslo": 3}) == [1]


def test_rows_of_a_parameter_join_a_table(db: dodona.Client) -> None:
    rows = [{"id": 2, "more": "b"}, {"id": 1, "more": HARD}, {"id": 9, "more": None}]
    text = """select t.id, more from [//t] t
        join (select unnest($rows, recursive := true)) given on given.id = t.id order by t.id"""
    found = db.query(text, {"rows": rows}).to_pylist()
    assert found == [{"id": 1, "more": HARD}, {"id": 2, "more": "b"}]


@pytest.mark.anyio
async def test_the_asyncio_api_and_transactions_take_nested_values(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    value = {"a": [{"b": 2**64 - 1}], "c": b"\xff"}
    async with await dodona.aio.open(tmp_path_factory.mktemp("nested") / "data") as db:
        assert (await db.query("select $x as x", {"x": value})).to_pylist() == [{"x": value}]
        async with db.begin() as tx:
            assert (await tx.query("select ? as x", [value])).to_pylist() == [{"x": value}]


# ---- they stay as they are


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        ({"a": 1, "b": "x"}, "STRUCT(a INTEGER, b VARCHAR)", {"a": 1, "b": "x"}),
        (OrderedDict(a=None), 'STRUCT(a "NULL")', {"a": None}),
        ({}, 'MAP("NULL", "NULL")', []),
        ({2**64 - 1: b"\xff"}, "MAP(UBIGINT, BLOB)", [(2**64 - 1, b"\xff")]),
        ({b"\0": {"a": 1}}, "MAP(BLOB, STRUCT(a INTEGER))", [(b"\0", {"a": 1})]),
        ([{1: 2.5}, {}], "MAP(INTEGER, DOUBLE)[]", [[(1, 2.5)], []]),
        ({1: 2, 2: 2.5}, "MAP(INTEGER, DOUBLE)", [(1, 2.0), (2, 2.5)]),
        ([[1], [], None, [2.5]], "DOUBLE[][]", [[1.0], [], None, [2.5]]),
        ([{"a": 1}, None, {"a": 2.5}], "STRUCT(a DOUBLE)[]", [{"a": 1.0}, None, {"a": 2.5}]),
        ([{"a": 1, "b": 2}, {"b": 3, "a": 4}], None, [{"a": 1, "b": 2}, {"a": 4, "b": 3}]),
        ({'x "y"': {"ключ": True}}, 'STRUCT("x ""y""" STRUCT("ключ" BOOLEAN))', None),
        ({"key": 1, "value": [2]}, 'STRUCT("key" INTEGER, "value" INTEGER[])', None),
        (
            {"at": datetime(2024, 1, 1, 2, tzinfo=EAST)},
            None,
            {"at": datetime(2024, 1, 1, tzinfo=UTC)},
        ),
        ({"d": [Decimal("1.5"), Decimal("10.25")]}, "STRUCT(d DECIMAL(4,2)[])", None),
        ([{"d": Decimal("1.5")}, {"d": Decimal("10.25")}], "STRUCT(d DECIMAL(4,2))[]", None),
        ({"u": uuid.UUID(int=5)}, "STRUCT(u UUID)", {"u": str(uuid.UUID(int=5))}),
        ({numpy.int64(5): numpy.array([1, 2])}, "MAP(INTEGER, INTEGER[])", [(5, [1, 2])]),
        ({numpy.str_("a"): numpy.float64(1)}, "STRUCT(a DOUBLE)", {"a": 1.0}),
    ],
)
def test_each_value_has_a_type_of_duckdb(value: Any, kind: str | None, found: Any) -> None:
    assert computed("$value", value) == (value if found is None else found)
    if kind is not None:
        assert computed("typeof($value)", value) == kind


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)
LEAVES = (
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=6),
    st.binary(max_size=6),
)
"""By kind, values of which all are of one type."""


def values_of_one_type(depth: int) -> st.SearchStrategy[st.SearchStrategy[Any]]:
    """Strategies, each for values of one type of DuckDB."""
    if not depth:
        return st.sampled_from(LEAVES)
    below = values_of_one_type(depth - 1)
    return st.one_of(
        st.sampled_from(LEAVES),
        below.map(lambda it: st.lists(it, max_size=3)),
        st.dictionaries(NAMES, below, min_size=1, max_size=3)
        .filter(_differ)
        .map(st.fixed_dictionaries),
        below.map(lambda it: st.dictionaries(st.integers(-(2**63), 2**63 - 1), it, max_size=2)),
        below.map(lambda it: st.dictionaries(st.binary(max_size=3), it, max_size=2)),
    )


def _differ(names: dict[str, Any]) -> bool:
    return len({it.lower() for it in names}) == len(names) and names.keys() != {"key", "value"}


def as_arrow_shows(value: Any) -> Any:
    """The value in the form of Arrow's `to_pylist`, whose MAPs are lists of pairs. A pair is a
    list, and NaN is equal to itself."""
    if isinstance(value, list | tuple):
        return [as_arrow_shows(it) for it in value]
    if isinstance(value, dict):
        shown = {name: as_arrow_shows(it) for name, it in value.items()}
        is_struct = shown and all(isinstance(it, str) for it in shown)
        return shown if is_struct else [[*it] for it in shown.items()]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@given(values_of_one_type(3).flatmap(lambda it: st.lists(it, min_size=1, max_size=3)))
@settings(max_examples=examples(150), deadline=None)
def test_nested_values_pass_through_a_query_unchanged(values: list[Any]) -> None:
    assert as_arrow_shows(computed("$value", values)) == as_arrow_shows(values)


# ---- refusals


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": object()}, r"Parameter value\.a is None, a bool"),
        ([[1], [object()]], r"Parameter value\[1\]\[0\] is None, a bool"),
        ({"x y": {1: [2**64]}}, r"Parameter value\.'x y'\.1\[0\] is 18446744073709551616"),
        ({2**64: 1}, "A key of parameter value is 18446744073709551616"),
        ([[1], ["x"]], r"Parameter value\[…\] has values of the types int and str"),
        ([{"a": 1}, {"a": "x"}], r"Parameter value\[…\]\.a has values of the types int and str"),
        ([1, {"a": 1}], "types STRUCT and int"),
        ([{"a": 1}, {}], "types MAP and STRUCT"),
        ({1: 1, 2: "x"}, r"Parameter value\.values\(\) has values of the types int and str"),
        ([{"a": 1}, {"b": 1}], r"dicts with different fields: \['a'\] and \['b'\]"),
        ([{"a": 0.5}, {"a": 2**53 + 1}], r"value\[…\]\.a has floats and the int"),
        ({1: 1, "a": 2}, "Parameter value has keys of the types int and str"),
        ({None: 1}, "keys of the types NoneType"),
        ({True: 1}, "keys of the types bool"),
        ({"a": {date(2024, 1, 1): 1}}, r"Parameter value\.a has keys of the types date"),
        ({"A": 1, "a": 2}, "fields 'A' and 'a', which are the same in SQL"),
        ({"": 1}, "Parameter value has the field ''"),
        ({"a\0b": 1}, "no zeros"),
        ({"a" * 257: 1}, "1 to 256 characters"),
        ({"\ud800": 1}, "A key of parameter value is not Unicode text"),
        ({"a": {"key": [1], "value": [2]}}, r"value\.a has the fields key and value, and DuckDB"),
        ({"key": {"x": 1}, "value": {"y": 2}}, "fields key and value"),
        ({"key": None, "value": "x"}, "fields key and value"),
        ([{"key": "ab", "value": "cd"}], "fields key and value"),
        ({"key": b"ab", "value": [1, 2]}, "fields key and value"),
        ({"key": None, "value": [2]}, "Parameter value has the fields key and value"),
        ([{"a": Decimal("1" * 30)}, {"a": Decimal(f"0.{'1' * 20}")}], "a DECIMAL of 50 digits"),
        ([{"a": datetime(2024, 1, 1, tzinfo=EAST)}, {"a": date(2024, 1, 1)}], "types date and"),
    ],
)
def test_a_value_that_duckdb_would_change_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        checked_parameters({"value": value}, LIMITS)


def test_values_are_nested_at_most_sixteen_deep() -> None:
    lists: Any = 1
    dicts: Any = 1
    for _ in range(16):
        lists, dicts = [lists], {"a": dicts}
    assert computed("$value", lists) == lists
    assert computed("$value", dicts) == dicts
    cycle: list[Any] = []
    cycle.append(cycle)
    for value in ([lists], {"a": dicts}, {1: lists}, cycle):
        with pytest.raises(LimitExceeded, match=r"Parameter value.* is nested deeper than 16"):
            checked_parameters({"value": value}, LIMITS)


@pytest.mark.parametrize(
    "value",
    [
        [[]] * 200_000,
        [{}] * 200_000,
        {f"{it:09}": None for it in range(70_000)},
        dict.fromkeys(range(70_000)),
    ],
    ids=["lists", "dicts", "names", "keys"],
)
def test_every_part_counts_for_the_limit(value: Any) -> None:
    with pytest.raises(LimitExceeded, match="have at most 1048576 bytes together"):
        checked_parameters({"value": value}, LIMITS)


def test_a_parameter_that_meets_another_type_is_named(db: dodona.Client) -> None:
    for where in ("id = $of", "doc = $of"):
        with pytest.raises(InvalidRequest, match=r"a STRUCT or a MAP: \$of\. .*json_of_any"):
            ids(db, where, of={"a": {"b": HARD}})
    with pytest.raises(InvalidRequest, match="The parameter of is the dict") as error:
        ids(db, "stock = $of", of={"a": {"b": HARD}})
    assert error.value.attributes == {"parameter": "of"}
