"""Logical types as Spark sees them, without a session."""

import pytest
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from dodona.errors import SchemaViolation
from dodona.schema import Column
from pyspark_dodona.columns import check_type, spark_type


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("int8", ByteType()),
        ("int16", ShortType()),
        ("int32", IntegerType()),
        ("uint8", ShortType()),
        ("uint16", IntegerType()),
        ("uint32", LongType()),
        ("float", FloatType()),
        ("date", DateType()),
        ("date32", DateType()),
        ("datetime", TimestampType()),
        ("timestamp64", TimestampType()),
        ("interval", DayTimeIntervalType()),
        ("decimal(10,2)", DecimalType(10, 2)),
        ("uuid", StringType()),
        ("json", StringType()),
    ],
)
def test_a_type_is_read_as_and_written_from_its_spark_type(name: str, kind: DataType) -> None:
    column = Column("c", name)
    assert spark_type(column) == kind
    check_type(column, kind, "//t")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("date", TimestampType()),
        ("timestamp", TimestampNTZType()),
        ("timestamp", DateType()),
        ("decimal(10,2)", DecimalType(10, 3)),
        ("decimal(10,2)", DecimalType(11, 2)),
        ("decimal(10,2)", DoubleType()),
        ("int8", DoubleType()),
        ("uuid", LongType()),
        ("json", BinaryType()),
        ("interval", LongType()),
    ],
)
def test_a_type_that_would_lose_something_is_refused(name: str, given: DataType) -> None:
    with pytest.raises(SchemaViolation, match="cast it"):
        check_type(Column("c", name), given, "//t")


@pytest.mark.parametrize("given", [ByteType(), LongType(), DecimalType(9, 1)])
def test_a_decimal_takes_what_fits_by_its_type(given: DataType) -> None:
    check_type(Column("c", "decimal(10,2)"), given, "//t")


def test_a_decimal_that_spark_lacks_is_refused() -> None:
    with pytest.raises(SchemaViolation, match="at most 38 digits"):
        spark_type(Column("c", "decimal(39,0)"))
