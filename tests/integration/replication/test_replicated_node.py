"""A cluster whose logs have copies loses replicas, etcd, and nodes with their folders."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import dodona
from dodona_loadtest.chaos.campaign import CampaignPlan, run_campaign
from dodona_local import etcd_member
from dodona_local.checking import check_folder
from dodona_local.errors import LaunchFailed
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import Replicas
from dodona_local.supervisor import Plan
from dodona_replication.core.document import Document
from dodona_replication.shell.etcd import EtcdCoordinator
from dodona_replication.shell.etcd_options import EtcdOptions
from suite.etcd import NEEDS_ETCD
from suite.waiting import wait_until

pytestmark = [pytest.mark.integration, NEEDS_ETCD]

SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


def forgetful(plans: list[Plan]) -> list[Plan]:
    """Let each start of a node find an empty folder."""
    module = "integration.replication.forgetful_node"
    return [replace(it, module=module) if it.name.startswith("node") else it for it in plans]


def replicated(folder: Path, count: int = 3, *, forgets: bool = False) -> LocalCluster:
    arrange = forgetful if forgets else list
    return LocalCluster(folder, node_count=1, replicas=Replicas(count), arrange=arrange)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def cluster(folder: Path) -> Iterator[LocalCluster]:
    with replicated(folder, 4, forgets=True) as it:
        yield it


def write(db: dodona.Client, first: int, count: int) -> None:
    for key in range(first, first + count):
        rows = [{"k": key, "v": key * key}]
        db.run_in_transaction(partial(dodona.Transaction.insert_rows, path="//t", rows=rows))


def make_chunks(db: dodona.Client) -> None:
    """Bring all rows into chunks."""
    db.unmount_table("//t")
    db.mount_table("//t")


async def document_of(folder: Path, log: str = "cell-0") -> Document:
    urls = [f"unix://{etcd_member.socket_path(folder / 'etcd', it)}" for it in range(3)]
    options = EtcdOptions(urls, (folder / "cluster-name").read_text())
    coordinator = EtcdCoordinator(options)
    found = await coordinator.read(log)
    await coordinator.close()
    assert found is not None
    return found.document


@pytest.mark.part("a cell survives its replica, and its node with the folder")
def test_a_cell_outlives_a_replica_and_the_folder_of_its_node(
    cluster: LocalCluster, folder: Path
) -> None:
    with dodona.connect(cluster.master_url, timeout_ms=60_000) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 50)
        cluster.pause("replica 0")
        write(db, 50, 50)
        make_chunks(db)
        assert list(folder.glob("objects/**/*.arrow")) != []
        write(db, 100, 50)
        cluster.kill("node 0")
        write(db, 150, 50)
        rows = db.query("select k, v from [//t] order by k").to_pylist()
        assert rows == [{"k": key, "v": key * key} for key in range(200)]
        cluster.resume("replica 0")


@pytest.mark.rest("the tests of the coordinator show it without a cell")
def test_a_cell_goes_on_while_etcd_is_away(cluster: LocalCluster, folder: Path) -> None:
    """No owner and no set changes meanwhile."""
    with dodona.connect(cluster.master_url, timeout_ms=60_000) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 10)
        document = asyncio.run(document_of(folder))
        for index in range(3):
            cluster.pause(f"etcd {index}")
        write(db, 10, 200)
        assert len(db.query("select k from [//t]")) == 210
        for index in range(3):
            cluster.resume(f"etcd {index}")
        assert asyncio.run(document_of(folder)) == document
        cluster.kill("node 0")
        write(db, 210, 10)
        assert len(db.query("select k from [//t]")) == 220


@pytest.mark.rest("the unit tests of the cache of chunks show it without processes")
def test_a_node_that_lacks_an_object_says_which_one_and_starts_when_it_is_back(
    cluster: LocalCluster, folder: Path
) -> None:
    name = (folder / "cluster-name").read_text()
    objects, aside = folder / "objects" / name, folder / "aside"
    with dodona.connect(cluster.master_url, timeout_ms=60_000) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 50)
        make_chunks(db)
        objects.rename(aside)
        cluster.kill("node 0")
        said = folder / "logs" / "node-0.log"
        wait_until(lambda: "The log names chunk" in said.read_text(), "nothing was said of it")
        assert f"there is no object {name}/cell-0/" in said.read_text()
        aside.rename(objects)
        write(db, 50, 10)
        assert len(db.query("select k from [//t]")) == 60


@pytest.mark.rest("the tests of the runtime and of the owner show each half")
def test_below_the_smallest_set_requests_are_refused_until_a_replica_comes_back(
    cluster: LocalCluster,
) -> None:
    """What was not answered meanwhile is not lost."""
    with dodona.connect(cluster.master_url, timeout_ms=60_000) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 10)
        for index in range(1, 4):
            cluster.pause(f"replica {index}")

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
        for index in range(1, 4):
            cluster.resume(f"replica {index}")
        write(db, 10, 10)
        assert len(db.query("select k from [//t]")) == 20


@pytest.mark.rest("the unit tests of the log show it without processes")
def test_a_clean_stop_gives_the_log_up_and_the_next_start_goes_on(folder: Path) -> None:
    """Its folder has copies of the chunks, which need not be fetched. Ports are others, and members
    of etcd and replicas are found all the same."""
    with (
        replicated(folder) as cluster,
        dodona.connect(cluster.master_url, timeout_ms=60_000) as db,
    ):
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 50)
        make_chunks(db)
        write(db, 50, 50)
        document = asyncio.run(document_of(folder))
    with (
        replicated(folder) as cluster,
        dodona.connect(cluster.master_url, timeout_ms=60_000) as db,
    ):
        write(db, 100, 10)
        assert len(db.query("select k from [//t]")) == 110
        again = asyncio.run(document_of(folder))
    assert (again.epoch, again.members) == (document.epoch + 1, document.members)
    assert "the object store gave chunks" not in (folder / "logs" / "node-0.log").read_text()


@pytest.mark.rest("the checks of a replica and of a chunk have tests of their own")
def test_the_folder_of_such_a_cluster_is_checked(folder: Path) -> None:
    with (
        replicated(folder) as cluster,
        dodona.connect(cluster.master_url, timeout_ms=60_000) as db,
    ):
        db.create_table("//t", schema=SCHEMA, mount=True)
        write(db, 0, 50)
        make_chunks(db)
    found = check_folder(folder)
    names = [it.name for it in found]
    assert names == ["master", "replica-0", "replica-1", "replica-2", "objects"]
    assert all(not it.damages for it in found)
    assert "object store: 1 chunks, 50 versions" in found[-1].contents
    (chunk,) = (folder / "objects").rglob("*.arrow")
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    (damage,) = check_folder(folder)[-1].damages
    assert damage.attributes["path"] == str(chunk)


@pytest.mark.rest("the first test shows it for one node")
@pytest.mark.alone
def test_acknowledged_commits_survive_kills_of_nodes_that_lose_their_folders(
    tmp_path: Path,
) -> None:
    plan = CampaignPlan(kills=10, seed=6)
    summary = run_campaign(plan, tmp_path, print, arrange=forgetful, replicas=Replicas(4))
    assert summary.violations == []
    assert summary.kills_by_role()["node"] > 1


# What a launcher refuses


def test_replicas_can_not_be_left_out_later(folder: Path) -> None:
    (folder / "replica-2").mkdir(parents=True)
    (folder / "replica-0").mkdir()
    text = "has its logs on 2 log replicas: start it with --replicas 2"
    with pytest.raises(LaunchFailed, match=text):
        LocalCluster(folder).__enter__()


def test_replicas_can_not_be_added_beside_logs_in_folders(folder: Path) -> None:
    (folder / "node-0" / "log").mkdir(parents=True)
    (folder / "node-0" / "log" / "1").touch()
    with pytest.raises(LaunchFailed, match="start it without --replicas"):
        replicated(folder).__enter__()


def test_an_embedded_database_refuses_such_a_folder(folder: Path) -> None:
    (folder / "replica-2").mkdir(parents=True)
    with pytest.raises(dodona.errors.InvalidRequest, match="`dodona up --replicas 1`"):
        dodona.open(folder)


def test_an_object_store_needs_replicas() -> None:
    words = ["-m", "dodona_local.cli", "up", "--object-store", "s3://bucket/prefix"]
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr == "--object-store needs --replicas: without it, chunks are in FOLDER\n"


def test_two_replicas_are_too_few(folder: Path) -> None:
    with pytest.raises(LaunchFailed, match="must be 3 to 16, not 2"):
        replicated(folder, 2).__enter__()


def test_without_etcd_a_user_is_told_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(LaunchFailed, match="apt-get install etcd-server"):
        replicated(folder).__enter__()


def test_a_path_that_is_too_long_for_sockets_is_refused(folder: Path) -> None:
    with pytest.raises(LaunchFailed, match="too long for the sockets of etcd"):
        replicated(folder / ("x" * 90)).__enter__()
