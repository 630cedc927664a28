"""The peers that a user may or may not have: each once, small, for what it is to do."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from dodona_loadtest.harness.client_process import ClientProcess, Order
from dodona_loadtest.harness.errors import ContenderMissing
from dodona_loadtest.harness.pinning import choose_pinning
from dodona_loadtest.harness.row import Running
from dodona_loadtest.harness.sample_rows import Rows
from dodona_loadtest.harness.syncing import files_in, sync_new
from dodona_loadtest.peers import redis
from dodona_loadtest.peers.lance import LanceWorker, open_lance_worker, version

CORES = choose_pinning("none").client
THERE, NEW = Rows(300, first=0, step=2), Rows(200, first=1, step=2)


@pytest.mark.integration
@pytest.mark.parametrize(
    "serve", [redis.serve_increments, redis.serve_sets, redis.serve_async_sets]
)
def test_redis_is_measured_by_more_callers_than_it_has_connections(
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
        assert worker.call(LanceWorker.scan, "t", Rows(400), 100, 0.0) > 0
        assert worker.call(LanceWorker.append, "t", NEW).duration_s > 0
        assert worker.call(LanceWorker.count, "t") == 700
        worker.call(LanceWorker.remove, "t")
    assert files_in(tmp_path) == set()
    assert version().startswith("Lance, pylance ")


def test_what_is_new_in_a_folder_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
