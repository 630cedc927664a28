"""Study 3: the cost of a write as the table grows. Each size has a cluster of its own."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.measure import Sample
from dodona_loadtest.harness.rounds import rotated
from dodona_loadtest.harness.sample_rows import SampleRows
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
from dodona_loadtest.harness.worker_process import WorkerProcess
from dodona_loadtest.peers import dodona, postgres
from dodona_loadtest.peers.dodona_storage import DodonaWorker, serve_worker
from dodona_loadtest.peers.postgres_storage import PostgresWorker, serve_postgres_worker
from dodona_local.launcher import LocalCluster

SIZES: Final = (10_000, 100_000, 1_000_000, 10_000_000)
COMMIT_CALLERS: Final = 64
NON_ATOMIC_CALLERS: Final = 4
NON_ATOMIC_ROWS: Final = 100
"""Rows of each call."""
PATH: Final = "//bench/growing"

COMMITS: Final = "row commits"
NON_ATOMIC: Final = "non-atomic writes"


def _measure_names(kind: str, size: int) -> tuple[str, str]:
    """Return the names of the whole cost, and of the servers' part."""
    return f"{kind}, {size:,} rows", f"{kind}, {size:,} rows: servers"


def _figures(kind: str, size: int, sample: Sample, cpu_s: float, rows_per_call: int) -> Figures:
    rows = max(1, sample.operations * rows_per_call)
    whole, servers = _measure_names(kind, size)
    return {whole: sample.duration_s * 1e6 / rows, servers: cpu_s * 1e6 / rows}


def _warm_up_s(effort: Effort) -> float:
    return min(0.5, effort.measure_s / 2)


@contextmanager
def _dodona(folder: Path, effort: Effort) -> Iterator[Performance]:
    with ExitStack() as stack:
        entrants: list[tuple[int, SampleRows, LocalCluster, WorkerProcess[DodonaWorker]]] = []
        for size in SIZES:
            own_folder = folder / str(size)
            own_folder.mkdir(mode=0o755)
            cluster, worker = stack.enter_context(serve_worker(own_folder, effort.client_cores))
            rows = SampleRows(effort.share(size))
            worker.call(DodonaWorker.create, PATH)
            worker.call(DodonaWorker.write_bulk, PATH, rows)
            entrants.append((size, rows, cluster, worker))

        failures: Counter[str] = Counter()

        def perform(number: int) -> Figures:
            figures: dict[str, float] = {}
            for size, rows, cluster, worker in rotated(entrants, number):
                args = (effort, rows, cluster, worker)
                found = _rewrite(*args, NON_ATOMIC_ROWS, NON_ATOMIC_CALLERS)
                figures |= _figures(NON_ATOMIC, size, *found, NON_ATOMIC_ROWS)
                worker.call(DodonaWorker.set_atomicity, PATH, "full")
                found = _rewrite(*args, 1, COMMIT_CALLERS)
                figures |= _figures(COMMITS, size, *found, 1)
                failures[_measure_names(COMMITS, size)[0]] += found[0].failures
                worker.call(DodonaWorker.set_atomicity, PATH, "none")
            return figures

        yield Performance(dodona.version(), perform, failures)


def _rewrite(
    effort: Effort,
    rows: SampleRows,
    cluster: LocalCluster,
    worker: WorkerProcess[DodonaWorker],
    rows_per_call: int,
    callers: int,
) -> tuple[Sample, float]:
    """Return the sample, and the servers' processor time meanwhile."""
    args = (PATH, rows, rows_per_call, callers)
    worker.call(DodonaWorker.rewrite, *args, _warm_up_s(effort))
    before_s = cpu_seconds(dodona.pids_of(cluster))
    sample = worker.call(DodonaWorker.rewrite, *args, effort.measure_s)
    return sample, cpu_seconds(dodona.pids_of(cluster)) - before_s


@contextmanager
def _postgres(folder: Path, effort: Effort) -> Iterator[Performance]:
    with serve_postgres_worker(folder, effort.client_cores) as (served, worker):
        for size in SIZES:
            worker.call(PostgresWorker.create, f"growing_{size}", SampleRows(effort.share(size)))

        def perform(number: int) -> Figures:
            figures: dict[str, float] = {}
            for size in rotated(SIZES, number):
                args = (f"growing_{size}", SampleRows(effort.share(size)), COMMIT_CALLERS)
                worker.call(PostgresWorker.upsert, *args, _warm_up_s(effort))
                before_s = cpu_seconds([served.pid])
                sample = worker.call(PostgresWorker.upsert, *args, effort.measure_s)
                cpu_s = cpu_seconds([served.pid]) - before_s
                figures |= _figures(COMMITS, size, sample, cpu_s, 1)
            return figures

        yield Performance(postgres.version(), perform)


def _bounds() -> tuple[Bound, ...]:
    """Return bounds on the largest table's figures in terms of the smallest one's."""
    pairs = [
        pair
        for kind in (COMMITS, NON_ATOMIC)
        for pair in zip(
            _measure_names(kind, SIZES[-1]), _measure_names(kind, SIZES[0]), strict=True
        )
    ]
    return tuple(Bound(large, at_most=1.3, times=("Dodona", small)) for large, small in pairs)


STUDY: Final = Study(
    name="growth",
    title=f"What a written row costs as the table grows: from {SIZES[0]:,} to {SIZES[-1]:,} rows",
    fairness=(
        "Rows that are there already are written again, at random, so that the table keeps its "
        f"size. Row commits: {COMMIT_CALLERS} callers, one row each, as in the row `commits`; "
        f"non-atomic writes: {NON_ATOMIC_CALLERS} callers, {NON_ATOMIC_ROWS} rows in a call. All "
        "synced to disk. Figures are for each row: the time until the next one, and the servers' "
        "processor time; commits that lost to another one are none. Tables were filled in bulk. "
        "Dodona's have a cluster each, so that a small one does not share a process with a large "
        "one; PostgreSQL's share a server."
    ),
    performers=(Performer("Dodona", _dodona), Performer("PostgreSQL upsert", _postgres)),
    measures=tuple(
        Measure(name, "µs")
        for kind in (COMMITS, NON_ATOMIC)
        for size in SIZES
        for name in _measure_names(kind, size)
    ),
    bounds=_bounds(),
    rounds_max=2,
)
