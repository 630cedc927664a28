"""Types of SQL that Arrow lacks, or that DuckDB would change on the way to Arrow."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dodona
from dodona._core.protocol.limits import QueryLimits
from dodona._core.sql.engine import Engine
from dodona.errors import InvalidRequest

pytest.importorskip("duckdb")

DAY = timedelta(1)
LONGEST = timedelta(49_672, 86_399, 999_999)
DURATION = pa.duration("us")


def result_of(expression: str) -> Any:
    """The only column of a query."""
    table = Engine(QueryLimits()).run(f'select {expression} as "it\'s"')
    table.validate(full=True)
    return table.column(0)


@pytest.mark.parametrize(
    ("expression", "kind", "value"),
    [
        ("interval '1 day'", DURATION, DAY),
        ("null::interval", DURATION, None),
        ("interval '1 hour' * 3000000", DURATION, timedelta(hours=3_000_000)),
        ("interval '-100000000 days'", DURATION, timedelta(-100_000_000)),
        ("interval '-1 microsecond'", DURATION, timedelta(microseconds=-1)),
        ("interval '1 year' - interval '12 months'", DURATION, timedelta(0)),
        ("timestamp '2020-01-03' - timestamp '2020-01-01'", DURATION, 2 * DAY),
        ("[interval '1 day', null]", None, [DAY, None]),
        ("[[interval '1 day'], null, []]", None, [[DAY], None, []]),
        ("array_value(interval '1 day')", None, [DAY]),
        ("{'a b': [interval '1 day'], 'c''s': 1}", None, {"a b": [DAY], "c's": 1}),
        ("null::struct(a interval)", None, None),
        ("row(interval '1 day', 1)", None, {"element1": DAY, "element2": 1}),
        ("map {'x': interval '1 day'}", None, [("x", DAY)]),
        ("map {interval '1 day': [interval '2 days']}", None, [(DAY, [2 * DAY])]),
        ("null::map(varchar, interval)", None, None),
        (f"{10**38 - 1}::uhugeint", pa.decimal128(38), Decimal(10**38 - 1)),
        ("[1::uhugeint]", None, [Decimal(1)]),
        ("'101'::bit", pa.string(), "101"),
        ("[123::bignum]", None, ["123"]),
        ("'12:00:00+01'::timetz", pa.string(), "12:00:00+01"),
    ],
)
def test_a_value_of_sql_is_the_same_value_of_arrow(expression: str, kind: Any, value: Any) -> None:
    found = result_of(expression)
    assert found.to_pylist() == [value]
    assert kind is None or found.type == kind


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("interval '1 month'", "has an interval with months"),
        ("interval '-1 year'", "has an interval with months"),
        ("[interval '400 years']", "has an interval with months"),
        ("map {'x': interval '1 month'}", "has an interval with months"),
        ("interval '200000000 days'", "Could not convert Day to Microseconds"),
        (f"{(1 << 128) - 1}::uhugeint", "Could not cast value"),
        ("union_value(a := interval '1 day')", "no form in Arrow with the same values"),
        ("['12:00:00+01'::timetz]", "whose offsets would be lost. Cast the column to text"),
    ],
)
def test_a_value_that_arrow_lacks_is_refused_and_its_text_is_not(
    expression: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        result_of(expression)
    assert "it's" in caught.value.message or "Day" in caught.value.message
    assert result_of(f"({expression})::varchar").type == pa.string()


# Dates and times

LAST_US = "23:59:59.999999"


@pytest.mark.parametrize(
    "expression",
    [
        "'infinity'::date",
        "'-infinity'::date",
        "date '10000-01-01'",
        "date '0001-01-01' - 1",
        *[
            f"'{sign}infinity'::{kind}"
            for sign in ("", "-")
            for kind in ("timestamp", "timestamptz")
        ],
        *[f"'{sign}infinity'::timestamp_{it}" for sign in ("", "-") for it in ("s", "ms", "ns")],
        "timestamp '10000-01-01'",
        "timestamp '0001-01-01' - interval '1 microsecond'",
        "'24:00:00'::time",
        "'24:00:00'::time_ns",
        "[null, 'infinity'::date]",
        "array_value('infinity'::date)",
        "{'a': {'b': 'infinity'::timestamp}}",
        "map {'a': '24:00:00'::time}",
        "map {'infinity'::date: 1}",
        "union_value(a := 'infinity'::date)",
    ],
)
def test_a_time_that_python_lacks_is_refused_with_its_column_and_row(expression: str) -> None:
    text = f"select if(r = 5, {expression}, null) as t, r from range(9) n(r) order by r"
    with pytest.raises(InvalidRequest, match=r"Column 't' has .*Cast it to text") as caught:
        Engine(QueryLimits(rows_per_batch=3)).run(text)
    assert caught.value.attributes == {"column": "t", "row_index": 5}
    assert result_of(f"({expression})::varchar").type == pa.string()


@pytest.mark.parametrize(
    "expression",
    [
        "date '0001-01-01'",
        "date '9999-12-31'",
        "timestamp '0001-01-01'",
        f"timestamp '9999-12-31 {LAST_US}'",
        "timestamptz '0001-01-01 00:00:00+00'",
        f"timestamptz '9999-12-31 {LAST_US}+00'",
        "timestamp_ns '1677-09-22 00:00:00'",
        "timestamp_ns '2262-04-11 23:47:16.854775806'",
        "timestamp_s '9999-12-31 23:59:59'",
        "time '00:00:00'",
        f"time '{LAST_US}'",
        "[{'a': date '9999-12-31'}]",
    ],
)
def test_times_at_the_ends_of_their_ranges_are_returned(expression: str) -> None:
    found = result_of(expression).to_pylist()
    assert len(found) == 1
    assert found[0] is not None


def test_a_time_that_python_lacks_is_refused_only_in_the_result() -> None:
    assert result_of("date '2020-01-01' < 'infinity'::date").to_pylist() == [True]


# Tables


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path / "db") as client:
        client.create_table(
            "//t",
            mount=True,
            schema=[
                {"name": "k", "type": "interval", "sort_order": "ascending"},
                {"name": "l", "type": "list<interval>"},
                {"name": "s", "type": 'struct<a:optional<interval>,"b c":int8>'},
                {"name": "d", "type": "dict<utf8,interval>"},
            ],
        )
        yield client


def test_intervals_of_a_table_are_the_same_in_queries_and_in_reads(db: dodona.Client) -> None:
    db.insert_rows(
        "//t",
        [
            {"k": LONGEST, "l": [LONGEST, -LONGEST], "s": {"b c": 1}, "d": {"x": LONGEST}},
            {"k": -LONGEST, "l": None},
        ],
    )
    found = db.query("select * from [//t] order by k")
    read = db.read_arrow("//t")
    assert found.column("k").type == read.column("k").type == DURATION
    assert found.to_pylist() == read.to_pylist()
    db.create_table("//again", like=found, keys=["k"], mount=True)
    db.write("//again", found)
    assert list(db.select("//again")) == list(db.select("//t"))
    assert db.query("select max(k) as k from [//t] where k > $k", {"k": -LONGEST}).to_pylist() == [
        {"k": LONGEST}
    ]


def test_converted_rows_keep_their_order() -> None:
    count = 300_000
    text = f"select interval 1 second * r as i from range({count}) t(r) order by r desc"
    found = Engine(QueryLimits()).run(text).column("i").cast(pa.int64())
    assert found[0].as_py() == (count - 1) * 1_000_000
    assert found.to_pylist() == sorted(found.to_pylist(), reverse=True)
