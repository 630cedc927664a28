"""The Spark connector's columns, without a Spark session and without a cluster.

Owns: the mapping of types, and which DataFrame fits which table.
"""

import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dodona.errors import SchemaViolation
from dodona.schema import Column, ColumnType
from pyspark_dodona.columns import check_frame, choose_columns, spark_schema

COLUMNS = (
    Column("id", "int64", "ascending"),
    Column("name", "utf8", required=True),
    Column("size", "uint64"),
    Column("raw", "string"),
    Column("share", "double"),
)


TYPES: dict[str, DataType] = {
    it.simpleString(): it
    for it in (
        *(BinaryType(), DoubleType(), FloatType(), IntegerType(), LongType(), ShortType()),
        *(StringType(), TimestampType()),
        *(DecimalType(20, 0), DecimalType(20, 1), DecimalType(21, 0)),
    )
}


def frame(**types: str) -> StructType:
    """A DataFrame's schema, from type names as Spark prints them."""
    return StructType([StructField(name, TYPES[kind]) for name, kind in types.items()])


def test_columns_as_spark_sees_them() -> None:
    types: list[ColumnType] = ["int64", "uint64", "double", "boolean", "string", "utf8", "any"]
    columns = [Column(f"c{at}", kind, required=at == 0) for at, kind in enumerate(types)]
    expected = [LongType(), DecimalType(20, 0), DoubleType(), BooleanType()]
    expected += [BinaryType(), StringType(), BinaryType()]
    assert spark_schema(columns) == StructType(
        [StructField(f"c{at}", kind, nullable=at != 0) for at, kind in enumerate(expected)]
    )


def test_columns_are_chosen_in_the_table_s_order() -> None:
    chosen = choose_columns(COLUMNS, ["size", "id"], "//t")
    assert [column.name for column in chosen] == ["id", "size"]
    assert choose_columns(COLUMNS, None, "//t") == COLUMNS
    with pytest.raises(SchemaViolation, match="table //t has no column 'colour'"):
        choose_columns(COLUMNS, ["colour"], "//t")


@pytest.mark.parametrize(
    "types",
    [
        {"id": "bigint", "name": "string"},
        {"name": "string", "id": "int", "size": "decimal(20,0)", "raw": "binary"},
        {"id": "smallint", "name": "string", "size": "bigint", "raw": "string", "share": "float"},
    ],
)
def test_a_frame_that_fits(types: dict[str, str]) -> None:
    check_frame(COLUMNS, frame(**types), "//t")


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"name": "string"}, "lacks the key column 'id' of table //t"),
        ({"id": "bigint"}, "lacks the required column 'name' of table //t"),
        ({"id": "bigint", "name": "string", "x": "int"}, "table //t has no column 'x'"),
        ({"id": "string", "name": "string"}, "'id' of table //t is int64, which takes bigint, not"),
        ({"id": "bigint", "name": "binary"}, "is utf8, which takes string, not binary: cast it"),
        ({"id": "bigint", "name": "string", "size": "decimal(20,1)"}, r"not decimal\(20,1\)"),
        ({"id": "bigint", "name": "string", "size": "decimal(21,0)"}, r"not decimal\(21,0\)"),
        ({"id": "bigint", "name": "string", "size": "double"}, "not double"),
        ({"id": "timestamp", "name": "string"}, "not timestamp"),
    ],
)
def test_a_frame_that_does_not_fit(types: dict[str, str], message: str) -> None:
    with pytest.raises(SchemaViolation, match=message):
        check_frame(COLUMNS, frame(**types), "//t")


def test_an_update_of_an_aggregate_is_refused_on_the_driver() -> None:
    columns = (*COLUMNS, Column("sum", "int64", aggregate="sum"))
    given = frame(id="bigint", name="string", sum="bigint")
    check_frame(columns, given, "//t")
    with pytest.raises(SchemaViolation, match="a bulk update can't set columns that aggregate"):
        check_frame(columns, given, "//t", "update")
