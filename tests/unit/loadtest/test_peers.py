"""The peers that a user may or may not have: each once, small, for what it is to do."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dodona_loadtest.harness.client_process import ClientProcess, Order
from dodona_loadtest.harness.errors import ContenderMissing
from dodona_loadtest.harness.pinning import choose_pinning
from dodona_loadtest.harness.row import Running
from dodona_loadtest.harness.sample_rows import SampleRows
from dodona_loadtest.harness.study import Effort, Figures, Study
from dodona_loadtest.harness.syncing import files_in, sync_new
from dodona_loadtest.harness.worker_process import WorkerProcess
from dodona_loadtest.peers import redis
from dodona_loadtest.peers.lance import LanceWorker, open_lance_worker, version
from dodona_loadtest.studies import reads, restart

CORES = choose_pinning("none").client
THERE, NEW = SampleRows(300, first=0, step=2), SampleRows(200, first=1, step=2)


@pytest.mark.integration
@pytest.mark.parametrize("serve", [redis.serve_increments, redis.serve_sets])
def test_redis_is_measured_with_more_callers_than_connections(
    tmp_path: Path, serve: Callable[[Path], AbstractContextManager[Running]]
) -> None:
    try:
        with serve(tmp_path) as running, ClientProcess(running.load, CORES, 80) as client:
            sample = client.measure(Order(80, 0.02, 0.1))
    except ContenderMissing as missing:
        pytest.skip(str(missing))
    assert sample.operations > 80
    assert sample.failures == 0
    assert "Redis server v=" in running.version
    assert list(tmp_path.rglob("*.aof")), "what is acknowledged goes into a file"


@pytest.mark.integration
def test_lance_takes_rows_in_and_gives_them_back(tmp_path: Path) -> None:
    with open_lance_worker(tmp_path, CORES) as worker:
        worker.call(LanceWorker.create, "t", THERE)
        assert worker.call(LanceWorker.merge, "t", NEW).duration_s > 0
        assert worker.call(LanceWorker.merge, "t", NEW).duration_s > 0
        assert worker.call(LanceWorker.count, "t") == 500
        assert worker.call(LanceWorker.scan, "t", SampleRows(400), 100, 0.0) > 0
        assert worker.call(LanceWorker.append, "t", NEW).duration_s > 0
        assert worker.call(LanceWorker.count, "t") == 700
        worker.call(LanceWorker.remove, "t")
    assert files_in(tmp_path) == set()
    assert version().startswith("Lance, pylance ")


def live(study: Study, name: str, folder: Path, scale: float) -> Figures:
    """One round of that performer's, small."""
    (performer,) = [it for it in study.performers if it.name == name]
    try:
        with performer.start(folder, Effort(scale, 0.05, CORES, CORES)) as performance:
            return performance.perform(0)
    except ContenderMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.integration
def test_postgresql_s_lookups_stand_beside_both_of_dodona_s(open_folder: Path) -> None:
    """It has one place for rows that fit its buffers."""
    found = live(reads.STUDY, "PostgreSQL", open_folder, 0.001)
    assert found[reads.LOOKUP_MEMORY] == found[reads.LOOKUP_CHUNKS] > 0
    assert found[f"{reads.LOOKUPS_MEMORY}: p99"] == found[f"{reads.LOOKUPS_CHUNKS}: p99"] > 0
    assert reads.SCAN_MEMORY not in found


@pytest.mark.integration
@pytest.mark.parametrize("name", ["Dodona", "PostgreSQL"])
def test_a_clean_stop_has_rows_to_write_which_are_there_afterwards(
    open_folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, tuple[object, ...]]] = []
    call = WorkerProcess.call

    def note(self: Any, method: Any, *arguments: Any) -> Any:
        called.append((method.__name__, arguments))
        return call(self, method, *arguments)

    monkeypatch.setattr(WorkerProcess, "call", note)
    found = live(restart.STUDY, name, open_folder, 0.001)
    names = [it for it, _ in called if it != "await_timestamp"]
    assert found[restart.STOPPING] > 0
    assert found[restart.STOPPED] > 0
    killed, stopped = [place for place, it in enumerate(names) if it == "await_read"]
    assert {"write_rows", "fill_log"} & set(names[killed:stopped])


def test_only_new_files_and_their_folders_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", note)
    (tmp_path / "old").write_text("")
    known = files_in(tmp_path)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "new").write_text("")
    sync_new(tmp_path, known)
    new = [tmp_path, tmp_path / "inside", tmp_path / "inside" / "new"]
    assert synced == [str(path) for path in new]
