"""Streams that are written to a table: each micro-batch counts once, whatever is run again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import dodona

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PAIRS = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
APPLICATIONS = "//sys/load_applications"


class Stream:
    """Files that come into a folder, one micro-batch each, on their way to a table."""

    def __init__(self, spark: SparkSession, folder: Path, url: str, table: str) -> None:
        self._spark = spark
        self.folder = folder / "files"
        self.folder.mkdir()
        self.checkpoint = folder / "checkpoint"
        self._options = {"url": url, "checkpointLocation": str(self.checkpoint)}
        self._table = table
        self._count = 0

    def bring(self, rows: dict[int, int]) -> None:
        """One more file."""
        self._count += 1
        text = "".join(f'{{"k": {key}, "v": {value}}}\n' for key, value in rows.items())
        (self.folder / f"{self._count:03}.json").write_text(text)

    def run(self, **options: str) -> str:
        """Take all there is, and end. → the query's own name. Raises what the query ended with."""
        files = self._spark.readStream.schema("k bigint, v bigint")
        rows = files.option("maxFilesPerTrigger", "1").json(str(self.folder))
        writer = rows.writeStream.format("dodona").options(**{**self._options, **options})
        query = writer.trigger(availableNow=True).start(self._table)
        query.awaitTermination(120)
        assert not query.isActive, "the stream does not end"
        return str(query.id)


@pytest.fixture
def stream(
    spark: SparkSession, db: dodona.Client, url: str, path: str, tmp_path: Path
) -> Iterator[Callable[..., Stream]]:
    def make(atomicity: Any = "full") -> Stream:
        db.create_table(path, PAIRS, atomicity=atomicity, pivot_keys=[[], [10]], mount=True)
        return Stream(spark, tmp_path, url, path)

    yield make
    db.remove(path)


def rows_of(db: dodona.Client, table: str) -> dict[int, int]:
    return {row["k"]: row["v"] for row in db.select(table)}


def version_of(db: dodona.Client, application: str, path: str) -> tuple[int, str]:
    (row,) = db.lookup_rows(APPLICATIONS, [{"application": application, "path": path}])
    return row["version"], row["query"]


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_a_stream_that_is_started_again_goes_on(
    db: dodona.Client, path: str, stream: Callable[..., Stream], atomicity: str
) -> None:
    files = stream(atomicity)
    files.bring({1: 1, 20: 20})
    files.bring({2: 2})
    first = files.run(atomicity=atomicity)
    files.bring({1: 100})
    assert files.run(atomicity=atomicity) == first
    assert rows_of(db, path) == {1: 100, 2: 2, 20: 20}
    if atomicity == "full":
        assert version_of(db, first, path) == (2, first)


def test_a_batch_that_spark_runs_again_is_not_written_again(
    db: dodona.Client, path: str, stream: Callable[..., Stream]
) -> None:
    """As after a driver that died between our commit and Spark's note of it."""
    files = stream()
    files.bring({1: 1})
    files.bring({2: 2})
    files.run(txn_app_id="app")
    db.insert_rows(path, [{"k": 2, "v": 22}])
    for name in ("1", ".1.crc"):
        (files.checkpoint / "commits" / name).unlink()
    files.bring({3: 3})
    files.run(txn_app_id="app")
    assert rows_of(db, path) == {1: 1, 2: 22, 3: 3}
    assert version_of(db, "app", path)[0] == 2
    assert [it.state for it in db.loads.list_loads() if path in it.tables].count("aborted") == 1


def test_a_stream_without_its_checkpoint_starts_over_and_duplicates_no_row(
    db: dodona.Client, path: str, stream: Callable[..., Stream]
) -> None:
    files = stream()
    files.bring({1: 1})
    files.bring({2: 2})
    first = files.run(txn_app_id="again")
    files.checkpoint.rename(files.checkpoint.with_name("lost"))
    files.bring({3: 3})
    second = files.run(txn_app_id="again")
    assert second != first
    assert rows_of(db, path) == {1: 1, 2: 2, 3: 3}
    assert version_of(db, "again", path) == (2, second)
    files.checkpoint.rename(files.checkpoint.with_name("lost too"))
    with pytest.raises(PySparkException, match="is there already"):
        files.run(txn_app_id="again", write_mode="insert")
    assert rows_of(db, path) == {1: 1, 2: 2, 3: 3}


def test_two_streams_of_one_name_do_not_go_unnoticed(
    db: dodona.Client, path: str, stream: Callable[..., Stream]
) -> None:
    files = stream()
    files.bring({1: 1})
    files.run(txn_app_id="shared")
    other = files.checkpoint.with_name("other")
    files.run(txn_app_id="shared", checkpointLocation=str(other))
    files.bring({2: 2})
    with pytest.raises(
        PySparkException, match="ConcurrentTransaction: Another query now uses application 'shared'"
    ):
        files.run(txn_app_id="shared")
    assert rows_of(db, path) == {1: 1}
    files.run(txn_app_id="shared", checkpointLocation=str(other))
    assert rows_of(db, path) == {1: 1, 2: 2}


def test_an_option_that_streams_do_not_have_is_refused(stream: Callable[..., Stream]) -> None:
    files = stream()
    files.bring({1: 1})
    with pytest.raises(PySparkException, match="no option 'txn_version'"):
        files.run(txn_app_id="app", txn_version="3")


@pytest.mark.parametrize("name", ["txn_app_id", "txnAppId"])
def test_a_batch_that_is_saved_to_two_tables_is_in_both_once(
    spark: SparkSession,
    db: dodona.Client,
    url: str,
    path: str,
    stream: Callable[..., Stream],
    name: str,
) -> None:
    """As Delta Lake's documents show it (delta #1141, #1421)."""
    files, second = stream(), f"{path}-2"
    db.create_table(second, PAIRS, mount=True)

    def save(frame: DataFrame, batch: int) -> None:
        version = {"txn_app_id": "txn_version"}.get(name, "txnVersion")
        for table in (path, second):
            writer = frame.write.format("dodona").mode("append").option("url", url)
            writer.options(**{name: f"both by {name}", version: str(batch)}).save(table)

    def run() -> None:
        rows = spark.readStream.schema("k bigint, v bigint").json(str(files.folder))
        writer = rows.writeStream.foreachBatch(save).trigger(availableNow=True)
        writer.option("checkpointLocation", str(files.checkpoint)).start().awaitTermination(120)

    files.bring({1: 1})
    run()
    assert rows_of(db, path) == rows_of(db, second) == {1: 1}
    db.insert_rows(second, [{"k": 1, "v": 7}])
    (files.checkpoint / "commits" / "0").unlink()
    (files.checkpoint / "commits" / ".0.crc").unlink()
    run()
    assert (rows_of(db, path), rows_of(db, second)) == ({1: 1}, {1: 7})
    db.remove(second)
