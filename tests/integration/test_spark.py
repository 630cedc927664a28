"""The Spark connector against a real cluster and a real Spark session.

Owns: round trips of every type, the snapshot that a DataFrame is, and the errors as they reach the
driver. One session serves all tests, since it takes seconds to start. What needs no session is in
test_spark_columns.
"""

import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import dodona
from integration.frames import FOUR_TABLETS, PAIRS, complaint, create, pairs, read, write

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ALL_TYPES: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending", "required": True},
    {"name": "sub", "type": "utf8", "sort_order": "ascending"},
    {"name": "u", "type": "uint64"},
    {"name": "d", "type": "double"},
    {"name": "b", "type": "boolean"},
    {"name": "s", "type": "string"},
    {"name": "t", "type": "utf8", "required": True},
    {"name": "a", "type": "any"},
]
SPARK_ALL_TYPES = (
    "id bigint not null, sub string, u decimal(20,0), d double, b boolean, s binary, "
    "t string not null, a binary"
)


@pytest.mark.part("Spark with executor processes")
def test_every_type_survives_the_way_there_and_back(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, ALL_TYPES, pivot_keys=[[], [0], [0, "m"], [5]])
    anything = msgspec.msgpack.encode({"list": [1, "two", None]})
    rows: list[tuple[Any, ...]] = [
        (-(1 << 63), None, Decimal(0), -math.inf, False, b"", "", None),
        (0, "", Decimal((1 << 64) - 1), 1e-300, True, b"\x00\xff", "é\u4e2d\U0001f600", anything),
        (0, "m", None, None, None, None, "nulls", None),
        (0, "z\x00z", Decimal(1 << 63), -0.5, False, bytes(1000), "x" * 1000, b"\xc0"),
        ((1 << 63) - 1, "end", Decimal(7), 7.0, True, b"seven", "seven", b"\x07"),
    ]
    write(spark.createDataFrame(rows, SPARK_ALL_TYPES), url, path)
    names = [column["name"] for column in ALL_TYPES]
    stored = [tuple(row[name] for name in names) for row in db.select(path)]
    expected = [
        tuple(int(it) if isinstance(it, Decimal) else it for it in row[:-1]) for row in rows
    ]
    assert [row[:-1] for row in stored] == expected
    assert [row[-1] for row in stored] == [None, {"list": [1, "two", None]}, None, None, 7]
    frame = read(spark, url, path)
    assert frame.schema == spark.createDataFrame([], SPARK_ALL_TYPES).schema
    back = [
        tuple(bytes(it) if isinstance(it, bytearray) else it for it in r) for r in frame.collect()
    ]
    # An `any` that holds null is no value at all.
    assert back == [row if row[-1] != b"\xc0" else (*row[:-1], None) for row in rows]


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_few_rows_of_many_columns(
    spark: SparkSession, db: dodona.Client, url: str, path: str, atomicity: str
) -> None:
    """Masks of more than 64 value columns travel as bytes."""
    names = [f"v{place}" for place in range(65)]
    table = f"{path}_{atomicity}"
    values = [{"name": name, "type": "int64"} for name in names]
    create(db, table, [PAIRS[0], *values], atomicity=atomicity)
    frame = spark.createDataFrame(
        [tuple(range(66))], ", ".join(f"{it} long" for it in ("k", *names))
    )
    write(frame, url, table, atomicity=atomicity)
    assert list(db.select(table)) == [dict(zip(("k", *names), range(66), strict=True))]


@pytest.mark.part("Spark with executor processes")
def test_a_frame_has_a_partition_a_tablet_and_every_row_once(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, pivot_keys=FOUR_TABLETS)
    write(pairs(spark, -1000, 1000).repartition(5), url, path)
    frame = read(spark, url, path)
    assert frame.rdd.getNumPartitions() == len(FOUR_TABLETS)
    assert [row.k for row in frame.select("k").collect()] == list(range(-1000, 1000))


def test_a_data_frame_always_reads_the_same_snapshot(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, pivot_keys=FOUR_TABLETS)
    write(pairs(spark, 0, 400, value=1), url, path)
    before = db.generate_timestamp()
    first = read(spark, url, path)
    write(pairs(spark, 200, 600, value=2), url, path)
    second = read(spark, url, path)
    at_before = read(spark, url, path, timestamp=str(before))
    for frame, count, total in ((first, 400, 400), (second, 600, 1000), (at_before, 400, 400)):
        assert frame.agg(f.count("*"), f.sum("v")).first() == (count, total)
    assert first.join(first.withColumnRenamed("v", "w"), "k").where("v = w").count() == 400
    assert first.join(second, "k").count() == 400


def test_columns_can_be_chosen(spark: SparkSession, db: dodona.Client, url: str, path: str) -> None:
    create(db, path, ALL_TYPES)
    row = (1, "x", Decimal(2), 3.0, True, b"s", "t", None)
    write(spark.createDataFrame([row], SPARK_ALL_TYPES), url, path)
    assert read(spark, url, path, columns="t, u").collect() == [(Decimal(2), "t")]
    assert read(spark, url, path, Columns="id").columns == ["id"]


def test_absent_columns_become_null_and_the_last_write_wins(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, ALL_TYPES)
    row = (1, "x", Decimal(2), 3.0, True, b"s", "old", None)
    write(spark.createDataFrame([row], SPARK_ALL_TYPES), url, path)
    narrow = spark.createDataFrame([("new", "x", 1)], "t string, sub string, id int")
    write(narrow, url, path, durability="async")
    assert list(db.select(path, columns=["id", "sub", "u", "s", "t"])) == [
        {"id": 1, "sub": "x", "u": None, "s": None, "t": "new"}
    ]


def test_nothing_written_and_nothing_read_is_fine(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, pivot_keys=FOUR_TABLETS)
    write(pairs(spark, 0, 0), url, path)
    assert read(spark, url, path).count() == 0


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("bigint k", {"path": "//spark/absent"}, "TableNotFound: "),
        (
            "bigint k",
            {"path": "//spark/unmounted"},
            "TableNotMounted: Table //spark/unmounted is not",
        ),
        (
            "bigint k",
            {"path": "//spark/atomic"},
            'InvalidRequest: Invalid atomicity mode: "none" ins',
        ),
        ("bigint v", {}, "SchemaViolation: the DataFrame lacks the key column 'k' of table //sp"),
        ("bigint k, bigint x", {}, "SchemaViolation: table //spark/pairs has no column 'x'"),
        ("string k", {}, "SchemaViolation: column 'k' of table //spark/pairs is int64, which ta"),
        ("bigint k", {"durable": "no"}, "InvalidRequest: a write has no option 'durable'; did you"),
        (
            "bigint k",
            {"atomicity": "full"},
            'InvalidRequest: Invalid atomicity mode: "full" instead of "none"',
        ),
    ],
)
def test_a_write_that_cannot_succeed_never_starts(
    spark: SparkSession,
    db: dodona.Client,
    url: str,
    columns: str,
    options: dict[str, str],
    expected: str,
) -> None:
    create_once(db)
    frame = spark.range(3)
    for column in columns.split(", "):
        kind, name = column.split()
        frame = frame.withColumn(name, f.col("id").cast(kind))
    given = {"path": "//spark/pairs", **options}
    text = complaint(lambda: write(frame.drop("id"), url, given.pop("path"), **given))
    assert expected in text
    assert list(db.select("//spark/pairs")) == []


def create_once(db: dodona.Client) -> None:
    """The tables that several tests complain about."""
    if not db.exists("//spark/pairs"):
        create(db, "//spark/atomic", PAIRS, atomicity="full")
        db.create_table("//spark/unmounted", schema=PAIRS, atomicity="none")
        create(db, "//spark/pairs", PAIRS)


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        ("//spark/absent", {}, "TableNotFound: "),
        ("//spark/unmounted", {}, "TableNotMounted: table //spark/unmounted is not mounted"),
        ("//spark/pairs", {"columns": "k,x"}, "SchemaViolation: table //spark/pairs has no colum"),
        ("//spark/pairs", {"timestamp": "now"}, "InvalidRequest: the option 'timestamp' takes an"),
        ("//spark/pairs", {"time": "1"}, "InvalidRequest: a read has no option 'time'; "),
        ("//spark/pairs", {"atomicity": "none"}, "InvalidRequest: a read has no option 'atomici"),
    ],
)
def test_a_read_that_cannot_succeed_is_refused_at_load(
    spark: SparkSession,
    db: dodona.Client,
    url: str,
    path: str,
    options: dict[str, str],
    expected: str,
) -> None:
    create_once(db)
    assert expected in complaint(lambda: read(spark, url, path, **options))


def test_a_schema_that_is_not_the_table_s_is_refused(
    spark: SparkSession, db: dodona.Client, url: str
) -> None:
    create_once(db)
    reader = spark.read.format("dodona").option("url", url).schema("k string")
    assert "leave .schema(...) out" in complaint(reader.load("//spark/pairs").count)


def test_an_error_in_a_spark_worker_reaches_the_driver(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, ALL_TYPES)
    negative = spark.createDataFrame([(1, "", "t", -1)], "id int, sub string, t string, u bigint")
    text = complaint(lambda: write(negative, url, path))
    assert "SchemaViolation: a value does not fit in uint64" in text
    assert "column='u'" in text
    empty = spark.createDataFrame([(1, "", None)], "id int, sub string, t string")
    assert "SchemaViolation: required column is null" in complaint(lambda: write(empty, url, path))
    assert list(db.select(path)) == []


def test_no_mode_but_append_is_possible(spark: SparkSession, db: dodona.Client, url: str) -> None:
    create_once(db)
    writer = pairs(spark, 0, 1).write.format("dodona").mode("overwrite")
    writer = writer.option("url", url).option("atomicity", "none")
    assert "use mode('append')" in complaint(lambda: writer.save("//spark/pairs"))


def test_a_cluster_that_is_not_there_is_named(spark: SparkSession) -> None:
    nowhere = "http://127.0.0.1:9"
    assert "Unavailable: " in complaint(lambda: read(spark, nowhere, "//spark/pairs"))


def test_a_table_of_spark_s_own_catalog_is_no_way_in(
    spark: SparkSession, db: dodona.Client, url: str
) -> None:
    """A temporary view is. With a path, Spark's own error comes before Dodona is asked."""
    create_once(db)
    options = f"options (path '//spark/pairs', url '{url}')"
    with pytest.raises(Py4JJavaError, match="No FileSystem for scheme"):
        spark.sql(f"create table pairs using dodona {options}")
    spark.sql(f"create or replace temporary view pairs using dodona {options}")
    assert spark.sql("select count(*) from pairs").first() is not None
