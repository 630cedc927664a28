"""`dodona.spark.bulk_write`: rows go where the client would send them, in the order of the table.

Owns: the equality of Spark's expressions and the client's encoded keys, and what a bulk write does
and says against a real cluster. What needs no session is in unit/spark.
"""

import math
import re
from bisect import bisect_right
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import dodona
import dodona.spark
from dodona.errors import DodonaError, InvalidRequest
from dodona.schema import Column, ColumnType, TableSchema
from dodona_wire.rows.columns import SortOrder
from dodona_wire.rows.key_prefixes import decode_prefix
from integration.frames import PAIRS, complaint, create, pairs, read
from pyspark_dodona import writer
from pyspark_dodona.bulk import BATCH_SETTING, arranged, sort_columns
from pyspark_dodona.columns import spark_type
from pyspark_dodona.partitioning import KeyColumns, Partitioning
from suite.levels import examples

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ENTRIES: list[dict[str, Any]] = [
    {"name": "account", "type": "int64", "sort_order": "ascending"},
    {"name": "note", "type": "utf8", "sort_order": "ascending"},
    {"name": "amount", "type": "uint64"},
]
TWELVE_TABLETS: list[list[Any]] = [
    *([], [None, "b"], [-50], [-50, "m"], [0], [0, "\u00e9"], [1], [1, ""], [7], [8]),
    *([8, "a"], [100]),
]

# ---- Spark's expressions and our keys

TEXTS = st.text(st.sampled_from("\0a\x7f\u00e9\uffee\U0001f600"), max_size=3)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.sampled_from([-(1 << 63), -1, 0, 1, 255, 256, (1 << 63) - 1]),
    "uint64": st.sampled_from([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    "double": st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 5e-324, 0.1, 1e300, math.inf]),
    "boolean": st.booleans(),
    "string": st.binary(max_size=3) | TEXTS.map(str.encode),
    "utf8": TEXTS,
}
KEY_TYPES: list[tuple[ColumnType, ...]] = [
    *(("int64",), ("uint64", "boolean"), ("double", "int64"), ("utf8", "utf8")),
    *(("string", "double"), ("boolean", "utf8", "uint64")),
]

Values = tuple[Any, ...]


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableSchema, list[Values], list[Values]]:
    """A table's columns, its pivot keys, and keys of rows, some of which are pivots."""
    types = draw(st.sampled_from(KEY_TYPES))
    orders: st.SearchStrategy[SortOrder] = st.sampled_from(["ascending", "descending"])
    columns = [Column(f"c{at}", kind, draw(orders)) for at, kind in enumerate(types)]
    schema = TableSchema((*columns, Column("row", "int64")))
    values = [st.none() | VALUES[kind] for kind in types]
    prefixes = [st.tuples(*values[:count]) for count in range(1, len(types) + 1)]
    drawn = draw(st.lists(st.one_of(*prefixes), min_size=1, max_size=9))
    bounds = sorted({schema.bound_of(it) for it in drawn})
    keys = draw(st.lists(st.tuples(*values), min_size=20, max_size=40))
    keys += [(*it, *(None,) * (len(types) - len(it))) for it in drawn]
    return schema, [decode_prefix(it, schema.key_types) for it in bounds], keys


def frame_of(spark: SparkSession, schema: TableSchema, keys: list[Values]) -> DataFrame:
    """Each key with its place."""
    columns = ", ".join(f"{it.name} {spark_type(it).simpleString()}" for it in schema.columns)
    is_decimal = [it.type == "uint64" for it in schema.key_columns]
    rows = [
        (
            *(
                Decimal(it) if is_it and it is not None else it
                for it, is_it in zip(key, is_decimal, strict=True)
            ),
            place,
        )
        for place, key in enumerate(keys)
    ]
    return spark.createDataFrame(rows, columns)


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), st.integers(1, 3))
def test_spark_places_and_sorts_rows_like_the_client(
    spark: SparkSession, table: tuple[TableSchema, list[Values], list[Values]], splits: int
) -> None:
    schema, pivots, rows = table
    encoded = [schema.key_of(dict(zip(schema.key_names, values, strict=True))) for values in rows]
    bounds = [schema.bound_of(it) for it in pivots]
    frame = frame_of(spark, schema, rows)
    keys = KeyColumns(schema.columns, frame.schema, "//t")
    partitioning = Partitioning(tuple(pivots), splits)
    number = f.expr(keys.partition(partitioning)).alias("number")
    sorted_frame = frame.coalesce(1).sortWithinPartitions(*sort_columns(keys), "row")
    numbers = {it.row: it.number for it in sorted_frame.select("row", number).collect()}
    assert list(numbers) == sorted(range(len(rows)), key=lambda it: (encoded[it], it))
    assert {row: it // splits for row, it in numbers.items()} == {
        row: bisect_right(bounds, key) for row, key in enumerate(encoded)
    }
    assert all(0 <= it < partitioning.count for it in numbers.values())
    number_of_key = {key: numbers[row] for row, key in enumerate(encoded)}
    assert all(number_of_key[key] == numbers[row] for row, key in enumerate(encoded))


@pytest.mark.parametrize("given_type", ["string", "string collate UTF8_LCASE", "binary"])
def test_spark_compares_text_as_bytes_for_every_input_type(
    spark: SparkSession, given_type: str
) -> None:
    words = ["", "A", "B", "a", "b", "\u00e9", "\uffee", "\U0001f600"]
    rows = [(word.encode() if given_type == "binary" else word,) for word in words]
    frame = spark.createDataFrame(rows, f"k {given_type}").repartition(3)
    keys = KeyColumns((Column("k", "string", "ascending"),), frame.schema, "//t")
    bounds = tuple((it,) for it in (b"A", b"a", b"\xff"))
    made = arranged(frame, keys, Partitioning(bounds, 1)).select(
        f.col("k").cast("binary").cast("string").alias("k"), f.spark_partition_id().alias("at")
    )
    assert [tuple(it) for it in made.collect()] == [
        *(("", 0), ("A", 1), ("B", 1)),
        *((word, 2) for word in words[3:]),
    ]


@pytest.mark.parametrize("given_type", ["int", "bigint", "decimal(20,0)"])
def test_numbers_without_a_sign_come_in_any_type(spark: SparkSession, given_type: str) -> None:
    frame = spark.range(5).select(f.col("id").cast(given_type).alias("k"))
    keys = KeyColumns((Column("k", "uint64", "ascending"),), frame.schema, "//t")
    number = f.expr(keys.partition(Partitioning(((3,), (1 << 63,)), 1)))
    assert [it[0] for it in frame.select(number).collect()] == [0, 0, 0, 1, 1]
    keys = KeyColumns((Column("k", "uint64", "descending"),), frame.schema, "//t")
    number = f.expr(keys.partition(Partitioning(((1 << 63,), (3,)), 1)))
    assert [it[0] for it in frame.select(number).collect()] == [2, 2, 2, 2, 1]


def test_spark_without_ids_of_partitions_does_as_well(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pairs(spark, 0, 400).repartition(3)
    for base in type(frame).__mro__:
        if "repartitionById" in vars(base):
            monkeypatch.delattr(base, "repartitionById")
    keys = KeyColumns((Column("k", "int64", "ascending"),), frame.schema, "//t")
    made = arranged(frame, keys, Partitioning(((100,), (200,), (300,)), 1))
    at = f.spark_partition_id()
    found = [tuple(it) for it in made.select(at, (f.col("k") / 100).cast("int"), "k").collect()]
    assert sorted(k for _, _, k in found) == list(range(400))
    assert len({(at, part) for at, part, _ in found}) == 4
    assert found == sorted(found, key=lambda it: (it[0], it[2]))


# ---- against a cluster


def entries(spark: SparkSession) -> DataFrame:
    """Rows with keys in no order, some with a null in them; all keys differ."""
    number = f.col("id")
    account = f.when(number % 50 == 0, None).otherwise((number * 37) % 211 - 60)
    words = f.array(*map(f.lit, ("", "a", "m", "\u00e9", "\U0001f600")))
    word = f.element_at(words, (number % 5 + 1).cast("int"))
    note = f.when(number % 49 == 0, None).otherwise(f.concat(word, number.cast("string")))
    columns = account.alias("account"), note.alias("note"), number.alias("amount")
    return spark.range(0, 1000, 1, 3).select(*columns)


@pytest.mark.parametrize(
    ("atomicity", "partitions", "expected_count"), [("none", None, 2), ("full", 12, 12)]
)
def test_rows_in_no_order_are_all_written(
    spark: SparkSession,
    db: dodona.Client,
    url: str,
    path: str,
    atomicity: str,
    partitions: int | None,
    expected_count: int,
) -> None:
    path = f"{path}_{atomicity}"
    create(db, path, ENTRIES, pivot_keys=TWELVE_TABLETS, atomicity=atomicity)
    written = dodona.spark.bulk_write(
        entries(spark), path, url=url, partitions=partitions, atomicity=atomicity
    )
    assert (written.table, written.row_count) == (path, 1000)
    assert written.partition_count == expected_count
    assert written.duration_s > 0
    rows = [row.asDict() for row in entries(spark).collect()]
    schema = TableSchema.parse(ENTRIES)
    assert list(db.select(path)) == sorted(rows, key=lambda it: schema.write_of(it)[0])


def test_a_table_of_one_tablet_keeps_all_cores_busy(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS)
    written = dodona.spark.bulk_write(pairs(spark, 0, 1000), path, url=url, atomicity="none")
    assert written.partition_count == spark.sparkContext.defaultParallelism == 2
    assert [row["k"] for row in db.select(path)] == list(range(1000))


def test_of_rows_with_one_key_the_last_is_written(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, pivot_keys=[[], [50]])
    versions = [
        pairs(spark, 0, 100).withColumns({"v": f.lit(at), "day": f.lit(at % 3), "at": f.lit(at)})
        for at in (5, 2, 7, 1, 6)
    ]
    frame = versions[0]
    for more in versions[1:]:
        frame = frame.unionAll(more)
    options: dict[str, Any] = {"url": url, "atomicity": "none"}
    written = dodona.spark.bulk_write(frame, path, last_by=["day", "at"], **options)
    assert written.row_count == 500
    assert list(db.select(path)) == [{"k": k, "v": 5} for k in range(100)]
    dodona.spark.bulk_write(frame.drop("day", "at"), path, last_by="v", **options)
    assert list(db.select(path)) == [{"k": k, "v": 7} for k in range(100)]


def test_nothing_is_written_of_a_frame_without_rows(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, pivot_keys=[[], [50]])
    for frame in (pairs(spark, 0, 0), spark.createDataFrame([], "k bigint, v bigint")):
        written = dodona.spark.bulk_write(frame, path, url=url, atomicity="none")
        assert written.row_count == 0
    assert list(db.select(path)) == []


def test_options_and_modes_are_handed_on(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, pivot_keys=[[], [50]], atomicity="full")

    def write(frame: DataFrame, **options: Any) -> dodona.spark.BulkWrite:
        return dodona.spark.bulk_write(frame, path, url=url, **options)

    write(pairs(spark, 0, 100))
    write(pairs(spark, 0, 10).select("k"), write_mode="delete", leaseSeconds=60)
    key_range = {"lower": [20], "upper": [90]}
    frame = pairs(spark, 30, 40, value=1)
    written = write(frame, mode="overwrite", key_range=key_range)
    assert (written.row_count, written.deleted_count) == (10, 60)
    write(pairs(spark, 95, 99, value=2), write_mode="update")
    write(pairs(spark, 200, 202, value=3), write_mode="insert")
    expected = [(k, 0) for k in range(10, 20)] + [(k, 1) for k in range(30, 40)]
    expected += [(k, 0) for k in range(90, 95)] + [(k, 2) for k in range(95, 99)]
    expected += [(99, 0), (200, 3), (201, 3)]
    assert [(row["k"], row["v"]) for row in db.select(path)] == expected
    for mode, error in (("update", "RowNotFound"), ("insert", "DuplicateKey")):
        with pytest.raises(Exception, match=error):
            write(pairs(spark, 199, 201, value=4), write_mode=mode)
    assert [(row["k"], row["v"]) for row in db.select(path)] == expected


def test_an_atomic_write_is_one_commit_and_once_is_enough(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, pivot_keys=[[], [50]], atomicity="full")
    frame = pairs(spark, 0, 100).withColumn("at", f.lit(1))
    frame = frame.unionAll(pairs(spark, 0, 100, value=9).withColumn("at", f.lit(2)))
    with pytest.raises(Exception, match="DuplicateKey"):
        dodona.spark.bulk_write(frame.drop("at"), path, url=url)
    options: dict[str, Any] = {"last_by": "at", "txn_app_id": "nightly", "txn_version": 3}
    written = dodona.spark.bulk_write(frame, path, url=url, **options)
    at = written.commit_timestamp
    assert at is not None
    assert (written.row_count, written.is_skipped) == (200, False)
    assert list(db.select(path, timestamp=at)) == [{"k": k, "v": 9} for k in range(100)]
    assert list(db.select(path, timestamp=dodona.Timestamp(at - 1))) == []
    again = dodona.spark.bulk_write(pairs(spark, 0, 9), path, url=url, **options | {"last_by": ()})
    assert (again.row_count, again.is_skipped, again.commit_timestamp) == (0, True, at)
    assert list(db.select(path)) == [{"k": k, "v": 9} for k in range(100)]


def test_a_bulk_write_fails_if_another_load_published_its_version_first(
    spark: SparkSession,
    db: dodona.Client,
    url: str,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same version is published by somebody else after this load has begun."""
    create(db, path, PAIRS, atomicity="full")
    begin = writer.begin
    others: list[dodona.Load] = []

    def begin_and_lose(*arguments: Any) -> dodona.LoadTicket:
        mine = begin(*arguments)
        with db.loads.begin([path], application="overtaken", version=1) as other:
            others.append(other)
        return mine

    monkeypatch.setattr("pyspark_dodona.bulk.begin", begin_and_lose)
    options: dict[str, Any] = {"txn_app_id": "overtaken", "txn_version": 1}
    with pytest.raises(
        Exception, match="ConcurrentTransaction: Another load published version 1 of application"
    ):
        dodona.spark.bulk_write(pairs(spark, 0, 9), path, url=url, **options)
    assert list(db.select(path)) == []
    again = dodona.spark.bulk_write(pairs(spark, 0, 9), path, url=url, **options)
    record = db.loads.find(others[0].id)
    assert record is not None
    at = record.commit_timestamp
    assert (again.row_count, again.is_skipped, again.commit_timestamp) == (0, True, at)


def test_last_by_is_taken_in_upper_and_in_lower_case(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS)
    frame = pairs(spark, 0, 9).unionAll(pairs(spark, 0, 9, value=5))
    dodona.spark.bulk_write(frame, path, url=url, last_by="V", atomicity="none")
    assert list(db.select(path)) == [{"k": k, "v": 5} for k in range(9)]


def test_a_bulk_write_leaves_the_settings_of_the_spark_session_unchanged(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS)
    frame = pairs(spark, 0, 10)
    for given_bytes in (None, "1000000"):
        if given_bytes is not None:
            spark.conf.set(BATCH_SETTING, given_bytes)
        before = spark.conf.getAll
        dodona.spark.bulk_write(frame, path, url=url, atomicity="none")
        assert spark.conf.getAll == before
        with pytest.raises(Exception, match="has no option 'what'"):
            dodona.spark.bulk_write(frame, path, url=url, atomicity="none", what=1)
        assert spark.conf.getAll == before
    spark.conf.unset(BATCH_SETTING)


def test_a_bulk_write_prints_its_progress(
    spark: SparkSession,
    db: dodona.Client,
    url: str,
    path: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    create(db, path, PAIRS, pivot_keys=[[], [50]])
    dodona.spark.bulk_write(pairs(spark, 0, 100), path, url=url, progress=True, atomicity="none")
    told = capsys.readouterr().err
    assert told.startswith(f"\rwriting to {path}: ")
    assert told.endswith(" s\n")


def test_the_connector_can_be_registered_by_hand(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS)
    dodona.spark.register(spark)
    assert read(spark, url, path).columns == ["k", "v"]


# ---- errors


@pytest.mark.parametrize(
    ("columns", "arguments", "expected"),
    [
        ("k, v", {"table": "//bulk/absent"}, "//bulk/absent"),
        ("k, v", {"table": "//bulk/unmounted"}, "//bulk/unmounted is not mounted: mount it, then"),
        ("v", {}, "the DataFrame lacks the key column 'k' of table //bulk/pairs"),
        ("string(k) k, v", {}, "'k' of table //bulk/pairs is int64, which takes bigint, not"),
        ("k, v", {"partitions": 0}, "`partitions` must be 1 to 100000, not 0"),
        ("k, v", {"lease_s": 1.5}, "the option 'lease_s' takes text, a number, a boolean or a"),
    ],
)
def test_a_bulk_write_raises_a_typed_error_in_the_driver(
    spark: SparkSession,
    db: dodona.Client,
    url: str,
    columns: str,
    arguments: dict[str, Any],
    expected: str,
) -> None:
    create_once(db)
    frame = pairs(spark, 0, 3).selectExpr(*columns.split(", "))
    given_arguments = {"table": "//bulk/pairs", "url": url, "atomicity": "none", **arguments}
    with pytest.raises(DodonaError) as raised:
        dodona.spark.bulk_write(frame, **given_arguments)
    assert expected in str(raised.value)
    assert list(db.select("//bulk/pairs")) == []


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("k, v, v x", {}, "table //bulk/pairs has no column 'x'"),
        ("k, string(v) v", {}, "column 'v' of table //bulk/pairs is int64, which"),
        ("k, v", {"atomicity": "full"}, "Invalid atomicity mode"),
        ("k, v", {"durable": True}, "a write has no option 'durable'"),
    ],
)
def test_a_bulk_write_refuses_invalid_columns_and_options(
    spark: SparkSession,
    db: dodona.Client,
    url: str,
    columns: str,
    options: dict[str, Any],
    expected: str,
) -> None:
    create_once(db)
    frame = pairs(spark, 0, 3).selectExpr(*columns.split(", "))
    arguments = {"table": "//bulk/pairs", "url": url, "atomicity": "none", **options}
    with pytest.raises(InvalidRequest, match=re.escape(expected)):
        dodona.spark.bulk_write(frame, **arguments)
    assert list(db.select("//bulk/pairs")) == []


def test_an_error_in_a_spark_task_keeps_its_text(
    spark: SparkSession, db: dodona.Client, url: str
) -> None:
    create_once(db)
    frame = pairs(spark, 0, 3).selectExpr("double(k) d", "v")
    frame = frame.withColumn("d", f.when(f.col("d") == 1, math.nan).otherwise(f.col("d")))
    table = "//bulk/doubles"
    said = complaint(lambda: dodona.spark.bulk_write(frame, table, url=url, atomicity="none"))
    assert "NaN is not allowed in a key" in said
    assert list(db.select("//bulk/pairs")) == []


def create_once(db: dodona.Client) -> None:
    """The tables that several tests complain about."""
    if not db.exists("//bulk/pairs"):
        db.create_table("//bulk/unmounted", schema=PAIRS, atomicity="none")
        doubles = [{"name": "d", "type": "double", "sort_order": "ascending"}, PAIRS[1]]
        create(db, "//bulk/doubles", doubles, pivot_keys=[[], [0.5]])
        create(db, "//bulk/pairs", PAIRS)
