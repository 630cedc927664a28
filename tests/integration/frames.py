"""What tests of the Spark connector have in common: tables, DataFrames, and their errors."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import dodona

PAIRS = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
FOUR_TABLETS = [[], [100], [200], [300]]


def create(db: dodona.Client, path: str, schema: Any, **options: Any) -> None:
    """A mounted table, without atomicity unless that is said."""
    db.create_table(path, schema=schema, mount=True, **{"atomicity": "none", **options})


def write(frame: DataFrame, url: str, path: str, **options: str) -> None:
    """Append to a table without atomicity, unless that is said."""
    writer = frame.write.format("dodona").mode("append")
    writer.options(url=url, **{"atomicity": "none", **options}).save(path)


def read(spark: SparkSession, url: str, path: str, **options: str) -> DataFrame:
    return spark.read.format("dodona").options(url=url, **options).load(path)


def pairs(spark: SparkSession, start: int, end: int, value: int = 0) -> DataFrame:
    """Of `PAIRS`: the keys of a range, each with the value."""
    return spark.range(start, end).select(f.col("id").alias("k"), f.lit(value).alias("v"))


def complaint(action: Callable[[], Any]) -> str:
    """What the driver says of something that must fail."""
    with pytest.raises(PySparkException) as raised:
        action()
    return str(raised.value)
