"""Logical types in Spark: there and back, with filters, and keys that are shared out in SQL."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

import dodona
from dodona.schema import Column
from integration.frames import create, read, write
from pyspark_dodona.columns import spark_schema, spark_type
from pyspark_dodona.partitioning import KeyColumns, Partitioning
from suite.column_values import an_example

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NAMES = (
    "date", "int8", "uint16", "float", "date32", "datetime", "timestamp64", "interval",
    "decimal(10,2)", "uuid", "json",
)  # fmt: skip
COLUMNS = [
    {"name": f"c{place}", "type": name, **({} if place else {"sort_order": "ascending"})}
    for place, name in enumerate(NAMES)
]
DAY = date(2024, 2, 29)
ROWS: list[tuple[Any, ...]] = [
    (
        DAY,
        -128,
        65_535,
        0.5,
        date(1, 1, 1),
        datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
        datetime(1899, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        timedelta(days=-2, microseconds=1),
        Decimal("-12.50"),
        str(an_example("uuid")),
        '{"a": 1}',
    ),
    (date(2024, 3, 1), *[None] * (len(NAMES) - 1)),
]


def schema_of() -> StructType:
    columns = [Column(it["name"], it["type"]) for it in COLUMNS]
    return StructType([StructField(it.name, spark_type(it)) for it in columns])


@pytest.mark.part("Spark reads and writes each logical type")
def test_logical_types_survive_the_way_there_and_back(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, COLUMNS, pivot_keys=[[], [DAY]])
    write(spark.createDataFrame(ROWS, schema_of()), url, path)
    first, second = db.select(path)
    assert [
        str(it) if name == "uuid" else it for name, it in zip(NAMES, first.values(), strict=True)
    ] == [*ROWS[0]]
    assert tuple(second.values()) == ROWS[1]
    frame = read(spark, url, path)
    assert frame.schema == schema_of()
    texts = (
        "c0",
        "c4",
        "unix_seconds(c5)",
        "unix_micros(c6)",
        "c7",
        "c8",
        "c9",
    )
    (found,) = frame.filter("c0 = DATE'2024-02-29'").selectExpr(*texts).collect()
    assert tuple(found) == (
        DAY, date(1, 1, 1), 1_709_209_800, -2_208_988_800_000_001, ROWS[0][7], ROWS[0][8],
        ROWS[0][9],
    )  # fmt: skip
    counts = {
        "c0 > DATE'2024-02-29'": 1,
        "c8 < -12": 1,
        "c1 = -128": 1,
        "c6 < TIMESTAMP'1900-01-01 00:00:00Z'": 1,
        "c0 >= DATE'1900-01-01'": 2,
    }
    for condition, count in counts.items():
        assert frame.filter(condition).count() == count, condition
    ranged = read(spark, url, path, key_range='{"lower": ["2024-03-01"]}')
    assert ranged.count() == 1


NESTED = (
    "list<optional<int32>>",
    "list<struct<price:decimal(5,2),on:optional<date>>>",
    "dict<utf8,list<uuid>>",
    "struct<at:timestamp64,n:uint64,l:list<list<utf8>>>",
)
UUID_TEXT = str(an_example("uuid"))
NESTED_VALUES: tuple[Any, ...] = (
    [1, None, -(1 << 31)],
    [{"price": Decimal("-12.50"), "on": None}, {"price": Decimal("0.01"), "on": DAY}],
    {"ä": [UUID_TEXT], "": []},
    {"at": datetime(1899, 12, 31, tzinfo=UTC), "n": Decimal((1 << 64) - 1), "l": [["x"], []]},
)


@pytest.mark.part("Spark reads and writes lists, structs and maps")
def test_nested_types_survive_the_way_there_and_back(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    columns = [{"name": f"c{place}", "type": name} for place, name in enumerate(NESTED)]
    create(db, path, [{"name": "k", "type": "int64", "sort_order": "ascending"}, *columns])
    schema = spark_schema(db.get_table(path).schema.columns)
    rows = [(1, *NESTED_VALUES), (2, *[None] * len(NESTED))]
    write(spark.createDataFrame(rows, schema), url, path)
    first, second = db.select(path)
    assert first["c0"] == NESTED_VALUES[0]
    assert first["c1"] == NESTED_VALUES[1]
    assert {key: [*map(str, its)] for key, its in first["c2"].items()} == NESTED_VALUES[2]
    assert first["c3"] == {**NESTED_VALUES[3], "n": (1 << 64) - 1}
    assert [*second.values()] == [2, None, None, None, None]
    frame = read(spark, url, path)
    assert frame.schema == schema
    texts = ("c0", "c1[0].price", "c1[1].on", "c2", "c3.n", "unix_seconds(c3.at)", "c3.l")
    (found,) = frame.filter("k = 1").selectExpr(*texts).collect()
    assert tuple(found) == (
        NESTED_VALUES[0], Decimal("-12.50"), DAY, NESTED_VALUES[2], Decimal((1 << 64) - 1),
        -2_209_075_200, [["x"], []],
    )  # fmt: skip
    assert frame.filter("c1 is null").count() == 1
    (whole,) = frame.filter("size(c0) = 3").collect()
    assert [it.asDict() for it in whole["c1"]] == NESTED_VALUES[1]


KEYS = ("date", "timestamp", "datetime64", "interval", "decimal(10,2)", "uuid", "uint8", "float")


@pytest.mark.parametrize("name", KEYS)
def test_sql_puts_a_key_where_the_client_does(spark: SparkSession, name: str) -> None:
    column = Column("k", name, "ascending")
    value = an_example(name)
    shown = str(value) if name == "uuid" else value
    frame = spark.createDataFrame(
        [(shown,), (None,)], StructType([StructField("k", spark_type(column))])
    )
    keys = KeyColumns((column,), frame.schema, "//t")
    text = keys.partition(Partitioning(((value,),), 1))
    assert [it[0] for it in frame.selectExpr(text).collect()] == [1, 0]
    shared = keys.partition(Partitioning(((value,),), 3))
    assert all(0 <= it[0] < 6 for it in frame.selectExpr(shared).collect())
