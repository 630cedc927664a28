"""Spark in the studies: one session with a DataFrame in memory, and the places to write it to.

Owns: the session, which all contenders share, and the rows. A row has an int64 key, a double, an
int64 and two strings, 104 bytes as Arrow. Rows are in no order. The key decides all values of a
row. The strings are hexadecimal digits of hashes, so that no system gains much by compressing them.
"""

import asyncio
import functools
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from dodona_loadtest.harness.errors import ContenderFailed, ContenderMissing, client_library
from dodona_loadtest.harness.sample_rows import POSTGRES_COPY_HEADER, POSTGRES_COPY_TRAILER
from dodona_loadtest.peers.postgres import USER, connect_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW_BYTES: Final = 104
TABLETS: Final = 8
CODE_BYTES: Final = 32
NOTE_BYTES: Final = 40
STRIDE: Final = 1_000_003
"""A prime: consecutive rows have keys that are far from each other."""
DRIVER_MEMORY: Final = "4g"
UNMEASURED_BATCHES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
"""`bulk_write` sets it for itself; the other contenders get it, too."""
SCHEMA: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "amount", "type": "double"},
    {"name": "count", "type": "int64"},
    {"name": "code", "type": "utf8"},
    {"name": "note", "type": "utf8"},
]
DRIVERS: Final = (
    (Path.home() / ".m2" / "repository", "org/postgresql/postgresql/*/postgresql-*.jar"),
    (Path("/usr/share/java"), "postgresql.jar"),
)
"""Where Maven and Debian keep PostgreSQL's driver for Java."""
JDBC_BATCH_ROWS: Final = 10_000
CREATE_TABLE: Final = (
    "CREATE TABLE {table} (id bigint PRIMARY KEY, amount double precision, count bigint, "
    "code text, note text)"
)
_COPY_ROW: Final = numpy.dtype(
    [
        ("columns", ">i2"),
        *[("id_bytes", ">i4"), ("id", ">i8")],
        *[("amount_bytes", ">i4"), ("amount", ">f8")],
        *[("count_bytes", ">i4"), ("count", ">i8")],
        *[("code_bytes", ">i4"), ("code", f"S{CODE_BYTES}")],
        *[("note_bytes", ">i4"), ("note", f"S{NOTE_BYTES}")],
    ]
)


class Frame:
    """The session, and the rows."""

    def __init__(self, row_count: int) -> None:
        """Start Spark and make the rows. Raises ContenderMissing without Spark or Java."""
        self.spark = _session()
        self.row_count = row_count
        self.pivot_keys = [[], *([at * row_count // TABLETS] for at in range(1, TABLETS))]
        self.frame = _rows(self.spark, row_count).cache()
        if self.frame.count() != row_count:
            raise ContenderFailed("Spark did not make the rows that were asked for")

    @property
    def version(self) -> str:
        """The version for the report."""
        master = self.spark.sparkContext.master
        return f"Spark {self.spark.version}, {master}"

    def arranged(self) -> "DataFrame":
        """Return the rows partitioned and sorted as `bulk_write` does it."""
        from dodona_wire.rows.schema import TableSchema
        from pyspark_dodona.bulk import arranged
        from pyspark_dodona.partitioning import KeyColumns, Partitioning

        keys = KeyColumns(TableSchema.parse(SCHEMA).columns, self.frame.schema, "//bench/spark")
        bounds = tuple(tuple(it) for it in self.pivot_keys[1:])
        return arranged(self.frame, keys, Partitioning(bounds, 1))

    def check_rows(self, frame: "DataFrame") -> None:
        """Read all of a DataFrame and keep nothing. Raises ContenderFailed if rows are missing."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        counted = Observation()
        counts = f.count(f.lit(1)).alias("rows"), f.sum(f.length("note")).alias("characters")
        frame.observe(counted, *counts).write.format("noop").mode("overwrite").save()
        found = counted.get
        if found != {"rows": self.row_count, "characters": self.row_count * NOTE_BYTES}:
            raise ContenderFailed(f"of {self.row_count} rows it read {found}")

    def write_parquet(self, folder: Path) -> None:
        """Write the rows sorted by key, a file for each partition. Nothing is synced to disk."""
        self.arranged().write.parquet(str(folder))

    def copy_to_postgres(self, port: int, table: str) -> None:
        """Write each partition by a COPY in its own binary format: one transaction each."""

        def copy(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            count = asyncio.run(_copy(port, table, batches))
            yield pyarrow.record_batch({"count": pyarrow.array([count], pyarrow.int64())})

        self.spark.conf.set(UNMEASURED_BATCHES, str((1 << 31) - 1))
        try:
            found = self.arranged().mapInArrow(copy, "count bigint").collect()
        finally:
            self.spark.conf.unset(UNMEASURED_BATCHES)
        if sum(row[0] for row in found) != self.row_count:
            raise ContenderFailed("rows were not copied")

    def insert_into_postgres(self, port: int, table: str) -> None:
        """Write the rows by Spark's own way, JDBC, with the settings that are known to make it
        fast. Raises ContenderMissing."""
        if jdbc_driver() is None:
            places = " or ".join(str(folder / pattern) for folder, pattern in DRIVERS)
            raise ContenderMissing(f"PostgreSQL's driver for Java is not in {places}")
        properties = {
            "user": USER,
            "driver": "org.postgresql.Driver",
            "batchsize": str(JDBC_BATCH_ROWS),
            "reWriteBatchedInserts": "true",
        }
        url = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
        self.arranged().write.jdbc(url, table, "append", properties)


@functools.cache
def shared_frame(row_count: int) -> Frame:
    """Return the rows, in the one session of this process. The first caller starts it, and both
    last as long as the process. Raises ContenderError."""
    return Frame(row_count)


def sync_files(folder: Path) -> None:
    """Sync files, because Spark does not: after this no crash takes them away."""
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def jdbc_driver() -> Path | None:
    """Return the last driver by its name of those that Maven or Debian have installed."""
    for folder, pattern in DRIVERS:
        for path in sorted(folder.glob(pattern), reverse=True):
            return path
    return None


def _session() -> "SparkSession":
    client_library("pyspark")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise ContenderMissing("Spark needs Java, and there is no `java`")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    cores = len(os.sched_getaffinity(0))
    driver = jdbc_driver()
    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench")
    for name, value in {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **({} if driver is None else {"spark.jars": str(driver)}),
    }.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise ContenderFailed(f"Spark does not start: {error}") from error


def _rows(spark: "SparkSession", count: int) -> "DataFrame":
    from pyspark.sql import functions as f

    key = (f.col("id") * STRIDE) % count  # the prime divides no count below it
    keys = spark.range(0, count, 1, TABLETS).select(key.alias("id"))
    hashed = f.xxhash64("id")
    text = hashed.cast("string")
    return keys.select(
        "id",
        (hashed / float(1 << 63)).alias("amount"),
        hashed.alias("count"),
        f.md5(text.cast("binary")).alias("code"),
        f.sha1(text.cast("binary")).alias("note"),
    )


async def _copy(port: int, table: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
    """Copy rows, in a task. Return how many."""
    count = 0

    async def source() -> AsyncIterator[bytes]:
        nonlocal count
        yield POSTGRES_COPY_HEADER
        for batch in batches:
            count += batch.num_rows
            yield copy_data(batch)
        yield POSTGRES_COPY_TRAILER

    (connection,) = await connect_all(port, 1)
    try:
        names = [column["name"] for column in SCHEMA]
        await connection.copy_to_table(table, source=source(), columns=names, format="binary")
    finally:
        await connection.close()
    return count


def copy_data(batch: pyarrow.RecordBatch) -> bytes:
    """Return rows in the fastest form for PostgreSQL's COPY, without a Python object for each."""
    records = numpy.empty(batch.num_rows, _COPY_ROW)
    records["columns"] = len(SCHEMA)
    for name in ("id", "amount", "count"):
        records[f"{name}_bytes"] = 8
        records[name] = batch.column(name).to_numpy()
    for name, size_bytes in (("code", CODE_BYTES), ("note", NOTE_BYTES)):
        text = batch.column(name).cast(pyarrow.binary()).cast(pyarrow.binary(size_bytes))
        start = text.offset * size_bytes
        raw = numpy.frombuffer(text.buffers()[1], f"S{size_bytes}", len(text), start)
        records[f"{name}_bytes"] = size_bytes
        records[name] = raw
    return records.tobytes()
