"""Reading with Spark from a real cluster: parts, ranges, filters, and what is held meanwhile.

Owns: that a DataFrame has every row once, however it was cut and wherever its tablets went; that
filters keep the same rows whoever applies them; and that retention leaves a DataFrame alone for as
long as its lease. What needs no session is in unit/spark.
"""

import math
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import dodona
from dodona.errors import SnapshotTooOld
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan
from integration.frames import FOUR_TABLETS, PAIRS, complaint, create, pairs, read, write

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SWITCH = "spark.sql.python.filterPushdown.enabled"
MIXED: list[dict[str, Any]] = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "t", "type": "utf8", "sort_order": "ascending"},
    {"name": "u", "type": "uint64"},
    {"name": "d", "type": "double"},
    {"name": "b", "type": "boolean"},
    {"name": "s", "type": "string"},
    {"name": "a", "type": "any"},
]
DOUBLES = [None, 0.0, -0.0, 1.5, -math.inf, math.inf, math.nan, -7.25]
UNSIGNED = [None, 0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
TEXTS = ["", "a", "ab", "b", "é", "\U0001f600", "z\x00z"]
BYTES = [None, b"", b"\x00\xff", b"a"]


def mixed_rows() -> list[dict[str, Any]]:
    """Of all types, with every odd value beside most others."""
    return [
        {
            "k": None if at % 50 == 49 else at // 2 - 50,
            "t": TEXTS[at % 7] if at % 2 else f"x{at}",
            "u": UNSIGNED[at % 6],
            "d": DOUBLES[at % 8],
            "b": (None, True, False)[at % 3],
            "s": BYTES[at % 4],
            "a": [None, {"n": at}, [at, "x"], at][at % 4],
        }
        for at in range(200)
    ]


@pytest.fixture(scope="module")
def mixed(cluster: LocalCluster) -> str:
    """A table of all types in four tablets, which no test changes."""
    path = "//test_spark_reading/mixed"
    with dodona.connect(cluster.master_url) as db:
        create(db, path, MIXED, atomicity="full", pivot_keys=[[], [-25], [0, "b"], [25]])
        db.insert_rows(path, mixed_rows())
    return path


@pytest.fixture
def pushed(spark: SparkSession) -> Iterator[None]:
    """Spark's switch is on."""
    spark.conf.set(SWITCH, "true")
    yield
    spark.conf.unset(SWITCH)


def keys(frame: DataFrame) -> list[Any]:
    return [row[0] for row in frame.select("k").collect()]


def counts(frame: DataFrame) -> list[int]:
    """How many rows are in each partition."""
    found = frame.groupBy(f.spark_partition_id().alias("part")).count().orderBy("part").collect()
    return [row["count"] for row in found]


# ---- parts


def test_large_tablets_are_cut_into_parts(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, pivot_keys=FOUR_TABLETS)
    write(pairs(spark, -2000, 350), url, path)
    frame = read(spark, url, path, split_rows="500")
    assert frame.rdd.getNumPartitions() == 8
    assert counts(frame)[5:] == [100, 100, 50]
    assert all(380 <= it <= 460 for it in counts(frame)[:5])
    assert keys(frame) == list(range(-2000, 350))
    one_each = read(spark, url, path, splitRows="1", key_range='{"lower": [0], "upper": [7]}')
    assert counts(one_each) == [1] * 7


def test_rows_in_chunks_and_in_memory_are_cut_together(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, atomicity="full")
    db.insert_rows(path, [{"k": number, "v": 1} for number in range(3000)])
    db.unmount_table(path)  # into a chunk
    db.mount_table(path)
    db.insert_rows(path, [{"k": number, "v": 2} for number in range(3000, 4000)])
    frame = read(spark, url, path, split_rows="1000")
    assert frame.rdd.getNumPartitions() == 4
    assert all(900 <= it <= 1100 for it in counts(frame))
    assert frame.agg(f.count("*"), f.sum("v")).first() == (4000, 5000)


def test_tablets_may_be_cut_and_moved_before_they_are_read(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, pivot_keys=FOUR_TABLETS)
    write(pairs(spark, 0, 1000, value=1), url, path)
    frame = read(spark, url, path, split_rows="100")
    planned = frame.rdd.getNumPartitions()
    db.unmount_table(path)
    db.reshard_table(path, pivot_keys=[[], [50], [150], [270], [640], [1200]])
    db.mount_table(path)
    write(pairs(spark, 500, 1500, value=2), url, path)
    assert frame.agg(f.count("*"), f.sum("v")).first() == (1000, 1000)
    assert frame.rdd.getNumPartitions() == planned
    assert keys(frame) == list(range(1000))
    assert read(spark, url, path).agg(f.count("*"), f.sum("v")).first() == (1500, 2500)


def test_a_dataframe_reads_an_altered_table_and_refuses_another_table_at_its_path(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, pivot_keys=FOUR_TABLETS)
    write(pairs(spark, 0, 1000, value=1), url, path)
    frame = read(spark, url, path)
    db.unmount_table(path)
    db.alter_table(path, [*PAIRS, {"name": "w", "type": "utf8"}])
    db.mount_table(path)
    assert frame.columns == ["k", "v"]
    assert frame.agg(f.count("*"), f.sum("v")).first() == (1000, 1000)
    db.remove_table(path)
    create(db, path, [PAIRS[0], {"name": "v", "type": "utf8"}])
    db.insert_rows(path, [{"k": 1, "v": "another"}])
    assert f"another table is at {path}" in complaint(frame.collect)


# ---- what is read of a table


def test_a_range_of_keys(spark: SparkSession, url: str, mixed: str) -> None:
    def read_range(ends: str) -> list[tuple[Any, ...]]:
        return [
            tuple(row) for row in read(spark, url, mixed, keyRange=ends).select("k", "t").collect()
        ]

    everything = read_range("{}")
    assert len(everything) == len({(row["k"], row["t"]) for row in mixed_rows()})
    assert read_range('{"lower": [-3, "ab"], "upper": [30]}') == [
        row for row in everything if row[0] is not None and (-3, "ab") <= row < (30,)
    ]
    assert read_range('{"upper": [-49]}') == [
        row for row in everything if row[0] is None or row[0] < -49
    ]
    assert read_range('{"lower": [5], "upper": [5]}') == []
    text = complaint(lambda: read(spark, url, mixed, key_range='{"lower": ["x"]}'))
    assert "SchemaViolation: column 'k' takes an int, not str" in text


def test_the_filter_option_limits_the_rows_and_tablets_that_are_read(
    spark: SparkSession, url: str, mixed: str
) -> None:
    frame = read(spark, url, mixed, columns="t,k", filter="k between 5 and 9 and t like 'x%'")
    assert frame.columns == ["k", "t"]
    assert frame.rdd.getNumPartitions() == 1, "other tablets have no such keys"
    rows = [row for row in mixed_rows() if row["k"] is not None and 5 <= row["k"] <= 9]
    expected = sorted((row["k"], row["t"]) for row in rows if row["t"].startswith("x"))
    assert [tuple(row) for row in frame.collect()] == expected
    by_value = read(spark, url, mixed, columns="k,t", filter="u = 18446744073709551615")
    rows = [row for row in mixed_rows() if row["u"] == (1 << 64) - 1]
    assert {tuple(row) for row in by_value.collect()} == {(row["k"], row["t"]) for row in rows}
    assert read(spark, url, mixed, filter="a->>'n' = '5'").count() == 1
    assert read(spark, url, mixed, filter="k > 5 and k < 3").collect() == []
    both = read(spark, url, mixed, filter="k > 0", key_range='{"upper": [3]}')
    assert set(keys(both)) == {1, 2}


def test_a_filter_that_is_none_is_refused_at_load(
    spark: SparkSession, url: str, mixed: str
) -> None:
    text = complaint(lambda: read(spark, url, mixed, filter="k = (select 1)"))
    assert "InvalidRequest: a filter is one condition over the columns of a row" in text
    assert 'column "x" not found' in complaint(lambda: read(spark, url, mixed, filter="x = 1"))
    frame = read(spark, url, mixed, filter="10 // (k - 5) > 0")
    assert "Division by zero" in complaint(frame.collect)


def test_versions_and_times_of_day(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, atomicity="full")
    db.insert_rows(path, [{"k": 1, "v": 1}])
    time.sleep(2.1)  # timestamps and times of day agree within about a second
    moment = datetime.now(UTC)
    at = db.generate_timestamp()
    time.sleep(2.1)
    db.insert_rows(path, [{"k": 1, "v": 2}])
    for option, value in (
        ("timestamp", moment.isoformat()),
        ("timestampAsOf", moment.isoformat().replace("+00:00", "Z")),
        ("versionAsOf", str(at)),
    ):
        assert read(spark, url, path, **{option: value}).collect() == [(1, 1)]
    assert read(spark, url, path, timestamp="latest").collect() == [(1, 2)]
    future = read(spark, url, path, timestamp=str(at + (1 << 50)))
    assert "InvalidRequest: The read timestamp is in the future." in complaint(future.collect)


def test_every_value_survives_the_way_there_and_back(
    spark: SparkSession, db: dodona.Client, url: str, path: str, mixed: str
) -> None:
    there = read(spark, url, mixed)
    create(db, path, MIXED)
    write(there, url, path)
    back = read(spark, url, path)
    for frame in (there, back):
        found = {(row.k, row.t): row for row in frame.collect()}
        assert len(found) == frame.count()
        for row in {(it["k"], it["t"]): it for it in mixed_rows()}.values():
            seen = found[row["k"], row["t"]]
            assert repr(seen.d) == repr(row["d"]), "-0.0 and NaN too"
            assert (seen.u, seen.b) == (None if row["u"] is None else Decimal(row["u"]), row["b"])
            assert seen.s == row["s"]
            assert (None if seen.a is None else msgspec.msgpack.decode(seen.a)) == row["a"]


# ---- filters of the DataFrame

CONDITIONS = [
    "k = 7",
    "k >= -3 and k < 12 and t > 'x'",
    "k in (1, 2, 99) or t = 'ab'",
    "k in (5, 6, 99)",
    "not k in (5, 6, 99)",
    "k is null",
    "k is not null and t like 'x1%'",
    "t like '%1'",
    "t like '%1%'",
    "k <=> 5",
    "k <=> null",
    "k = 5 and t = 'x110'",
    "u = 18446744073709551615",
    "u > 9223372036854775807",
    "u <= 1",
    "d > 1",
    "d >= 0",
    "not d > 1",
    "d < 0",
    "d = 0",
    "d = double('NaN')",
    "d != double('NaN')",
    "d <=> double('NaN')",
    "d in (0.0, double('NaN'), 1.5)",
    "b",
    "not b",
    "b is null",
    "s = X'00ff'",
    "s > X'00'",
    "s != X''",
    "a = X'c3'",
    "length(t) > 2 and k > 40",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_keep_the_same_rows_pushed_down_or_not(
    spark: SparkSession, url: str, mixed: str, pushed: None, condition: str
) -> None:
    frame = read(spark, url, mixed)
    kept = [repr(row) for row in frame.where(condition).collect()]
    everything = frame.collect()
    local = spark.createDataFrame(everything, frame.schema)
    assert sorted(kept) == sorted(repr(row) for row in local.where(condition).collect())
    read_without = read(spark, url, mixed, pushdown="false")
    assert sorted(kept) == sorted(repr(row) for row in read_without.where(condition).collect())


KINDS = {"k": "Int64", "t": "string", "u": "UInt64", "d": "Float64", "b": "boolean"}
PANDAS_CONDITIONS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "k >= -3 and k < 12 and t > 'x'": lambda it: (it.k >= -3) & (it.k < 12) & (it.t > "x"),
    "u > 9223372036854775807": lambda it: it.u > (1 << 63) - 1,
    "d < 0": lambda it: it.d < 0,
    "t like 'x1%' and b": lambda it: it.t.str.startswith("x1") & it.b,
}


@pytest.mark.parametrize("condition", PANDAS_CONDITIONS)
def test_a_pushed_filter_keeps_the_same_rows_as_pandas(
    spark: SparkSession, url: str, mixed: str, pushed: None, condition: str
) -> None:
    rows = {(row["k"], row["t"]): row for row in mixed_rows()}
    table = pd.DataFrame(list(rows.values()), columns=list(KINDS), dtype="object").astype(KINDS)
    expected = table[PANDAS_CONDITIONS[condition](table).fillna(False)]
    found = read(spark, url, mixed).where(condition).select("k", "t").collect()
    assert found
    expected_keys = zip(expected.k.fillna(-1000), expected.t, strict=True)
    assert {(-1000 if k is None else k, t) for k, t in found} == set(expected_keys)


def plan_of(frame: DataFrame) -> str:
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return str(plan)


def test_spark_does_not_repeat_a_filter_that_was_pushed_down(
    spark: SparkSession, url: str, mixed: str, pushed: None
) -> None:
    frame = read(spark, url, mixed).where("k = 7 and d > 1 and length(t) > 2")
    assert "Filter (length(t" in plan_of(frame)
    assert "(k" not in plan_of(frame).split("BatchScan")[0]
    assert frame.rdd.getNumPartitions() == 1, "one tablet has that key"
    refused = read(spark, url, mixed, pushdown="false").where("k = 7 and d > 1")
    spark.conf.set(SWITCH, "false")
    for without in (refused, read(spark, url, mixed).where("k = 7 and d > 1")):
        assert "Filter" in plan_of(without)
        assert without.rdd.getNumPartitions() == 4


def test_pushdown_that_is_switched_off_can_t_be_asked_for(
    spark: SparkSession, url: str, mixed: str
) -> None:
    frame = read(spark, url, mixed, pushdown="true")
    assert SWITCH in complaint(frame.where("k = 7").collect)


# ---- what is held


def readers(cluster: LocalCluster) -> int:
    """How many hold snapshots in the cells of the cluster."""
    found = 0
    for node in cluster.node_urls:
        with urllib.request.urlopen(f"{node}/v1/statistics") as page:
            found += msgspec.json.decode(page.read())["cell"]["readers"]
    return found


def test_a_dataframe_holds_its_snapshot_from_its_load_and_a_write_holds_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In a cluster of its own: in another one, leases of other tests' readers may end meanwhile."""
    path = "//held"
    with LocalCluster(tmp_path / "data") as own:
        url = own.master_url
        with dodona.connect(url) as db:
            create(db, path, PAIRS)
        write(pairs(spark, 0, 10), url, path)
        assert readers(own) == 0
        frame = read(spark, url, path)
        assert readers(own) == 1
        assert frame.count() == frame.count() == 10
        assert readers(own) == 1, "all processes of a read are one reader"
        with_schema = spark.read.format("dodona").options(url=url).schema(frame.schema).load(path)
        assert readers(own) == 1, "nothing is asked of the table yet"
        assert with_schema.count() == 10
        assert readers(own) == 2
        write(pairs(spark, 10, 20), url, path)
        assert with_schema.where("k >= 0").count() == 10, "it is pinned from its first use"


def hasty(plans: list[Plan]) -> list[Plan]:
    """Nodes whose cells let old versions go within seconds."""
    return [
        plan.with_option("--transaction-life-s-max", "1").with_option("--reader-renewal-s-max", "1")
        if "tablets" in plan.module
        else plan
        for plan in plans
    ]


def is_kept(db: dodona.Client, path: str, at: int) -> bool:
    """Writes once more, so that there is something to let go of."""
    db.insert_rows(path, [{"k": 1, "v": 3}])
    try:
        db.select(path, timestamp=dodona.Timestamp(at))
    except SnapshotTooOld:
        return False
    return True


def test_retention_keeps_the_snapshot_of_a_dataframe_until_its_lease_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    at_once = {"min_data_ttl": 0, "max_data_ttl": 0, "dynamic_store_auto_flush_period": 1_000}
    with LocalCluster(tmp_path / "data", arrange=hasty) as hasty_cluster:
        url, path = hasty_cluster.master_url, "//held"
        with dodona.connect(url) as db:
            attributes = {**at_once, "merge_rows_on_flush": True}
            create(db, path, PAIRS, atomicity="full", attributes=attributes)
            db.insert_rows(path, [{"k": 1, "v": 1}])
            before = db.generate_timestamp()
            db.insert_rows(path, [{"k": 1, "v": 2}])
            frame = read(spark, url, path, lease_s="10")
            pinned = db.generate_timestamp()
            read_s = time.monotonic()
            while is_kept(db, path, before):
                if time.monotonic() - read_s > 3:
                    read_s = time.monotonic()
                    assert frame.collect() == [(1, 2)], "reading it renews it"
                time.sleep(0.5)
            assert frame.collect() == [(1, 2)], "what nobody holds has gone, and this has not"
            while is_kept(db, path, pinned):
                time.sleep(0.5)
            text = complaint(frame.collect)
            assert "SnapshotTooOld: " in text
            assert "Call load() again, and pass no timestamp or a newer one." in text
            assert "SnapshotTooOld: " in complaint(
                lambda: read(spark, url, path, timestamp=str(pinned))
            )
