"""Study of a cold start: a node without its folder takes its cell back, and fetches chunks to read.

Owns: what "an empty cache" means. The folder of the node is moved aside, and its process is killed.
The next process finds no copies of chunks, and no log. Log replicas have the log, and an object
store has the chunks.
"""

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import kill
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.errors import ContenderMissing
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
from dodona_loadtest.peers import dodona
from dodona_loadtest.peers.dodona_storage import DodonaWorker, node_pid, serve_worker
from dodona_local import etcd_member
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import COPIES, Replicas

ROWS: Final = 10_000_000
STEP_ROWS: Final = 1_000_000
PATH: Final = "//bench/cold"

FIRST_READ: Final = "kill -9 without the folder, to first read"
NEXT_READS: Final = "next reads of the same rows: p50"


@contextmanager
def _dodona(folder: Path, effort: Effort) -> Iterator[Performance]:
    if (missing := etcd_member.missing_program()) is not None:
        raise ContenderMissing(f"copies need etcd, and {missing}")
    rows = SampleRows(effort.share(ROWS))
    served = serve_worker(
        folder, effort.client_cores, back_off_s_max=0.0, replicas=Replicas(COPIES)
    )
    with served as (cluster, worker):
        worker.call(DodonaWorker.create, PATH)
        for step in rows.slices(max(1, effort.share(STEP_ROWS))):
            worker.call(DodonaWorker.write_bulk, PATH, step)
        worker.call(DodonaWorker.flush, PATH)
        yield Performance(
            dodona.version(), lambda _: _read_cold(folder, effort, rows, cluster, worker)
        )


def _read_cold(
    folder: Path,
    effort: Effort,
    rows: SampleRows,
    cluster: LocalCluster,
    worker: WorkerProcess[DodonaWorker],
) -> Figures:
    """Read one row of the middle. The first reader has to wait for the cell, and for a chunk."""
    node_folder = folder / "dodona" / "node-0"
    aside = folder / "aside"
    node_folder.rename(aside)
    killed = time.monotonic()
    kill(node_pid(cluster), signal.SIGKILL)
    key = rows.first + rows.step * (rows.count // 2)
    read = worker.call(DodonaWorker.await_read, PATH, key)
    shutil.rmtree(aside)
    cluster.wait_until_ready("node 0")
    near = SampleRows(1, first=key)
    sample = worker.call(DodonaWorker.look_up, PATH, near, 1, effort.measure_s)
    return {FIRST_READ: read - killed, NEXT_READS: sample.latency_us_p50}


STUDY: Final = Study(
    name="cold",
    title="A node without its folder: the first read of a cell of ten million rows",
    fairness=(
        f"The log of the cell has {COPIES} copies on log replicas, and its chunks are in an object "
        f"store, which is a folder of the same disk. The table has {ROWS:,} rows of Arrow data in "
        "one tablet, all in chunks. The folder of the node is moved aside, and its process is "
        "killed. Its supervisor starts another process, which finds an empty folder. The figure "
        "has all of this: until the silence is noticed, the start of the process, the wait for the "
        "lease of the killed one, the recovery of the log, and the fetch of the chunk. There is no "
        "peer: the goal is a time."
    ),
    performers=(Performer("Dodona", _dodona),),
    measures=(Measure(FIRST_READ, "s", is_worst_told=True), Measure(NEXT_READS, "µs")),
    bounds=(Bound(FIRST_READ, at_most=3),),
)
