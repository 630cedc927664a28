"""A cell moves to a node that stands by when its own node stops, and back when that one stops."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import dodona
from dodona_loadtest.chaos.campaign import CampaignPlan, run_campaign
from dodona_local.errors import LaunchFailed
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import Replicas
from dodona_local.status import look_at_cluster
from dodona_server.lifecycle import HEALTH_PATHS
from integration.replication.clusters import SCHEMA, write
from integration.replication.test_replicated_node import forgetful
from suite.etcd import NEEDS_ETCD
from suite.waiting import wait_until

pytestmark = [pytest.mark.integration, NEEDS_ETCD]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def cluster(folder: Path) -> Iterator[LocalCluster]:
    replicas = Replicas(3, standby_count=1)
    with LocalCluster(folder, node_count=1, replicas=replicas) as it:
        yield it


@pytest.fixture
def db(cluster: LocalCluster) -> Iterator[dodona.Client]:
    with dodona.connect(cluster.master_url, timeout_ms=60_000) as it:
        it.create_table("//t", schema=SCHEMA, mount=True)
        yield it


def rows(db: dodona.Client) -> list[int]:
    found = db.query("select k, v from [//t] order by k").to_pylist()
    assert all(it["v"] == it["k"] ** 2 for it in found)
    return [it["k"] for it in found]


def said(folder: Path, name: str, text: str) -> Callable[[], int]:
    """How often the log of a process has this text."""
    return lambda: (folder / "logs" / f"{name}.log").read_text().count(text)


STANDS_BY = "this node stands by"


@pytest.mark.part("a cell moves to another process when its node stops, and back")
def test_a_cell_moves_to_a_standby_and_back(
    cluster: LocalCluster, folder: Path, db: dodona.Client
) -> None:
    """A node that was only paused finds out that it lost the cell, and stands by then."""
    wait_until(said(folder, "standby", STANDS_BY), "it never stood by")
    write(db, 0, 20)
    cluster.pause("node 0")
    write(db, 20, 20)
    assert cluster.processes["standby"].start_count == 1
    cluster.resume("node 0")
    wait_until(said(folder, "node-0", "is not this process's any more"), "it never found out")
    wait_until(said(folder, "node-0", STANDS_BY), "it never stood by")
    cluster.wait_until_ready("node 0", start_count=2)
    assert rows(db) == [*range(40)]
    cluster.pause("standby")
    write(db, 40, 20)
    assert rows(db) == [*range(60)]
    cluster.resume("standby")


@pytest.mark.rest("the first test shows it with a node that stands still")
def test_a_node_that_is_gone_with_its_folder_comes_back_and_stands_by(folder: Path) -> None:
    replicas = Replicas(3, standby_count=1)
    with (
        LocalCluster(folder, node_count=1, replicas=replicas, arrange=forgetful) as cluster,
        dodona.connect(cluster.master_url, timeout_ms=60_000) as db,
    ):
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 20)
        for first in range(20, 80, 20):
            cluster.kill("node 0")
            cluster.kill("standby")
            write(db, first, 20)
        assert rows(db) == [*range(80)]


@pytest.mark.rest("the first test shows it for a cell")
def test_a_standby_reports_that_it_is_ready_and_serves_nothing(
    cluster: LocalCluster, folder: Path
) -> None:
    wait_until(said(folder, "standby", STANDS_BY), "it never stood by")
    url = cluster.processes["standby"].url
    for path in HEALTH_PATHS:
        assert httpx.get(url + path).status_code == 200
    assert "dodona_node_standby 1.0" in httpx.get(f"{url}/metrics").text
    refusal = httpx.get(f"{url}/v1/statistics")
    assert refusal.status_code == 503
    assert "This server stands by for others" in refusal.text

    def standbys() -> list[str | None]:
        found = look_at_cluster(cluster.master_url)
        return [it.address for it in found if it.part == "standby" and it.is_ready]

    wait_until(lambda: standbys() == [url], "the status does not list it")


@pytest.mark.rest("the campaign without standbys shows it, too")
@pytest.mark.alone
def test_acknowledged_commits_survive_kills_while_cells_move(tmp_path: Path) -> None:
    plan = CampaignPlan(kills=20, seed=7)
    replicas = Replicas(4, standby_count=2)
    summary = run_campaign(plan, tmp_path, print, arrange=forgetful, replicas=replicas)
    assert summary.violations == []
    assert summary.kills_by_role()["node"] > 0


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        (Replicas(3, standby_count=17), "the number of standbys must be 0 to 16, not 17"),
        (Replicas(3, standby_count=-1), "the number of standbys must be 0 to 16, not -1"),
    ],
)
def test_a_number_of_standbys_that_makes_no_sense_is_refused(
    folder: Path, replicas: Replicas, text: str
) -> None:
    with pytest.raises(LaunchFailed, match=text):
        LocalCluster(folder, replicas=replicas).__enter__()


def test_standbys_need_replicas() -> None:
    words = ["-m", "dodona_local.cli", "up", "--standbys", "1"]
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert (
        run.stderr == "dodona: --standbys needs --replicas: else each log is in a node's folder\n"
    )
