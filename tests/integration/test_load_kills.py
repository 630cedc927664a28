"""Bulk loads and `kill -9`: of a node that has staged rows, and of the process whose load it is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import dodona
from dodona_local.launcher import LocalCluster
from suite.programs import program

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

COLUMNS = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
COUNT: Final = 20_000
HALVES = [[], [COUNT // 2]]
LEASE_MS: Final = 2_000
PATIENCE_S: Final = 60

OWNER = """
import sys, pyarrow as pa, dodona
db = dodona.connect(sys.argv[1])
load = db.loads.begin([sys.argv[2]], lease_ms=int(sys.argv[3]), owner="who will be killed")
load.write(sys.argv[2], pa.table({"k": [1, 20_000 - 1], "v": [7, 7]}))
print(load.id, flush=True)
sys.stdin.read()
"""


def rows(value: int) -> pa.Table:
    return pa.table({"k": range(COUNT), "v": [value] * COUNT})


@pytest.mark.parametrize("names", [["node 0"], ["node 0", "node 1"]])
def test_a_load_is_published_although_nodes_with_staged_rows_are_killed(
    tmp_path: Path, names: list[str]
) -> None:
    with LocalCluster(tmp_path / "data") as cluster, dodona.connect(cluster.master_url) as db:
        db.create_table("//t", COLUMNS, pivot_keys=HALVES, mount=True)
        db.insert_rows("//t", [{"k": COUNT + 1, "v": 0}])
        load = db.loads.begin(["//t"], erased={"//t": ([COUNT], None)})
        load.write("//t", rows(1))
        for name in names:
            cluster.kill(name)
        published = load.publish()
        assert (published.row_count, published.deleted_count) == (COUNT, 1)
        assert db.read_arrow("//t").equals(rows(1).cast(db.read_arrow("//t").schema))
        for name in names:
            cluster.kill(name)
        assert load.publish() == published
        assert len(db.select("//t")) == COUNT


def test_another_client_recovers_a_load_whose_owner_is_killed(
    cluster: LocalCluster, db: dodona.Client
) -> None:
    path = "//loads/recovered"
    db.create_table(path, COLUMNS, pivot_keys=HALVES, mount=True)
    command = [sys.executable, "-c", OWNER, cluster.master_url, path, str(LEASE_MS)]
    with program(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        load = int(owner.stdout.readline())
        time.sleep(2 * LEASE_MS / 1000)
        assert db.loads.recover() == [], "it is alive, and renews its lease"
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while not (recovered := db.loads.recover("the test")):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    (recovery,) = recovered
    assert (recovery.load, recovery.outcome, recovery.owner) == (load, "rolled_back", "the test")
    assert db.loads.list_recoveries()[-1] == recovery
    (record,) = [it for it in db.loads.list_loads() if it.load == load]
    assert (record.state, record.owner) == ("aborted", "who will be killed")
    assert len(db.select(path)) == 0
    with db.loads.begin([path]) as again:
        again.write(path, rows(2))
    assert len(db.select(path)) == COUNT
