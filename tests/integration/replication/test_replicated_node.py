"""A cluster whose cell has its log on replicas loses a replica, and its node with the folder."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import dodona
from dodona_loadtest.chaos.campaign import CampaignPlan, run_campaign
from dodona_local.launcher import LocalCluster
from dodona_local.ports import reserve_ports
from dodona_local.supervisor import Plan
from dodona_replication.core.document import Document
from integration.replication.replica_process import Replica
from integration.replication.replicated_node import open_coordinator
from suite.etcd import NEEDS_ETCD, etcd_cluster
from suite.waiting import WAIT_S_MAX, wait_until

pytestmark = [pytest.mark.integration, NEEDS_ETCD]

SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


def replicated(plans: list[Plan]) -> list[Plan]:
    module = "integration.replication.replicated_node"
    return [replace(it, module=module) if it.name.startswith("node") else it for it in plans]


@pytest.fixture
def replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Replica]]:
    """Four replicas, and an etcd: the processes of a cluster find them in the environment."""
    reserved = reserve_ports(0, 4)
    with ExitStack() as stack:
        folder = tmp_path / "etcd"
        folder.mkdir()
        etcd = stack.enter_context(etcd_cluster(folder))
        made = [Replica(tmp_path / f"replica-{it}", it) for it in reserved.ports]
        for it in made:
            stack.callback(it.close)
            it.launch()
        for it in made:
            it.wait_until_ready()
        monkeypatch.setenv("DODONA_TEST_FORGET", "1")
        monkeypatch.setenv("DODONA_TEST_OBJECTS", f"file://{tmp_path}/objects")
        monkeypatch.setenv("DODONA_TEST_ETCD", etcd.members[0].url)
        monkeypatch.setenv("DODONA_TEST_REPLICAS", " ".join(it.url for it in made))
        yield made
    reserved.release()


@pytest.fixture
def cluster(tmp_path: Path, replicas: list[Replica]) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "data", node_count=1, arrange=replicated) as it:
        yield it


def write(db: dodona.Client, first: int, count: int) -> None:
    for key in range(first, first + count):
        rows = [{"k": key, "v": key * key}]
        db.run_in_transaction(partial(dodona.Transaction.insert_rows, path="//t", rows=rows))


@pytest.mark.part("a cell survives its replica, and its node with the folder")
def test_a_cell_outlives_a_replica_and_the_folder_of_its_node(
    cluster: LocalCluster, replicas: list[Replica], tmp_path: Path
) -> None:
    objects = tmp_path / "objects"
    with dodona.connect(cluster.master_url, timeout_ms=60_000) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 50)
        replicas[0].process.kill()
        write(db, 50, 50)
        db.unmount_table("//t")
        db.mount_table("//t")  # chunks have all rows
        assert list(objects.rglob("*.arrow")) != []
        write(db, 100, 50)
        cluster.kill("node 0")
        write(db, 150, 50)
        rows = db.query("select k, v from [//t] order by k").to_pylist()
        assert rows == [{"k": key, "v": key * key} for key in range(200)]


@pytest.mark.rest("the unit tests of the cache of chunks show it without processes")
def test_a_node_that_lacks_an_object_says_which_one_and_starts_when_it_is_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    objects, aside = tmp_path / "objects", tmp_path / "aside"
    with dodona.connect(cluster.master_url, timeout_ms=60_000) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 50)
        db.unmount_table("//t")
        db.mount_table("//t")
        objects.rename(aside)
        cluster.kill("node 0")
        said = tmp_path / "data" / "logs" / "node-0.log"
        wait_until(lambda: "The log names chunk" in said.read_text(), "nothing was said of it")
        assert "there is no object home/cell-0/1/1.arrow" in said.read_text()
        aside.rename(objects)
        write(db, 50, 10)
        assert len(db.query("select k from [//t]")) == 60


@pytest.mark.rest("the tests of the runtime and of the owner show each half")
def test_below_the_smallest_set_requests_are_refused_until_a_replica_comes_back(
    cluster: LocalCluster, replicas: list[Replica]
) -> None:
    """What was not answered meanwhile is not lost."""
    with dodona.connect(cluster.master_url, timeout_ms=60_000) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 10)
        for it in replicas[1:]:
            it.process.kill()
            it.process.wait(WAIT_S_MAX)

        def refusal() -> str:
            try:
                with db.begin(timeout_ms=2_000) as transaction:
                    transaction.insert_rows("//t", [{"k": 11, "v": 11}], timeout_ms=2_000)
            except dodona.errors.Unavailable as error:
                return error.message
            except dodona.errors.DodonaError:
                pass
            return ""

        def is_refused() -> str:
            text = refusal()
            return text if "needs 2" in text else ""

        text = wait_until(is_refused, "no refusal")
        assert "copies and needs 2, but nothing comes from http://127.0.0.1:" in text
        for it in replicas[1:]:
            it.start()
        write(db, 10, 10)
        assert len(db.query("select k from [//t]")) == 20


@pytest.mark.rest("the unit tests of the log show it without processes")
def test_a_clean_stop_gives_the_log_up_and_the_next_start_goes_on(
    tmp_path: Path, replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder has copies of the chunks, which need not be fetched."""
    monkeypatch.delenv("DODONA_TEST_FORGET")
    folder = tmp_path / "data"
    with (
        LocalCluster(folder, node_count=1, arrange=replicated) as cluster,
        dodona.connect(cluster.master_url, timeout_ms=60_000) as db,
    ):
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 50)
        db.unmount_table("//t")
        db.mount_table("//t")
        write(db, 50, 50)
    document = asyncio.run(document_of("cell-0"))
    assert document.released
    with (
        LocalCluster(folder, node_count=1, arrange=replicated) as cluster,
        dodona.connect(cluster.master_url, timeout_ms=60_000) as db,
    ):
        write(db, 100, 10)
        assert len(db.query("select k from [//t]")) == 110
    assert asyncio.run(document_of("cell-0")).epoch == document.epoch + 1


async def document_of(log: str) -> Document:
    coordinator = await open_coordinator()
    found = await coordinator.read(log)
    await coordinator.close()
    assert found is not None
    return found.document


@pytest.mark.rest("the first test shows it for one node")
@pytest.mark.alone
def test_acknowledged_commits_survive_kills_of_nodes_that_lose_their_folders(
    tmp_path: Path, replicas: list[Replica]
) -> None:
    summary = run_campaign(CampaignPlan(kills=10, seed=6), tmp_path, print, arrange=replicated)
    assert summary.violations == []
    assert summary.kills_by_role()["node"] > 1
