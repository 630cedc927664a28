"""Study 4: how long callers wait when servers crash, and when they stop."""

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import kill
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.sample_rows import ROW_BYTES, SampleRows
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
from dodona_loadtest.peers.dodona_storage import DodonaWorker, log_bytes, serve_worker
from dodona_loadtest.peers.postgres import Installation
from dodona_loadtest.peers.postgres_storage import PostgresWorker
from dodona_local.launcher import LocalCluster

LOG_BYTES: Final = 1_500_000_000
PADDING_BYTES: Final = 1_000 - ROW_BYTES
"""Rows of 1,000 bytes: written one by one, smaller ones would take minutes."""
STEP_ROWS: Final = 50_000
MORE_ROWS: Final = 100_000
"""Rows written before the clean stop, to give it work: a server that has just recovered may have
written down everything from before."""
PATH: Final = "//bench/logged"
END_S_MAX: Final = 120.0
POLL_S: Final = 0.002

LOG: Final = "log written"
LOG_ROWS: Final = "rows in it"
KILLED: Final = "kill -9 to first read"
STOPPING: Final = "clean stop"
STOPPED: Final = "end of clean stop to first read"
MASTER_SERVES: Final = "master serves to first timestamp"
MASTER_KILLED: Final = "kill -9 of master to first timestamp"


@contextmanager
def _dodona(folder: Path, effort: Effort) -> Iterator[Performance]:
    def perform(number: int) -> Figures:
        own_folder = folder / str(number)
        own_folder.mkdir(mode=0o755)
        try:
            with serve_worker(own_folder, effort.client_cores, back_off_s_max=0.0) as served:
                return _restart_dodona(effort, *served)
        finally:
            shutil.rmtree(own_folder)

    yield Performance(dodona.version(), perform)


def _restart_dodona(
    effort: Effort, cluster: LocalCluster, worker: WorkerProcess[DodonaWorker]
) -> Figures:
    worker.call(DodonaWorker.create, PATH)
    wanted = effort.share(LOG_BYTES)
    row_count = max(1, wanted // 900)  # bounded, even if the log keeps few of the rows
    for rows in SampleRows(row_count).slices(max(1, effort.share(STEP_ROWS))):
        worker.call(DodonaWorker.write_rows, PATH, rows, PADDING_BYTES)
        if log_bytes(cluster) >= wanted:
            break
    figures = {LOG: log_bytes(cluster) / 1e6, LOG_ROWS: float(rows.last + 1)}

    began, _ = _end(cluster, "node 0", signal.SIGKILL)
    figures[KILLED] = worker.call(DodonaWorker.await_read, PATH, rows.last) - began
    cluster.wait_until_ready("node 0")
    more = SampleRows(effort.share(MORE_ROWS), first=rows.last + 1)
    worker.call(DodonaWorker.write_rows, PATH, more, PADDING_BYTES)
    began, ended = _end(cluster, "node 0", signal.SIGTERM)
    figures[STOPPING] = ended - began
    figures[STOPPED] = worker.call(DodonaWorker.await_read, PATH, more.last) - ended

    address = urlsplit(cluster.master_url)
    assert address.hostname is not None
    assert address.port is not None
    began, _ = _end(cluster, "master", signal.SIGKILL)
    instants = worker.call(DodonaWorker.await_timestamp, address.hostname, address.port)
    serves, answered = instants
    figures[MASTER_SERVES] = (answered - serves) * 1e3
    figures[MASTER_KILLED] = answered - began
    return figures


def _end(cluster: LocalCluster, name: str, number: signal.Signals) -> tuple[float, float]:
    """End a process. Return the instants of the signal and of the end. The cluster's supervisor
    starts another process immediately."""
    pid = cluster.processes[name].pid
    if pid is None:
        raise ContenderFailed(f"{name} is down")
    began = time.monotonic()
    kill(pid, number)
    while cluster.processes[name].pid == pid:
        if time.monotonic() > began + END_S_MAX:
            raise ContenderFailed(f"{name} did not end in {END_S_MAX:.0f} s")
        time.sleep(POLL_S)
    return began, time.monotonic()


@contextmanager
def _postgres(folder: Path, effort: Effort) -> Iterator[Performance]:
    def perform(number: int) -> Figures:
        own_folder = folder / str(number)
        own_folder.mkdir(mode=0o755)
        try:
            return _restart_postgres(own_folder, effort)
        finally:
            shutil.rmtree(own_folder)

    yield Performance(postgres.version(), perform)


def _restart_postgres(folder: Path, effort: Effort) -> Figures:
    installation = Installation(folder)
    rows = SampleRows(max(1, effort.share(LOG_BYTES) // 1_100))
    more = SampleRows(effort.share(MORE_ROWS))
    with WorkerProcess(PostgresWorker(installation.port), effort.client_cores) as worker:
        with installation.server() as process:
            written = worker.call(PostgresWorker.fill_log, "logged", rows, PADDING_BYTES)
            worker.call(PostgresWorker.disconnect)
            killed = time.monotonic()
            process.kill()
        with installation.server(is_awaited=False):
            read_after_kill = worker.call(PostgresWorker.await_read, "logged", rows.last)
            worker.call(PostgresWorker.fill_log, "more", more, PADDING_BYTES)
            worker.call(PostgresWorker.disconnect)
            stopping = time.monotonic()
        stopped = time.monotonic()
        with installation.server(is_awaited=False):
            read_after_stop = worker.call(PostgresWorker.await_read, "more", more.last)
    return {
        LOG: written / 1e6,
        LOG_ROWS: float(rows.count),
        KILLED: read_after_kill - killed,
        STOPPING: stopped - stopping,
        STOPPED: read_after_stop - stopped,
    }


STUDY: Final = Study(
    name="restart",
    title="Restarts, of a node with a long log and of the master",
    fairness=(
        f"Rows of 1,000 bytes are written until the log has {LOG_BYTES / 1e9:g} GB (PostgreSQL: "
        "one INSERT of as much, with no checkpoint since), or until so many bytes of rows are. "
        "Then the server is killed, and another started at once; a client that has just connected "
        f"reads the row written last. {MORE_ROWS:,} rows more are written, and the server is told "
        "to stop: PostgreSQL's stop has a checkpoint of these, since all before were in the one "
        "that ended its recovery. At last the master is killed: timestamps come to a client "
        "through a proxy."
    ),
    performers=(Performer("Dodona", _dodona), Performer("PostgreSQL", _postgres)),
    measures=(
        Measure(LOG, "MB", is_description=True),
        Measure(LOG_ROWS, "rows", is_description=True),
        Measure(KILLED, "s"),
        Measure(STOPPING, "s"),
        Measure(STOPPED, "s"),
        Measure(MASTER_SERVES, "ms"),
        Measure(MASTER_KILLED, "s"),
    ),
    bounds=(
        Bound(KILLED, at_most=5),
        Bound(STOPPED, at_most=1),
        Bound(MASTER_SERVES, at_most=200),
    ),
    rounds_max=2,
)
