"""A frame that is written and read is the same frame: every type, with nulls, in any order.

The table is made like the frame. Values are those that are at the edges of their types.
"""

import math
from collections.abc import Iterator
from typing import Any

import pandas
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dodona
from dodona import Rows
from dodona._core.catalog.like import schema_for
from dodona.schema import Column, ColumnType
from dodona_wire.rows.column_kinds import Member
from dodona_wire.rows.logical_types import SQL_PRECISION_MAX, LogicalType, logical_type
from dodona_wire.rows.nested_types import dict_type, leaves_of, list_type, struct_type
from suite import column_values
from suite.levels import examples

PATH = "//t"
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53 + 1, 2**63 - 1, -(2**63)])
VALUES: dict[ColumnType, st.SearchStrategy[Any]] = {
    "int64": NUMBERS,
    "uint64": st.integers(0, 2**64 - 1) | st.sampled_from([2**53 + 1, 2**64 - 1]),
    "double": st.floats(allow_nan=False) | st.sampled_from([-0.0, math.inf, 5e-324]),
    "boolean": st.booleans(),
    "string": st.binary(max_size=20),
    "utf8": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "any": st.recursive(
        st.none() | st.booleans() | NUMBERS | st.text("ab", max_size=3) | st.binary(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner),
        max_leaves=4,
    ).filter(lambda it: it is not None),
    **{name: column_values.values_of(name) for name in column_values.LOGICAL},
    **{name: column_values.values_of(name) for name in column_values.NESTED},
}
KEYS = sorted(VALUES.keys() - {"any", *column_values.NESTED})
LIKE = {
    "any": "string",
    "date": "date32",
    "datetime": "datetime64",
    "timestamp": "timestamp64",
    "interval": "interval64",
    "uuid": "string",
    "json": "utf8",
}
"""The type that Arrow data gives a column, if it is another one."""


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    """Rows with different keys, of one or two key columns and some others."""
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    keys = [Column(f"k{at}", kind, "ascending") for at, kind in enumerate(kinds)]
    others = [
        Column(f"v{at}", kind)
        for at, kind in enumerate(
            draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
        )
    ]
    columns = [*keys, *others]
    row = st.tuples(*(VALUES[it.type] | st.none() for it in columns))
    rows = draw(st.lists(row, max_size=8, unique_by=lambda it: _key(it[: len(keys)])))
    return Rows(columns, rows)


def _key(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """-0.0 and 0.0 are one key; True and 1 are of different types."""
    return tuple((type(it), it) for it in values)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("db")) as client:
        yield client


def through(db: dodona.Client, columns: list[Column], data: Any) -> Rows:
    """What is read of a table with these columns, after the data was written."""
    if db.exists(PATH):
        db.remove_table(PATH)
    db.create_table(PATH, columns, mount=True)
    db.write(PATH, data)
    return db.select(PATH)


def in_order(rows: Rows, count: int) -> list[tuple[Any, ...]]:
    """The rows by key, in which null comes first."""

    def place(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
        return [(it is not None, 0 if it is None else it) for it in row[:count]]

    def text_is_bytes(it: Any) -> Any:
        return it.encode() if isinstance(it, str) else it

    return sorted(
        rows.tuples(), key=lambda row: [(there, text_is_bytes(it)) for there, it in place(row)]
    )


def columns_of(rows: Rows) -> list[Column]:
    return list(rows._columns)


@given(rows=tables())
@settings(max_examples=examples(60), deadline=None)
def test_rows_come_back_from_every_kind_of_data(db: dodona.Client, rows: Rows) -> None:
    columns = columns_of(rows)
    key_count = sum(it.sort_order is not None for it in columns)
    expected = in_order(rows, key_count)
    names = {it.name: [row[it.name] for row in rows] for it in columns}
    shapes = [rows, list(rows), names, rows.to_arrow(), rows.to_pandas()]
    if rows:
        shapes.append(rows.to_pandas().set_index([it.name for it in columns[:key_count]]))
    for data in shapes:
        assert through(db, columns, data).tuples() == expected


@given(rows=tables())
@settings(max_examples=examples(60), deadline=None)
def test_a_frame_comes_back_as_it_was(db: dodona.Client, rows: Rows) -> None:
    columns = columns_of(rows)
    key_count = sum(it.sort_order is not None for it in columns)
    ordered = Rows(columns, in_order(rows, key_count))
    frame = ordered.to_pandas()
    pandas.testing.assert_frame_equal(through(db, columns, frame).to_pandas(), frame)
    table = ordered.to_arrow()
    assert through(db, columns, table).to_arrow().equals(table)


@given(rows=tables())
@settings(max_examples=examples(60), deadline=None)
def test_a_frame_of_polars_comes_back_as_it_was(db: dodona.Client, rows: Rows) -> None:
    testing = pytest.importorskip("polars.testing")
    columns = columns_of(rows)
    parts = [part for it in columns for part in leaves_of(it.logical)]
    assume(all(it.precision <= SQL_PRECISION_MAX for it in parts))
    key_count = sum(it.sort_order is not None for it in columns)
    frame = Rows(columns, in_order(rows, key_count)).to_polars()
    testing.assert_frame_equal(through(db, columns, frame).to_polars(), frame)


@given(rows=tables())
@settings(max_examples=examples(100), deadline=None)
def test_a_table_like_arrow_data_has_the_types_of_the_rows(rows: Rows) -> None:
    """Or wider ones: Arrow's dates have no end, and its bytes may be values of type any."""
    columns = columns_of(rows)
    keys = [it.name for it in columns if it.sort_order is not None]
    found = schema_for(None, rows.to_arrow(), keys).columns
    assert [(it.name, it.sort_order) for it in found] == [
        (it.name, it.sort_order) for it in columns
    ]
    assert [it.type for it in found] == [like(it.logical) for it in columns]


def like(kind: LogicalType) -> str:
    parts = [Member(it.name, logical_type(like(it.kind)), it.is_optional) for it in kind.members]
    match kind.form:
        case "list":
            return list_type(*parts).name
        case "struct":
            return struct_type(parts).name
        case "dict":
            return dict_type(*parts).name
    return LIKE.get(kind.name, kind.name)
