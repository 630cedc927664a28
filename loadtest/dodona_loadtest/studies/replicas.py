"""Study of replicas: cells whose logs have three copies, beside the same product with one log."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.errors import ContenderMissing
from dodona_loadtest.harness.measure import Sample
from dodona_loadtest.harness.rounds import rest
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
from dodona_loadtest.peers import dodona
from dodona_loadtest.peers.dodona_storage import DodonaWorker
from dodona_local import etcd_member
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import COPIES, Replicas

BULK_ROWS: Final = 1_000_000
ROWS: Final = 100_000
"""Rows that commits change and that lookups find."""
WARM_UP_RATIO: Final = 0.3
"""The share of a measurement that is made before it, and does not count."""

REPLICATED: Final = "Dodona"
PLAIN: Final = "without copies"
CALLERS: Final = (1, 16, 64)
ONE_P50: Final = "commit by 1 caller: p50"
ONE_P99: Final = "commit by 1 caller: p99"
BULK: Final = "bulk load"
LOOKUPS: Final = "lookups"
TABLE: Final = "//bench/rows"
BULK_TABLE: Final = "//bench/bulk"


def rate_of(callers: int) -> str:
    """Return the measure of how many commits a second so many callers make."""
    return f"commits by {callers}"


def cost_of(callers: int) -> str:
    """Return the measure of the processor time of all servers for one of these commits."""
    return f"servers for a commit of {callers}"


def _story(
    replicas: Replicas | None,
) -> Callable[[Path, Effort], AbstractContextManager[Performance]]:
    @contextmanager
    def story(folder: Path, effort: Effort) -> Iterator[Performance]:
        if replicas is not None and (missing := etcd_member.missing_program()) is not None:
            raise ContenderMissing(f"copies need etcd, and {missing}")
        with (
            dodona.open_cluster(folder, replicas=replicas) as cluster,
            WorkerProcess(DodonaWorker(cluster.master_url), effort.client_cores) as worker,
        ):
            rows = SampleRows(effort.share(ROWS))
            worker.call(DodonaWorker.create, TABLE, "full")
            worker.call(DodonaWorker.write_rows, TABLE, rows)
            yield Performance(dodona.version(), lambda _: _figures(cluster, worker, rows, effort))

    return story


def _figures(
    cluster: LocalCluster, worker: WorkerProcess[DodonaWorker], rows: SampleRows, effort: Effort
) -> Figures:
    figures: dict[str, float] = {}
    for callers in CALLERS:
        sample, cpu_us = _commits(cluster, worker, rows, callers, effort)
        figures[rate_of(callers)] = sample.rate
        figures[cost_of(callers)] = cpu_us
        if callers == 1:
            figures[ONE_P50], figures[ONE_P99] = sample.latency_us_p50, sample.latency_us_p99
    found = worker.call(DodonaWorker.look_up, TABLE, rows, 1, effort.measure_s)
    figures[LOOKUPS] = found.rate
    bulk = SampleRows(effort.share(BULK_ROWS))
    worker.call(DodonaWorker.create, BULK_TABLE)
    rest()
    figures[BULK] = bulk.count / worker.call(DodonaWorker.write_bulk, BULK_TABLE, bulk).duration_s
    worker.call(DodonaWorker.remove, BULK_TABLE)
    return figures


def _commits(
    cluster: LocalCluster,
    worker: WorkerProcess[DodonaWorker],
    rows: SampleRows,
    callers: int,
    effort: Effort,
) -> tuple[Sample, float]:
    """Return the sample, and the processor time of all servers for a commit, in µs."""
    rest()
    warm_up_s = effort.measure_s * WARM_UP_RATIO
    worker.call(DodonaWorker.rewrite, TABLE, rows, 1, callers, warm_up_s)
    pids = dodona.pids_of(cluster)
    before_s = cpu_seconds(pids)
    sample = worker.call(DodonaWorker.rewrite, TABLE, rows, 1, callers, effort.measure_s)
    cpu_us = (cpu_seconds(pids) - before_s) * 1e6
    return sample, cpu_us / max(1, sample.operations)


def _times(measure: str, **limit: float) -> Bound:
    return Bound(measure, times=(PLAIN, measure), **limit)


STUDY: Final = Study(
    name="replicas",
    title="Logs with three copies, beside logs of one: one node, one client process",
    fairness=(
        f"The same product, once with {COPIES} log replicas and three members of etcd, and once "
        "without. All copies are on the one disk of one machine, so a commit is synced three times "
        "there; on three machines the syncs would not share a disk, nor the processes two cores. "
        f"Commits are of one row each among {ROWS:,} rows in memory, without a transaction. "
        "Servers are all processes: master, proxy, node, and with copies also replicas and etcd. "
        "Lookups (one caller) are of the same rows. The bulk load is of "
        f"{BULK_ROWS:,} rows of Arrow data into an empty table without atomicity."
    ),
    warms_up=True,
    rounds_max=9,
    performers=(
        Performer(REPLICATED, _story(Replicas(COPIES))),
        Performer(PLAIN, _story(None)),
    ),
    measures=(
        Measure(ONE_P50, "µs"),
        Measure(ONE_P99, "µs"),
        *(Measure(rate_of(callers), "rows/s") for callers in CALLERS),
        *(Measure(cost_of(callers), "µs") for callers in CALLERS),
        Measure(BULK, "rows/s"),
        Measure(LOOKUPS, "rows/s"),
    ),
    bounds=(
        _times(ONE_P50, at_most=2),
        _times(rate_of(64), at_least=0.6),
        _times(cost_of(16), at_most=1.7),
        _times(cost_of(64), at_most=1.7),
        _times(BULK, at_least=0.7),
        _times(LOOKUPS, at_least=0.95),
    ),
)
