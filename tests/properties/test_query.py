"""SQL over random tables: pushing conditions down changes no result, and the results are right.

Each example is run with its conditions pushed down and with whole tables read, and a condition on
one table also by plain Python, with SQL's three truth values. The same holds if parameters stand
for its constants, by name or in order. A value of a parameter is the same in the query, or refused.
"""

import math
import operator
import re
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, time, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy
import pyarrow
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona._core.protocol.arguments import Parameters
from dodona._core.protocol.limits import QueryLimits
from dodona._core.protocol.steps import Protocol
from dodona._core.reading import query as query_module
from dodona._core.reading.query import Query, Source
from dodona._core.reading.reading import Ranges, range_of
from dodona._core.sql.parameters import checked_parameters
from dodona._core.sql.pushdown import ScanRange
from dodona.errors import InvalidRequest
from dodona.schema import Column, ColumnType, TableSchema
from dodona.types import MAX_TIMESTAMP, Timestamp
from dodona_wire.rows.arrow import arrow_of_tuples
from dodona_wire.rows.columns import SortOrder
from suite.levels import examples

Row = tuple[Any, ...]
Condition = tuple[Any, ...]
Write = Callable[[Any, str], str]
"""Writes a value of a type of column into SQL."""

VALUES: dict[str, list[Any]] = {
    "int64": [-(2**63), -1, 0, 1, 2, 3, 2**63 - 1],
    "uint64": [0, 1, 2, 3, 2**63, 2**64 - 1],
    "double": [-math.inf, -1e300, -0.1, 0.0, 0.1, 1 / 3, 5e-324, 1.7976931348623157e308, math.inf],
    "string": [b"", b"\x00", b"a", b"a\x00", b"'", b"\\x41", b"\xff", b"\xff\x00"],
    "utf8": ["", "a", "a\x7f", "b", "'", "it''s", "é", "\U0010ffff", "x\ny", "c0_0 = 1 AND"],
}
ORDERS: tuple[SortOrder, ...] = ("ascending", "descending")
COMPARISONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def literal(value: Any, column_type: str) -> str:
    """A constant as SQL; text in front of a `string` column is how a user would write it."""
    match column_type:
        case "double":
            return f"'{value!r}'::double"
        case "string":
            escaped = "".join(f"\\x{byte:02X}" for byte in value)
            return f"'{escaped}'::blob" if len(value) % 2 else f"'{escaped}'"
        case "utf8":
            return "'" + str(value).replace("'", "''") + "'"
    return str(value)


class Named:
    """Writes values as `$name`, and keeps them. As in a list of literals, a value of `string` that
    is ASCII may be text. `is_ordered` writes `?` instead."""

    def __init__(self, *, is_ordered: bool) -> None:
        self.values: dict[str, Any] = {}
        self._is_ordered = is_ordered

    def __call__(self, value: Any, column_type: str) -> str:
        number = len(self.values)
        is_text = column_type == "string" and value.isascii() and b"\\" not in value
        self.values[f"p{number}"] = value.decode() if is_text and number % 2 else value
        if column_type == "double" and value == int_of(value) and number % 2:
            self.values[f"p{number}"] = int_of(value)
        return "?" if self._is_ordered else f"$p{number}"

    @property
    def parameters(self) -> Parameters:
        return list(self.values.values()) if self._is_ordered else self.values


def int_of(value: float) -> int | None:
    """The whole number that a small double is."""
    return int(value) if math.isfinite(value) and abs(value) < 2**53 else None


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    types: Sequence[ColumnType] = draw(
        st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=4)
    )
    order = st.sampled_from(ORDERS)
    keys = [Column(f"k{place}", it, draw(order)) for place, it in enumerate(types[:-1])]
    return TableSchema.parse([*keys, Column("v", types[-1])])


def rows_of(schema: TableSchema) -> st.SearchStrategy[list[Row]]:
    values = [st.sampled_from([*VALUES[it.type], None]) for it in schema.columns]
    count = len(schema.key_columns)
    return st.lists(st.tuples(*values), max_size=12, unique_by=lambda row: row[:count])


def conditions_of(schema: TableSchema) -> st.SearchStrategy[Condition]:
    """Nested tuples: (kind, ...), about columns by their place."""

    def atoms(place: int) -> st.SearchStrategy[Condition]:
        value = st.sampled_from(VALUES[schema.columns[place].type])
        at = st.just(place)
        return st.one_of(
            st.tuples(st.sampled_from(sorted(COMPARISONS)), at, value, st.booleans()),
            st.tuples(st.just("between"), at, value, value),
            st.tuples(st.just("in"), at, st.lists(value, min_size=1, max_size=8)),
            st.tuples(st.just("is null"), at),
        )

    leaves = st.integers(0, len(schema.columns) - 1).flatmap(atoms)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.just("and"), inner, inner),
            st.tuples(st.just("and"), inner, inner),
            st.tuples(st.just("or"), inner, inner),
            st.tuples(st.just("not"), inner),
        ),
        max_leaves=6,
    )


def sql_of(condition: Condition, schema: TableSchema, alias: str, write: Write = literal) -> str:
    kind = condition[0]
    if kind in ("and", "or"):
        return f" {kind} ".join(f"({sql_of(it, schema, alias, write)})" for it in condition[1:])
    if kind == "not":
        return f"not ({sql_of(condition[1], schema, alias, write)})"
    column = schema.columns[condition[1]]
    name = f"{alias}.{column.name}"
    if kind == "is null":
        return f"{name} is null"
    if kind == "in":
        return f"{name} in ({', '.join(write(it, column.type) for it in condition[2])})"
    if kind == "between":
        low, high = [write(it, column.type) for it in condition[2:]]
        return f"{name} between {low} and {high}"
    value = write(condition[2], column.type)
    if condition[3]:
        mirrored = str(kind).translate(str.maketrans("<>", "><"))
        return f"{value} {mirrored} {name}"
    return f"{name} {kind} {value}"


def truth(condition: Condition, row: Row) -> bool | None:
    kind = condition[0]
    if kind == "not":
        inner = truth(condition[1], row)
        return None if inner is None else not inner
    if kind in ("and", "or"):
        parts = [truth(it, row) for it in condition[1:]]
        decisive = bool(kind == "or")
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    value = row[condition[1]]
    if kind == "is null":
        return value is None
    if value is None:
        return None
    if kind == "in":
        return bool(value in condition[2])
    if kind == "between":
        return bool(condition[2] <= value <= condition[3])
    other = condition[2]
    return bool(COMPARISONS[kind](value, other))


class Tables:
    """Tables of rows in memory, read as tablets are: by encoded keys."""

    def __init__(self, tables: dict[str, tuple[TableSchema, list[Row]]]) -> None:
        self._tables = tables
        self.wanted: list[ScanRange | None] = []
        """What the last query read."""

    def read(
        self, path: str, ranges: Ranges, columns: Sequence[str], timestamp: Timestamp
    ) -> Protocol[pyarrow.Table]:
        assert timestamp == MAX_TIMESTAMP
        schema, rows = self._tables[path]
        ends = [range_of(schema, *it) for it in ranges]
        assert all(before[1] <= after[0] for before, after in pairwise(ends)), "they are apart"
        count = len(schema.key_columns)
        keyed = sorted((schema.bound_of(row[:count]), row) for row in rows)
        inside = [row for first, end in ends for key, row in keyed if first <= key < end]
        return arrow_of_tuples(schema.columns, inside).select(list(columns))
        yield

    def ask(
        self, text: str, *, is_pushed: bool, parameters: Parameters | None = None
    ) -> list[dict[str, Any]]:
        limits = QueryLimits(threads_max=1)
        sources = [
            Source(path, schema, MAX_TIMESTAMP) for path, (schema, _) in self._tables.items()
        ]
        given = checked_parameters(parameters, limits)
        query = Query(text, sources, limits, parameters=given)
        if is_pushed:
            query.plan()
        else:
            with patch.object(query_module, "scan_ranges", whole):
                query.plan()
        self.wanted = [it.wanted for it in sources]
        try:
            next(query.fetch(self.read))
        except StopIteration:
            rows: list[dict[str, Any]] = query.answer().to_pylist()
            return rows
        raise AssertionError("nothing here takes a step")


def whole(plan: object, schemas: Sequence[TableSchema], parse: object) -> list[ScanRange]:
    return [ScanRange(tuple([it.name for it in schema.columns])) for schema in schemas]


@given(st.data())
@settings(max_examples=examples(30), deadline=None)
def test_a_condition_finds_exactly_the_matching_rows_pushed_down_or_not(
    data: st.DataObject,
) -> None:
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema))
    condition = data.draw(conditions_of(schema))
    tables = Tables({"//t": (schema, rows)})
    text = f'select * from "//t" t where {sql_of(condition, schema, "t")}'
    found = [tuple(row.values()) for row in tables.ask(text, is_pushed=True)]
    expected = [row for row in rows if truth(condition, row)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert found == [tuple(row.values()) for row in tables.ask(text, is_pushed=False)]


SHAPES = (
    'select a.k0, b.v as w from "//a" a join "//b" b on a.v is not distinct from b.v where {a}',
    'select a.*, b.v as w from "//a" a left join "//b" b on a.k0 = b.k0 and {b} where {a}',
    'select a.k0, b.v as w from "//a" a full join "//b" b on a.k0 = b.k0 and {b} where {a}',
    'select a.k0, b.k0 as k from "//a" a right join "//a" b on a.v = b.v where {a} or b.v is null',
    'select count(*) as n, max(a.v) as v from "//a" a where {a} group by a.k0',
    'with a as (select * from "//a" a where {a}) select k0 from a union all select k0 from a',
    'select * from "//a" a where {a} and exists (from "//b" b where {b} and b.k0 = a.k0)',
    'select * from "//a" a where {a} and a.k0 not in (select k0 from "//b" b where {b})',
    'select k0, row_number() over (order by k0) as n from "//a" a where {a} qualify n < 5',
    'select * from (select * from "//a" order by all limit 5) a where {a}',
    'select a.k0, (select count(*) from "//b" b where {b} and b.k0 = a.k0) as n from "//a" a',
    'select k0 from "//a" a where {a} except select k0 from "//b" b where {b}',
    'select a.k0, a.v from "//a" a anti join "//b" b on a.k0 = b.k0 and {b} where {a}',
)


@given(st.data())
@settings(max_examples=examples(30), deadline=None)
def test_pushdown_changes_no_result_for_any_shape_of_query(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    tables = Tables({path: (schema, data.draw(rows_of(schema))) for path in ("//a", "//b")})
    conditions = {
        alias: f"({sql_of(data.draw(conditions_of(schema)), schema, alias)})" for alias in "ab"
    }
    text = data.draw(st.sampled_from(SHAPES)).format(**conditions)
    pushed, plain = [tables.ask(text, is_pushed=it) for it in (True, False)]
    assert sorted(map(repr, pushed)) == sorted(map(repr, plain))


@given(st.data())
@settings(max_examples=examples(30), deadline=None)
def test_a_parameter_finds_and_reads_what_a_literal_does(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    tables = Tables({"//t": (schema, data.draw(rows_of(schema)))})
    condition = data.draw(conditions_of(schema))
    write = Named(is_ordered=data.draw(st.booleans()))
    text = 'select * from "//t" t where '
    found = tables.ask(
        text + sql_of(condition, schema, "t", write), is_pushed=True, parameters=write.parameters
    )
    wanted = tables.wanted
    assert found == tables.ask(text + sql_of(condition, schema, "t"), is_pushed=True)
    assert wanted == tables.wanted


@given(st.data())
@settings(max_examples=examples(30), deadline=None)
def test_a_list_as_a_parameter_finds_and_reads_what_a_list_of_literals_does(
    data: st.DataObject,
) -> None:
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema))
    tables = Tables({"//t": (schema, rows)})
    column = schema.columns[0]
    values = data.draw(st.lists(st.sampled_from(VALUES[column.type]), min_size=1, max_size=8))
    text = f'select * from "//t" t where {column.name} in '
    found = tables.ask(f"{text}$list", is_pushed=True, parameters={"list": values})
    wanted = tables.wanted
    listed = ", ".join(literal(it, column.type) for it in values)
    assert found == tables.ask(f"{text}({listed})", is_pushed=True)
    assert wanted == tables.wanted
    assert len(found) == sum(row[0] in values for row in rows)
    for other in (f"{text[:-3]} = any($list)", f"{text}(select unnest($list))"):
        again = tables.ask(other, is_pushed=True, parameters={"list": values})
        assert sorted(map(repr, again)) == sorted(map(repr, found))


@given(st.data())
@settings(max_examples=examples(30), deadline=None)
def test_parameters_change_no_result_for_any_shape_of_query(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    tables = Tables({path: (schema, data.draw(rows_of(schema))) for path in ("//a", "//b")})
    drawn = {alias: data.draw(conditions_of(schema)) for alias in "ab"}
    shape = data.draw(
        st.sampled_from([it for it in SHAPES if not {"anti", "union"} & {*it.split()}])
    )
    write = Named(is_ordered=False)
    named, plain = [
        shape.format(
            **{alias: f"({sql_of(it, schema, alias, how)})" for alias, it in drawn.items()}
        )
        for how in (write, literal)
    ]
    used = {name: write.values[name] for name in re.findall(r"\$(p\d+)", named)}
    found = tables.ask(named, is_pushed=True, parameters=used)
    wanted = tables.wanted
    expected = tables.ask(plain, is_pushed=True)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert wanted == tables.wanted


OFFSETS = st.timedeltas(timedelta(hours=-24), timedelta(hours=24)).filter(
    lambda it: abs(it) < timedelta(hours=24)
)
ZONES = st.one_of(
    st.none(),
    st.just(UTC),
    st.integers(-23, 23).map(lambda it: timezone(timedelta(hours=it))),
    OFFSETS.map(timezone),
)
DECIMALS = st.builds(
    lambda sign, digits, exponent: Decimal((sign, digits, exponent)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=40).map(tuple),
    st.integers(-40, 5),
)
BITS = st.integers(-(2**63), 2**63 - 1)
GIVEN: tuple[st.SearchStrategy[Any], ...] = (
    st.booleans(),
    st.integers(-(2**63) - 1, 2**64),
    st.integers(-(2**63), 2**64 - 1) | st.floats(),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(timezones=ZONES),
    st.times(timezones=ZONES),
    st.timedeltas(),
    DECIMALS,
    st.uuids(),
    st.floats(width=32).map(numpy.float32) | st.floats(width=16).map(numpy.float16),
    BITS.map(numpy.int64) | st.integers(0, 2**64 - 1).map(numpy.uint64),
    st.text().map(numpy.str_) | st.binary().map(numpy.bytes_),
    st.builds(numpy.timedelta64, BITS, st.sampled_from(("ns", "us", "s", "D", "M"))),
    st.builds(numpy.datetime64, BITS, st.sampled_from(("ns", "us", "s", "D", "M"))),
)
"""Values by kind. A list mostly has one kind."""


REFUSED = object()


def accepted(value: Any) -> Any:
    """Return what the query gets as the value of the parameter x, or REFUSED."""
    try:
        return checked_parameters({"x": value}, QueryLimits())["x"]
    except InvalidRequest as error:
        if not error.message.startswith("Parameter x"):
            raise
        return REFUSED


def returned(value: Any, given: Any) -> Any:
    """Return a value of a result in the type of the checked parameter. Arrow has no such type for
    some."""
    match given:
        case uuid.UUID():
            return uuid.UUID(str(value))
        case time() if given.tzinfo is not None:
            return time.fromisoformat(value)
    return value


def is_same(found: Any, given: Any) -> bool:
    if type(given) in (numpy.timedelta64, numpy.datetime64):
        is_null = bool(numpy.isnat(given))
        return found is None if is_null else bool(type(given)(found) == given)
    number = given.item() if isinstance(given, numpy.number) else given
    return bool(found == number) or (found != found and number != number)


@given(
    st.sampled_from(GIVEN).flatmap(lambda it: it | st.lists(it | st.none(), max_size=4))
    | st.lists(st.one_of(*GIVEN), max_size=3)
)
@settings(max_examples=examples(200), deadline=None)
def test_a_value_of_a_parameter_is_the_same_in_the_query_or_refused(value: Any) -> None:
    checked = accepted(value)
    if checked is REFUSED:
        return
    is_list = isinstance(value, list)
    text = "select unnest($x) as x" if is_list else "select $x as x"
    rows = Tables({}).ask(text, is_pushed=True, parameters={"x": value})
    values, plain = (value, checked) if is_list else ([value], [checked])
    found = [returned(row["x"], it) for row, it in zip(rows, plain, strict=True)]
    assert all(is_same(it, given) for it, given in zip(found, values, strict=True)), found
