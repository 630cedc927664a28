"""SQL over logical types: what DuckDB finds, and the range of keys that it needs for that."""

import operator
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dodona
from dodona._core.reading.condition import plan
from dodona.errors import InvalidRequest
from dodona.schema import Column, TableSchema
from dodona_wire.rows.columns import SortOrder
from dodona_wire.rows.logical_types import SQL_PRECISION_MAX, LogicalType, logical_type
from dodona_wire.rows.logical_values import MICROSECOND, store_of
from suite.column_values import LOGICAL, an_example, values_of
from suite.levels import examples, share

EXAMPLES = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
IN_SQL = [it for it in LOGICAL if logical_type(it).precision <= SQL_PRECISION_MAX]
PUSHED = [it for it in IN_SQL if logical_type(it).form not in ("interval", "json", "float")]
PUSHED.append("interval64")
ORDERS: tuple[SortOrder, ...] = ("ascending", "descending")
OPERATORS = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def literal(kind: LogicalType, value: Any) -> str:
    """A value as people write it in SQL."""
    match kind.form:
        case "date":
            return f"date '{value.isoformat()}'"
        case "seconds" | "microseconds":
            return f"timestamptz '{value.astimezone(UTC).isoformat()}'"
        case "interval":
            number = value // MICROSECOND
            return str(number) if kind.sql == "BIGINT" else f"to_microseconds({number})"
        case "uuid" | "json":
            return f"'{value}'"
        case "decimal":
            return f"{value:f}"
        case "float":
            return f"'{value!r}'::float"
    return str(value)


def schema_of(name: str, order: SortOrder = "ascending") -> TableSchema:
    return TableSchema.parse([Column("k", name, order), Column("v", name)])


@pytest.mark.parametrize("name", share(IN_SQL, one_in=4))
@EXAMPLES
@given(data=st.data())
def test_no_row_of_the_result_lies_outside_of_the_range(name: str, data: st.DataObject) -> None:
    kind, schema = logical_type(name), schema_of(name, data.draw(st.sampled_from(ORDERS)))
    word = data.draw(st.sampled_from(sorted(OPERATORS)))
    value, other = data.draw(values_of(name)), data.draw(values_of(name))
    found = plan(schema, f"k {word} {literal(kind, value)}")
    lower, upper = (schema.load_bound(it) for it in (found.lower, found.upper))
    keys = [schema.key_of({"k": it}) for it in (value, other)]
    for key, its in zip(keys, (value, other), strict=True):
        is_inside = (lower is None or schema.bound_of(lower) <= key) and (
            upper is None or key < schema.bound_of(upper)
        )
        assert is_inside or not OPERATORS[word](its, value)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PUSHED)
def test_an_equal_condition_reads_one_key(name: str, order: SortOrder) -> None:
    kind, schema, value = logical_type(name), schema_of(name, order), an_example(name)
    found = plan(schema, f"k = {literal(kind, value)}")
    assert found.lower == (store_of(kind)(value, "k"),)
    assert found.upper not in (None, (None,))
    assert schema.bound_of(schema.load_bound(found.upper) or ()) > schema.key_of({"k": value})


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("sql") / "data") as opened:
        yield opened


@pytest.mark.parametrize("name", IN_SQL)
def test_duckdb_sees_values_of_the_type(db: dodona.Client, name: str) -> None:
    kind, value = logical_type(name), an_example(name)
    path = f"//sql_{IN_SQL.index(name)}"
    db.create_table(path, schema_of(name))
    db.mount_table(path)
    db.insert_rows(path, [{"k": value, "v": None}])
    text = f"select typeof(k) as kind, count(v) as nulls from [{path}] where k = "
    found = db.query(f"{text}{literal(kind, value)} group by 1").to_pylist()
    assert found == [{"kind": kind.sql, "nulls": 0}]
    (row,) = db.query(f"select k from [{path}]").to_pylist()
    expected = {"uuid": str(value), "interval": None if kind.sql == "INTERVAL" else value}
    if kind.form == "interval":
        assert kind.sql == "INTERVAL" or row["k"] == value // MICROSECOND
    else:
        assert row["k"] == expected.get(kind.form, value)


def test_a_decimal_that_sql_does_not_have_is_refused_if_the_query_uses_it(
    db: dodona.Client,
) -> None:
    columns = [Column("k", "int8", "ascending"), Column("d", "decimal(39,1)")]
    db.create_table("//long", columns)
    db.mount_table("//long")
    db.insert_rows("//long", [{"k": 1, "d": 2}])
    assert db.query("select count(*) as n from [//long]").to_pylist() == [{"n": 1}]
    with pytest.raises(InvalidRequest, match=r"at most 38 digits.*column .d."):
        db.query("select d from [//long]")


def test_a_bound_outside_of_the_type_reads_everything_and_finds_nothing(db: dodona.Client) -> None:
    db.create_table("//days", schema_of("date"))
    db.mount_table("//days")
    db.insert_rows(
        "//days", [{"k": date(1970, 1, 1), "v": None}, {"k": date(2105, 12, 31), "v": None}]
    )
    query = "select k from [//days] where k "
    assert db.query(query + "< date '1969-12-31'").num_rows == 0
    assert db.query(query + ">= date '0044-03-15 (BC)'").num_rows == 2
    assert db.query(query + "<= date '2105-12-31'").num_rows == 2
    assert db.query(query + "> date 'infinity'").num_rows == 0


def test_a_fraction_of_a_second_cuts_no_row_off(db: dodona.Client) -> None:
    db.create_table("//seconds", schema_of("datetime"))
    db.mount_table("//seconds")
    noon = datetime(2024, 5, 31, 12, tzinfo=UTC)
    db.insert_rows("//seconds", [{"k": noon + timedelta(seconds=it), "v": None} for it in range(3)])
    query = "select count(*) as n from [//seconds] where k "
    for condition, count in (("<", 2), (">", 1), ("=", 0), ("!=", 3)):
        text = f"{query}{condition} timestamptz '2024-05-31 12:00:01.5Z'"
        assert db.query(text).to_pylist() == [{"n": count}]
