"""Logical types as Spark sees them, without a session."""

import pytest
from pyspark.sql.types import (
    ArrayType,
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
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
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
        ("list<int8>", ArrayType(ByteType(), containsNull=False)),
        ("list<optional<any>>", ArrayType(BinaryType(), containsNull=True)),
        (
            "struct<a:uuid,b:optional<uint64>>",
            StructType(
                [
                    StructField("a", StringType(), nullable=False),
                    StructField("b", DecimalType(20, 0), nullable=True),
                ]
            ),
        ),
        (
            "dict<utf8,optional<list<date>>>",
            MapType(StringType(), ArrayType(DateType(), containsNull=False)),
        ),
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


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("list<int8>", IntegerType()),
        ("list<utf8>", ArrayType(IntegerType())),
        ("list<list<utf8>>", ArrayType(ArrayType(BinaryType()))),
        ("struct<a:int8>", MapType(StringType(), ByteType())),
        ("struct<a:int8>", StructType([StructField("b", ByteType())])),
        ("struct<a:int8,b:int8>", StructType([StructField("a", ByteType())])),
        ("struct<a:int8>", StructType([StructField("a", StringType())])),
        (
            "struct<a:int8>",
            StructType([StructField("a", ByteType()), StructField("a", ByteType())]),
        ),
        ("dict<utf8,int8>", ArrayType(ByteType())),
        ("dict<utf8,int8>", MapType(BinaryType(), ByteType())),
        ("dict<utf8,decimal(5,2)>", MapType(StringType(), DecimalType(6, 2))),
    ],
)
def test_a_nested_type_that_does_not_fit_is_refused(name: str, given: DataType) -> None:
    with pytest.raises(SchemaViolation, match="cast it"):
        check_type(Column("c", name), given, "//t")


def test_an_optional_field_may_be_absent() -> None:
    given = StructType([StructField("a", ByteType())])
    check_type(Column("c", "struct<a:int8,b:optional<utf8>>"), given, "//t")


@pytest.mark.parametrize("name", ["decimal(39,0)", "list<decimal(39,0)>"])
def test_a_decimal_that_spark_lacks_is_refused(name: str) -> None:
    with pytest.raises(SchemaViolation, match="at most 38 digits"):
        spark_type(Column("c", name))
