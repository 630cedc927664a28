"""Changes in Spark, as a stream and as a frame, against a real cluster.

Owns: streams that really run, and what becomes of them after failures and restarts. Offsets, limits
and leases are looked at without Spark in unit/spark/test_stream.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import dodona
from integration.frames import FOUR_TABLETS, PAIRS, complaint, create, read

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ANSWER_S = 120
Version = tuple[int, int | None, str]


class Sink:
    """What micro-batches brought. Of one that is repeated, each time."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.batches: dict[int, list[list[Row]]] = {}
        self.fails_at = fails_at

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches.setdefault(number, []).append(frame.collect())
        if number == self.fails_at:
            raise ZeroDivisionError("the sink is full")

    @property
    def rows(self) -> list[Row]:
        return [row for _, tries in sorted(self.batches.items()) for row in tries[-1]]

    @property
    def versions(self) -> list[Version]:
        return [(it.k, it._commit_timestamp, it._change_type) for it in self.rows]


def stream(spark: SparkSession, url: str, path: str, **options: str) -> DataFrame:
    given = {"url": url, "starting_timestamp": "earliest", **options}
    return spark.readStream.format("dodona").options(**given).load(path)


def begin(frame: DataFrame, folder: Path, sink: Sink, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def run(frame: DataFrame, folder: Path, sink: Sink) -> None:
    """All that there is, and no more."""
    assert begin(frame, folder, sink).awaitTermination(ANSWER_S)


@contextmanager
def running(frame: DataFrame, folder: Path, sink: Sink) -> Iterator[StreamingQuery]:
    """For the length of a block, at the end of which all that was written has come."""
    query = begin(frame, folder, sink, processingTime="0 seconds")
    try:
        yield query
        query.processAllAvailable()
    finally:
        query.stop()


def write(db: dodona.Client, path: str, value: int, *keys: int) -> list[Version]:
    at = db.insert_rows(path, [{"k": key, "v": value} for key in keys])
    return [(key, at, "write") for key in keys]


def delete(db: dodona.Client, path: str, *keys: int) -> list[Version]:
    at = db.delete_rows(path, [{"k": key} for key in keys])
    return [(key, at, "delete") for key in keys]


def flush(db: dodona.Client, path: str) -> None:
    """All rows into chunks."""
    db.freeze_table(path)
    db.unfreeze_table(path)


def test_a_restarted_query_continues_where_the_last_query_ended(
    spark: SparkSession, db: dodona.Client, url: str, path: str, tmp_path: Path
) -> None:
    create(db, path, PAIRS, atomicity="full", pivot_keys=FOUR_TABLETS)
    sink = Sink()
    expected = write(db, path, 1, 1, 150, 350)
    expected += write(db, path, 2, 150)
    run(stream(spark, url, path), tmp_path, sink)
    assert sink.versions == expected
    expected += delete(db, path, 1, 350)
    flush(db, path)
    expected += write(db, path, 3, 2)
    db.unmount_table(path)
    db.reshard_table(path, [[], [150]])
    db.mount_table(path)
    expected += delete(db, path, 2)
    for _ in range(2):
        run(stream(spark, url, path), tmp_path, sink)
        assert sink.versions == expected
    assert sorted(sink.batches) == [0, 1]
    assert [(row.v, row._changed_columns) for row in sink.rows[3:6]] == [
        (2, None),
        (None, None),
        (None, None),
    ]


def test_a_failed_micro_batch_is_repeated_with_the_same_rows(
    spark: SparkSession, db: dodona.Client, url: str, path: str, tmp_path: Path
) -> None:
    create(db, path, PAIRS, atomicity="full", pivot_keys=FOUR_TABLETS)
    expected = [write(db, path, at, at, 100 + at, 200 + at) for at in range(6)]
    frame = stream(spark, url, path, max_rows_per_batch="7")
    sink = Sink(fails_at=1)
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        run(frame, tmp_path, sink)
    expected.append(write(db, path, 7, 0, 100))
    flush(db, path)
    sink.fails_at = None
    run(frame, tmp_path, sink)
    first, again = sink.batches[1]
    assert first == again
    assert len(first) == 6
    assert sink.versions == [it for versions in expected for it in versions]


def test_a_query_that_failed_in_its_first_batch_keeps_its_starting_timestamp(
    spark: SparkSession, db: dodona.Client, url: str, path: str, tmp_path: Path
) -> None:
    """And not where it is begun anew."""
    create(db, path, PAIRS, atomicity="full")
    write(db, path, 1, 1)
    frame = stream(spark, url, path, starting_timestamp="latest")
    sink = Sink(fails_at=0)
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        run(frame, tmp_path, sink)
    expected = write(db, path, 2, 1)
    sink.fails_at = None
    run(frame, tmp_path, sink)
    assert sink.versions == expected


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_a_stream_misses_no_change_while_its_table_is_resharded_and_flushed(
    spark: SparkSession, db: dodona.Client, url: str, path: str, tmp_path: Path, atomicity: str
) -> None:
    path = f"{path}_{atomicity}"
    create(db, path, PAIRS, atomicity=atomicity, pivot_keys=FOUR_TABLETS)
    dice, sink, expected = Random(4), Sink(), [*write(db, path, 0, 7)]

    def write_some() -> None:
        for _ in range(20):
            keys = sorted({dice.randrange(400) for _ in range(dice.randrange(1, 9))})
            way = delete if dice.random() < 0.3 else write
            expected.extend(
                delete(db, path, *keys)
                if way is delete
                else write(db, path, dice.randrange(9), *keys)
            )

    cuts: list[list[list[int]]] = [[[], [50], [300]], [[]]]
    for pivots in cuts:
        with running(stream(spark, url, path, max_rows_per_batch="20"), tmp_path, sink):
            write_some()
            db.unmount_table(path)
            db.reshard_table(path, pivots)
            db.mount_table(path)
            write_some()
            flush(db, path)
        write_some()
    run(stream(spark, url, path), tmp_path, sink)
    assert sorted(sink.versions) == sorted(expected)
    stamps = [max(it._commit_timestamp for it in tries[-1]) for tries in sink.batches.values()]
    assert stamps == sorted(stamps)
    rows: dict[int, int | None] = {}
    for row in sink.rows:
        rows[row.k] = row.v
    left = {key: value for key, value in rows.items() if value is not None}
    assert left == {row["k"]: row["v"] for row in db.select(path)}


def test_updates_and_aggregates_name_their_changed_columns(
    spark: SparkSession, db: dodona.Client, url: str, path: str, tmp_path: Path
) -> None:
    schema = [*PAIRS, {"name": "sum", "type": "uint64", "aggregate": "sum"}]
    create(db, path, schema, atomicity="full")
    db.insert_rows(path, [{"k": 1, "v": 1, "sum": 2}])
    db.insert_rows(path, [{"k": 1, "sum": 3}], update=True, aggregate=True)
    db.insert_rows(path, [{"k": 1, "v": 4}], update=True)
    sink = Sink()
    run(stream(spark, url, path), tmp_path, sink)
    rows = [(it.v, it.sum, it._changed_columns, it._aggregated_columns) for it in sink.rows]
    assert rows == [(1, 2, None, None), (None, 3, ["sum"], ["sum"]), (4, None, ["v"], None)]
    some = Sink()
    run(stream(spark, url, path, columns="v"), tmp_path / "some", some)
    assert [row.asDict() for row in some.rows][1] == {
        "v": None,
        "_commit_timestamp": sink.rows[1]._commit_timestamp,
        "_change_type": "update",
        "_changed_columns": [],
    }


def test_errors_reach_the_driver(
    spark: SparkSession, db: dodona.Client, url: str, path: str, tmp_path: Path
) -> None:
    create(db, path, PAIRS, atomicity="full")
    write(db, path, 1, 1)
    plain = spark.readStream.format("dodona").option("url", url).load(path)
    text = complaint(lambda: run(plain, tmp_path / "plain", Sink()))
    assert "ask for changes by option('versioned', 'true')" in text
    assert "a stream read has no option 'filter'" in complaint(
        lambda: stream(spark, url, path, filter="k > 1")
    )
    sink = Sink()
    frame = spark.readStream.format("dodona").options(url=url, versioned="true").load(path)
    run(frame, tmp_path, sink)
    assert sink.rows == []
    db.remove_table(path)
    create(db, path, PAIRS, atomicity="full")
    again = spark.readStream.format("dodona").options(url=url, versioned="true").load(path)
    text = complaint(lambda: run(again, tmp_path, sink))
    assert "was replaced since the stream began" in text


def test_all_versions_are_a_frame(
    spark: SparkSession, db: dodona.Client, url: str, path: str
) -> None:
    create(db, path, PAIRS, atomicity="full", pivot_keys=FOUR_TABLETS)
    expected = write(db, path, 1, 1, 150)
    flush(db, path)
    then = db.generate_timestamp()
    expected += write(db, path, 2, 1)
    frame = read(spark, url, path, versioned="true", split_rows="1")
    expected += delete(db, path, 150)
    names = ["k", "_commit_timestamp", "_change_type"]

    def found(of: DataFrame) -> list[Version]:
        return sorted((row[0], row[1], row[2]) for row in of.select(names).collect())

    assert found(frame) == sorted(expected[:3])
    frame = read(spark, url, path, versioned="true")
    assert frame.columns == [*[it["name"] for it in PAIRS], *names[1:], "_changed_columns"]
    assert found(frame) == sorted(expected)
    assert found(frame.where("_change_type = 'delete'")) == expected[3:]
    assert found(read(spark, url, path, versioned="true", timestamp=str(then))) == expected[:2]
    narrow = {"versioned": "true", "filter": "k > 100 and v = 1", "columns": "k"}
    assert found(read(spark, url, path, **narrow)) == expected[1:2]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = read(spark, url, path, versioned="true").where("k = 1 and v = 2")
        assert found(pushed) == expected[2:3]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
