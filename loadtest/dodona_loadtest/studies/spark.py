"""Study: a DataFrame of Spark's into a table and back."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import dodona
import dodona.spark
from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.peak_memory import peak_memory
from dodona_loadtest.harness.rounds import rest
from dodona_loadtest.harness.servers import cpu_seconds
from dodona_loadtest.harness.study import (
    Bound,
    Effort,
    Figures,
    Measure,
    Performance,
    Performer,
    Study,
)
from dodona_loadtest.harness.worker_process import Spent
from dodona_loadtest.peers import dodona as peer
from dodona_loadtest.peers import postgres
from dodona_loadtest.peers.dodona_storage import MOUNT_MS_MAX, node_pid
from dodona_loadtest.peers.spark import (
    CREATE_TABLE,
    ROW_BYTES,
    SCHEMA,
    Frame,
    jdbc_driver,
    shared_frame,
    sync_files,
)
from dodona_wire.errors import DodonaError
from dodona_wire.types import Atomicity

ROWS: Final = 2_000_000

PLAIN: Final = "written, durable, as it comes"
PLAIN_MB: Final = "as it comes, in bytes"
PLAIN_PER_CORE: Final = "as it comes, per core"
ATOMIC: Final = "written, durable, all at once"
ATOMIC_MB: Final = "all at once, in bytes"
ATOMIC_PER_CORE: Final = "all at once, per core"
UNSYNCED: Final = "written, not synced"
READ: Final = "read back"
READ_PER_CORE: Final = "read back, per core"
MEMORY: Final = "private memory of the node, at most"
"""The figure is that of the worst round."""


_IN_BYTES: Final = {PLAIN: PLAIN_MB, ATOMIC: ATOMIC_MB}
_PER_CORE: Final = {PLAIN: PLAIN_PER_CORE, ATOMIC: ATOMIC_PER_CORE, READ: READ_PER_CORE}


def _figures(frame: Frame, costs: Mapping[str, Spent]) -> Figures:
    """Return rows a second of each piece of work, of the clock and of processor time. For work that
    writes, return megabytes too."""
    figures = {}
    for name, spent in costs.items():
        figures[name] = frame.row_count / spent.duration_s
        if name in _IN_BYTES:
            figures[_IN_BYTES[name]] = figures[name] * ROW_BYTES / 1e6
        if name in _PER_CORE:
            figures[_PER_CORE[name]] = frame.row_count / max(spent.cpu_s, 0.001)
    return figures


def _spent(work: Callable[[], object]) -> Spent:
    """Return the time that the work takes. The processor time includes Spark and all servers, which
    are descendants of this process. Raises ContenderFailed for errors of Spark or Dodona."""
    from pyspark.errors import PySparkException

    began_s, began_cpu_s = time.perf_counter(), cpu_seconds([os.getpid()])
    try:
        work()
    except (PySparkException, DodonaError) as error:
        raise ContenderFailed(str(error).strip().splitlines()[0]) from error
    return Spent(time.perf_counter() - began_s, cpu_seconds([os.getpid()]) - began_cpu_s)


def _warmed(version: str, perform: Callable[[int], Figures]) -> Performance:
    """Run all rows once, unmeasured, because Java compiles code that runs often."""
    perform(-1)
    return Performance(version, perform)


@contextmanager
def _dodona(folder: Path, effort: Effort) -> Iterator[Performance]:
    frame = shared_frame(effort.share(ROWS))
    with peer.open_cluster(folder) as cluster, dodona.connect(cluster.master_url) as db:
        reader = frame.spark.read.format("dodona").option("url", cluster.master_url)

        def write(path: str, atomicity: Atomicity) -> Spent:
            db.create_table(
                path, schema=SCHEMA, atomicity=atomicity, pivot_keys=frame.pivot_keys, mount=True
            )
            options: dict[str, Any] = {"url": cluster.master_url, "atomicity": atomicity}
            return _spent(lambda: dodona.spark.bulk_write(frame.frame, path, **options))

        def remove(path: str) -> None:
            db.unmount_table(path, timeout_ms=MOUNT_MS_MAX)
            db.remove_table(path)

        def perform(number: int) -> Figures:
            with peak_memory(node_pid(cluster)) as peak:
                costs = {PLAIN: write("//bench/plain", "none")}
                rest()
                costs[READ] = _spent(lambda: frame.check_rows(reader.load("//bench/plain")))
                remove("//bench/plain")
                rest()
                costs[ATOMIC] = write("//bench/atomic", "full")
            frame.check_rows(reader.load("//bench/atomic"))
            remove("//bench/atomic")
            return {**_figures(frame, costs), MEMORY: peak.size_bytes / 1e6}

        yield _warmed(f"{peer.version()}, {frame.version}", perform)


@contextmanager
def _parquet(folder: Path, effort: Effort) -> Iterator[Performance]:
    frame = shared_frame(effort.share(ROWS))
    files = folder / "files"

    def perform(number: int) -> Figures:
        unsynced = _spent(lambda: frame.write_parquet(files))
        syncing = _spent(lambda: sync_files(files))
        synced = Spent(*map(sum, zip(unsynced, syncing, strict=True)))
        costs = {PLAIN: synced, ATOMIC: synced, UNSYNCED: unsynced}
        rest()
        costs[READ] = _spent(lambda: frame.check_rows(frame.spark.read.parquet(str(files))))
        shutil.rmtree(files)
        return _figures(frame, costs)

    yield _warmed(frame.version, perform)


@contextmanager
def _postgres(folder: Path, effort: Effort) -> Iterator[Performance]:
    frame = shared_frame(effort.share(ROWS))
    with _loaded_postgres(folder, frame, frame.copy_to_postgres) as perform:
        yield _warmed(f"{postgres.version()}, {frame.version}", perform)


@contextmanager
def _jdbc(folder: Path, effort: Effort) -> Iterator[Performance]:
    frame = shared_frame(effort.share(ROWS))
    with _loaded_postgres(folder, frame, frame.insert_into_postgres) as perform:
        driver = jdbc_driver()
        yield _warmed(f"{postgres.version()}, {driver and driver.stem}, {frame.version}", perform)


@contextmanager
def _loaded_postgres(
    folder: Path, frame: Frame, load: Callable[[int, str], None]
) -> Iterator[Callable[[int], Figures]]:
    with postgres.server(folder) as served:

        def perform(number: int) -> Figures:
            postgres.run_query(served.port, CREATE_TABLE.format(table="bench"))
            spent = _spent(lambda: load(served.port, "bench"))
            postgres.run_query(served.port, "DROP TABLE bench")
            return _figures(frame, {PLAIN: spent})

        yield perform


STUDY: Final = Study(
    name="spark",
    title="A DataFrame of Spark's into a table of eight tablets and back: one machine for all",
    fairness=(
        f"{ROWS:,} rows (int64 key, double, int64, strings of 32 and 40 hexadecimal digits: "
        f"{ROW_BYTES} bytes as Arrow) that Spark has in memory in no order. All of them are "
        "partitioned by ranges of keys and sorted by Spark, in the same way for everybody, and "
        "that is part of each figure. Dodona is one node, by `dodona.spark.bulk_write`: with "
        "atomicity none rows are visible as they come, else all at one commit timestamp. Parquet "
        "is Spark's own, a file for each range, on the same disk; Spark does not sync it, so "
        "its durable figure has the syncing of all files behind it. PostgreSQL gets a COPY in its "
        "binary format from each task, made without Python objects, into a table with a primary "
        "key; JDBC is Spark's own way there, in batches of 10,000 rows that the driver makes one "
        "statement of. Reads go to Spark's noop sink, all columns. Every contender went through it "
        "once before, unmeasured. Per core: rows for each second of processor time of Spark, its "
        "Python processes and servers."
    ),
    performers=(
        Performer("Dodona", _dodona),
        Performer("Parquet", _parquet),
        Performer("PostgreSQL COPY", _postgres),
        Performer("PostgreSQL JDBC", _jdbc),
    ),
    measures=(
        Measure(PLAIN, "rows/s"),
        Measure(PLAIN_MB, "MB/s"),
        Measure(PLAIN_PER_CORE, "rows/s"),
        Measure(ATOMIC, "rows/s"),
        Measure(ATOMIC_MB, "MB/s"),
        Measure(ATOMIC_PER_CORE, "rows/s"),
        Measure(UNSYNCED, "rows/s"),
        Measure(READ, "rows/s"),
        Measure(READ_PER_CORE, "rows/s"),
        Measure(MEMORY, "MB", is_worst_told=True),
    ),
    bounds=(
        Bound(PLAIN, at_least=0.6, times=("Parquet", UNSYNCED)),
        Bound(ATOMIC, at_least=0.5, times=("Parquet", UNSYNCED)),
        Bound(PLAIN, at_least=3, times=("PostgreSQL JDBC", PLAIN)),
        Bound(PLAIN, at_least=3, times=("PostgreSQL COPY", PLAIN)),
        Bound(READ, at_least=1_000_000),
    ),
    columns=3,
)
