"""Studies 5 and 6: the longest wait of a lone caller beside long work in the same node."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import sleep
from typing import Final

from dodona_loadtest.harness.pinger import PingKind, Waits
from dodona_loadtest.harness.sample_rows import SampleRows
from dodona_loadtest.harness.study import (
    Bound,
    Effort,
    Figures,
    Measure,
    Performance,
    Performer,
    Study,
)
from dodona_loadtest.harness.worker_process import WorkerProcess
from dodona_loadtest.peers import dodona, postgres
from dodona_loadtest.peers.dodona_storage import DodonaWorker, serve_worker
from dodona_loadtest.peers.postgres_storage import PostgresWorker, serve_postgres_worker

PINGED: Final = SampleRows(10_000)
BULK_ROWS: Final = 2_000_000
FLUSHED_ROWS: Final = 1_000_000
BATCHES: Final = 8
"""Batches of rows over the same keys. A compaction merges their chunks."""
BATCH_ROWS: Final = 250_000
COMPACTION_S: Final = 5.0
"""Seconds for which pings go on once the batches are there."""
PAUSE_MS_MAX: Final = 50.0

ALONE: Final = "alone"
BULK: Final = "beside a bulk load"
FLUSH: Final = "beside a flush"
COMPACTION: Final = "beside batches and their compaction"
STRETCHES: Final = (ALONE, BULK, FLUSH, COMPACTION)

PING_PATH: Final = "//bench/pinged"

Beside = Callable[[Callable[[], object]], Waits]
"""Sends pings while the given work is under way. Returns how long the pings waited."""


def _waits(stretch: str, waits: Waits, failures: Counter[str]) -> Figures:
    failures[stretch] += waits.failures
    return {
        f"{stretch}: p50": waits.ms_p50,
        f"{stretch}: p99": waits.ms_p99,
        f"{stretch}: longest": waits.ms_max,
    }


@contextmanager
def _dodona(kind: PingKind, folder: Path, effort: Effort) -> Iterator[Performance]:
    cores = effort.client_cores
    with (
        serve_worker(folder, cores) as (cluster, loader),
        WorkerProcess(DodonaWorker(cluster.master_url), cores) as pinger,
    ):
        loader.call(DodonaWorker.create, PING_PATH, "full")
        loader.call(DodonaWorker.write_rows, PING_PATH, PINGED)
        failures: Counter[str] = Counter()

        def beside(work: Callable[[], object]) -> Waits:
            pinger.call(DodonaWorker.start_pinging, kind, PING_PATH, PINGED)
            work()
            return pinger.call(DodonaWorker.stop_pinging)

        def perform(number: int) -> Figures:
            return {
                **_waits(ALONE, beside(lambda: sleep(effort.measure_s)), failures),
                **_waits(BULK, _beside_bulk_load(loader, effort, beside), failures),
                **_waits(FLUSH, _beside_flush(loader, effort, beside), failures),
                **_waits(COMPACTION, _beside_compaction(loader, effort, beside), failures),
            }

        yield Performance(dodona.version(), perform, failures)


def _beside_bulk_load(loader: WorkerProcess[DodonaWorker], effort: Effort, beside: Beside) -> Waits:
    path, rows = "//bench/loaded", SampleRows(effort.share(BULK_ROWS))
    loader.call(DodonaWorker.create, path)
    waits = beside(lambda: loader.call(DodonaWorker.write_bulk, path, rows))
    loader.call(DodonaWorker.remove, path)
    return waits


def _beside_flush(loader: WorkerProcess[DodonaWorker], effort: Effort, beside: Beside) -> Waits:
    """Flush rows that were written one by one, in transactions. In a table without atomicity most
    of them would be in chunks by then."""
    path, rows = "//bench/flushed", SampleRows(effort.share(FLUSHED_ROWS))
    loader.call(DodonaWorker.create, path, "full")
    loader.call(DodonaWorker.write_rows, path, rows)
    waits = beside(lambda: loader.call(DodonaWorker.flush, path))
    loader.call(DodonaWorker.remove, path)
    return waits


def _beside_compaction(
    loader: WorkerProcess[DodonaWorker], effort: Effort, beside: Beside
) -> Waits:
    """Write batches over the same keys: a compaction follows. No request can start one."""
    path, rows = "//bench/compacted", SampleRows(effort.share(BATCH_ROWS))
    loader.call(DodonaWorker.create, path)

    def work() -> None:
        for _ in range(BATCHES):
            loader.call(DodonaWorker.write_bulk, path, rows)
        sleep(min(COMPACTION_S, 2 * effort.measure_s))

    waits = beside(work)
    loader.call(DodonaWorker.remove, path)
    return waits


@contextmanager
def _postgres(kind: PingKind, folder: Path, effort: Effort) -> Iterator[Performance]:
    cores = effort.client_cores
    with (
        serve_postgres_worker(folder, cores) as (served, loader),
        WorkerProcess(PostgresWorker(served.port), cores) as pinger,
    ):
        loader.call(PostgresWorker.create, "pinged", PINGED)
        failures: Counter[str] = Counter()

        def beside(work: Callable[[], object]) -> Waits:
            pinger.call(PostgresWorker.start_pinging, kind, "pinged", PINGED)
            work()
            return pinger.call(PostgresWorker.stop_pinging)

        def perform(number: int) -> Figures:
            rows = SampleRows(effort.share(BULK_ROWS))
            loader.call(PostgresWorker.create, "loaded", SampleRows(1, first=rows.count))
            load = partial(loader.call, PostgresWorker.copy, "loaded", rows)
            flush = partial(loader.call, PostgresWorker.checkpoint)
            figures = {
                **_waits(ALONE, beside(lambda: sleep(effort.measure_s)), failures),
                **_waits(BULK, beside(load), failures),
                **_waits(FLUSH, beside(flush), failures),
            }
            loader.call(PostgresWorker.remove, "loaded")
            return figures

        yield Performance(postgres.version(), perform, failures)


def _study(kind: PingKind) -> Study:
    what = "looks up one row" if kind == "lookup" else "commits one row"
    return Study(
        name=f"{kind}-pauses",
        title=f"Pauses: a caller {what} every millisecond, beside long work in the same node",
        fairness=(
            "In ms. No ping waits for the one before. The rows pinged at are in a table of their "
            f"own. The load is of {BULK_ROWS:,} rows of Arrow data (PostgreSQL: COPY); the flush "
            f"of {FLUSHED_ROWS:,} rows written one by one (PostgreSQL: CHECKPOINT after the load); "
            f"the compaction follows {BATCHES} batches of {BATCH_ROWS:,} rows over the same keys, "
            "which are written while pings go on. A ping that is refused waited, too: here a row "
            "that two commits meet at refuses one of them, there it has it wait. The longest is "
            "that of all rounds."
        ),
        performers=(
            Performer("Dodona", partial(_dodona, kind)),
            Performer("PostgreSQL", partial(_postgres, kind)),
        ),
        measures=tuple(
            measure
            for stretch in STRETCHES
            for measure in (
                Measure(f"{stretch}: p50", "ms"),
                Measure(f"{stretch}: p99", "ms"),
                Measure(f"{stretch}: longest", "ms", is_worst_told=True),
            )
        ),
        bounds=tuple(
            Bound(f"{stretch}: longest", at_most=PAUSE_MS_MAX) for stretch in STRETCHES[1:]
        ),
        rounds_max=2,
    )


LOOKUP_STUDY: Final = _study("lookup")
COMMIT_STUDY: Final = _study("commit")
