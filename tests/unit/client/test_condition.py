"""SQL conditions over the rows of one table: what they need, and what they keep."""

import math
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dodona._core.reading.condition import TEXT_LENGTH_MAX, Filter, plan
from dodona._core.sql.pushdown import ScanRange
from dodona.errors import InvalidRequest, LimitExceeded
from dodona.schema import Column, TableSchema
from dodona_wire.rows.arrow import arrow_schema

SCHEMA = TableSchema.parse(
    [
        Column("k", "int64", "ascending"),
        Column("t", "utf8", "ascending"),
        Column("v", "double"),
        Column("u", "uint64"),
        Column("s", "string"),
        Column("a", "any"),
        Column("b", "boolean"),
        Column('odd "name', "int64"),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"k": 1, "t": "a", "v": 0.5, "u": 1 << 63, "s": b"\x00\xff", "b": True, 'odd "name': 1},
    {"k": 2, "t": "b", "v": None, "u": 0, "s": b"x", "b": False, 'odd "name': None},
    {"k": 3, "t": "c", "v": math.nan, "u": None, "s": None, "b": None, 'odd "name': 3},
    {"k": None, "t": None, "v": -1.0, "u": 5, "s": b"", "b": True, 'odd "name': 4},
]
for row in ROWS:
    row["a"] = None if row["k"] is None else msgspec.msgpack.encode({"x": row["k"]})
TABLE = pa.Table.from_pylist(ROWS, arrow_schema(SCHEMA))


def kept(condition: str, table: Any = TABLE) -> list[int]:
    """The places of the rows that a condition keeps."""
    wanted = plan(SCHEMA, condition)
    keep = Filter(SCHEMA, condition, wanted.columns)
    found = keep(table.append_column("place", pa.array(range(table.num_rows))))
    assert found.drop_columns("place").schema == table.schema
    places: list[int] = found.column("place").to_pylist()
    return places


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("k > 1", [1, 2]),
        ("not k > 1", [0]),
        ("k is null", [3]),
        ("true", [0, 1, 2, 3]),
        ("null", []),
        ("k", [0, 1, 2]),
        ("v > 100", [2]),
        ("u >= 9223372036854775808", [0]),
        ("s = '\\x00\\xFF'::blob", [0]),
        ("t like 'b%' or b", [0, 1, 3]),
        ("a->>'x' = '3'", [2]),
        ('"odd ""name" = 4', [3]),
        ("K = 1 -- and not t = 'a'", [0]),
        ("k = 1 /* a comment */", [0]),
        ("rows.k = 1", [0]),
    ],
)
def test_a_condition_keeps_the_rows_that_match(condition: str, expected: list[int]) -> None:
    assert kept(condition) == expected


def test_the_order_stays_and_pages_follow_one_another() -> None:
    count = 300_000
    table = pa.table({"k": range(count)})
    keep = Filter(SCHEMA, "k % 3 = 1", ("k",))
    for _ in range(3):
        assert keep(table).column("k").to_pylist() == list(range(1, count, 3))
    assert keep(table.slice(0, 0)).num_rows == 0
    assert keep(pa.concat_tables([table.slice(0, 5), table.slice(7, 1)]))["k"].to_pylist() == [
        *(1, 4, 7)
    ]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("k > 5 and k <= 9", ScanRange(("k",), (5,), (10,))),
        ("k = 3 and t = 'x' and v > 0", ScanRange(("k", "t", "v"), (3, "x"), (3, "x\x00"))),
        ("k between 1 and 2 or k = 7", ScanRange(("k",), (1,), (8,))),
        ("v > 5", ScanRange(("v",))),
        ("k > 5 and k < 3", ScanRange(("k",), (), ())),
        ("false", ScanRange(("k",), (), ())),
    ],
)
def test_a_condition_limits_the_columns_and_keys_that_are_read(
    condition: str, expected: ScanRange
) -> None:
    assert plan(SCHEMA, condition) == expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "a filter is one condition"),
        ("k >", "syntax error"),
        ("k > 1; select 2", "syntax error"),
        ("absent > 1", 'column "absent" not found'),
        ("count(*) > 1", "cannot contain aggregates"),
        ("row_number() over () > 1", "cannot contain window functions"),
        ("k = (select max(k) from rows)", "without subqueries"),
        ("exists (select 1)", "without subqueries"),
        ("columns(*) > 1", r"without subqueries and \*"),
        ("1) limit (1", "syntax error"),
        ("1) order by (k", "syntax error"),
        ("1) from rows where (true", "syntax error"),
        ("k = read_text('x')", "function"),
    ],
)
def test_an_invalid_condition_is_refused_with_the_reason(condition: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        plan(SCHEMA, condition)


def test_a_condition_is_not_endless() -> None:
    with pytest.raises(LimitExceeded):
        plan(SCHEMA, "k > 1" + " " * TEXT_LENGTH_MAX)


def test_a_condition_that_cannot_be_computed_raises_an_error() -> None:
    with pytest.raises(InvalidRequest, match="Division by zero"):
        kept("10 // (k - 1) > 0")
    with pytest.raises(InvalidRequest, match="Could not convert"):
        kept("k > 'one'")


def test_columns_of_another_type_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="column 'k' is double, not int64"):
        Filter(SCHEMA, "k > 1", ("k",))(pa.table({"k": [1.5]}))
