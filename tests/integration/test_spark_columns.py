"""The Spark connector's options and columns, without a Spark session and without a cluster.

Owns: what is refused before anything is asked of the cluster, and the mapping of types.
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

from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import Column, ColumnType
from dodona.types import Timestamp
from pyspark_dodona.columns import check_frame, choose_columns, spark_schema
from pyspark_dodona.options import ReadOptions, WriteOptions, is_write, parse_read, parse_write

BASE = {"url": "http://here", "path": "//a/b"}
WRITE = {**BASE, "atomicity": "none"}
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


def test_options_of_a_read() -> None:
    assert parse_read(BASE) == ReadOptions("http://here", "//a/b", None, None)
    options = {**BASE, "timestamp": "17", "columns": "a, b"}
    assert parse_read(options) == ReadOptions("http://here", "//a/b", Timestamp(17), ("a", "b"))
    assert not is_write(options)


def test_options_of_a_write() -> None:
    assert parse_write(WRITE, is_overwrite=False) == WriteOptions("http://here", "//a/b", "sync")
    options = {**WRITE, "durability": "async"}
    assert parse_write(options, is_overwrite=False).durability == "async"
    assert is_write(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "//a"}, "the option 'url' is missing"),
        ({"url": "http://here"}, "the option 'path' is missing"),
        ({**BASE, "timestmp": "1"}, "no option 'timestmp'; it has these: columns, path, timest"),
        ({**BASE, "atomicity": "none"}, "a read has no option 'atomicity'"),
        ({**BASE, "timestamp": "yesterday"}, "takes an integer, not 'yesterday'"),
        ({**BASE, "timestamp": "-1"}, "takes an integer"),
        ({**BASE, "timestamp": "0"}, "not a timestamp of the oracle"),
        ({**BASE, "timestamp": str(1 << 62)}, "not a timestamp of the oracle"),
    ],
)
def test_a_bad_read_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_read(options)


@pytest.mark.parametrize(
    ("options", "is_overwrite", "message"),
    [
        (BASE, False, "a Spark write is not a transaction"),
        ({**BASE, "atomicity": "full"}, False, "a Spark write is not a transaction"),
        ({**WRITE, "timestamp": "1"}, False, "a write has no option 'timestamp'"),
        ({**WRITE, "durability": "maybe"}, False, "takes 'sync' or 'async', not 'maybe'"),
        (WRITE, True, "use mode"),
    ],
)
def test_a_bad_write_is_refused(options: dict[str, str], is_overwrite: bool, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_write(options, is_overwrite=is_overwrite)


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
