"""Computed key columns in Spark: frames without them are divided, sorted and written by the key."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import dodona
import dodona.spark
from dodona_wire.expressions.farm_hash import farm_hash
from dodona_wire.types import Atomicity
from integration.frames import complaint, create, read, write
from pyspark_dodona.bulk import arranged
from pyspark_dodona.computed import with_computed
from pyspark_dodona.partitioning import KeyColumns, Partitioning
from suite.levels import share

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SCHEMA: list[dict[str, Any]] = [
    {
        "name": "hash",
        "type": "uint64",
        "sort_order": "ascending",
        "expression": "farm_hash(user) % 16",
    },
    {
        "name": "month",
        "type": "date",
        "sort_order": "ascending",
        "expression": "timestamp_floor_month(day)",
    },
    {"name": "user", "type": "utf8", "sort_order": "ascending"},
    {"name": "day", "type": "date", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
PIVOTS: list[list[Any]] = [[], [4], [8], [12]]


def hash_of(user: str) -> int:
    return farm_hash(user.encode()) % 16


@pytest.mark.part("Spark computes key columns")
@pytest.mark.parametrize("atomicity", share(["none", "full"], one_in=2))
def test_frames_without_computed_columns_are_written(
    spark: SparkSession, url: str, db: dodona.Client, atomicity: Atomicity
) -> None:
    path = f"//computed/{atomicity}"
    create(db, path, SCHEMA, pivot_keys=PIVOTS, atomicity=atomicity)
    frame = spark.range(60).select(
        f.concat(f.lit("u"), (f.col("id") % 7).cast("string")).alias("user"),
        f.expr("date_add(date'2024-01-20', cast(id as int))").alias("day"),
        f.col("id").alias("v"),
    )
    schema = db.get_table(path).schema
    whole = with_computed(frame, schema, path)
    keys = KeyColumns(schema.columns, whole.schema, path)
    placed = arranged(whole, keys, Partitioning(((4,), (8,), (12,)), 1)).select(
        f.spark_partition_id().alias("at"), *schema.key_names
    )
    rows = placed.collect()
    assert {(it["at"], it["hash"]) for it in rows} == {
        (hash_of(f"u{n}") // 4, hash_of(f"u{n}")) for n in range(7)
    }
    assert [tuple(it) for it in rows] == sorted(tuple(it) for it in rows)
    written = dodona.spark.bulk_write(frame, path, url=url, atomicity=atomicity)
    assert written.row_count == 60
    found = list(db.select(path))
    assert len(found) == 60
    assert all(it["hash"] == hash_of(it["user"]) for it in found)
    assert all(it["month"] == it["day"].replace(day=1) for it in found)
    kept = read(spark, url, path).where("user = 'u3'").collect()
    assert sorted(it["v"] for it in kept) == list(range(3, 60, 7))
    wanted = read(spark, url, path).where("user in ('u3', 'u4') and day < date'2024-02-01'")
    assert sorted(it["v"] for it in wanted.collect()) == [3, 4, 10, 11]
    deleted = frame.where("v < 7").select("user", "day")
    dodona.spark.bulk_write(deleted, path, url=url, atomicity=atomicity, write_mode="delete")
    assert len(list(db.select(path))) == 53
    write(frame.where("v < 7"), url, path, atomicity=atomicity)
    assert len(list(db.select(path))) == 60


def test_a_wrong_value_fails_the_job(spark: SparkSession, url: str, db: dodona.Client) -> None:
    path = "//computed/wrong"
    create(db, path, SCHEMA)
    frame = spark.sql("select 99 as hash, 'x' as user, date'2024-01-01' as day, 1L as v")
    said = complaint(lambda: write(frame, url, path))
    assert "'hash' is 99 in this row" in said
    assert list(db.select(path)) == []
