"""A cluster whose logs have copies loses replicas, etcd, and nodes with their folders."""

import random
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona_loadtest.chaos.campaign import CampaignPlan, run_campaign
from dodona_local.checking import check_folder
from dodona_local.errors import LaunchFailed
from dodona_local.folder import DataFolder
from dodona_local.launcher import LocalCluster
from dodona_local.ports import HOST, reserve_ports
from dodona_local.replicas import Replicas
from dodona_local.replicated_folder import ReplicatedFolder
from dodona_local.supervisor import Plan
from integration.replication.clusters import (
    SCHEMA,
    create,
    document_of,
    make_chunks,
    name_in,
    opened,
    replicated,
    write,
)
from suite.etcd import NEEDS_ETCD
from suite.waiting import wait_until

pytestmark = [pytest.mark.integration, NEEDS_ETCD]


def forgetful(plans: list[Plan]) -> list[Plan]:
    """Let each start of a node find an empty folder."""
    module = "integration.replication.forgetful_node"
    return [replace(it, module=module) if it.name.startswith("node") else it for it in plans]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def cluster(folder: Path) -> Iterator[LocalCluster]:
    with LocalCluster(folder, node_count=1, replicas=Replicas(4), arrange=forgetful) as it:
        yield it


@pytest.mark.part("a cell survives its replica, and its node with the folder")
def test_a_cell_outlives_a_replica_and_the_folder_of_its_node(
    cluster: LocalCluster, folder: Path
) -> None:
    with dodona.connect(cluster.master_url, timeout_ms=60_000) as db:
        create(db)
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
        create(db)
        write(db, 0, 10)
        document = document_of(folder)
        for index in range(3):
            cluster.pause(f"etcd {index}")
        write(db, 10, 200)
        assert len(db.query("select k from [//t]")) == 210
        for index in range(3):
            cluster.resume(f"etcd {index}")
        assert document_of(folder) == document
        cluster.kill("node 0")
        write(db, 210, 10)
        assert len(db.query("select k from [//t]")) == 220


@pytest.mark.rest("the unit tests of the cache of chunks show it without processes")
def test_a_node_that_lacks_an_object_says_which_one_and_starts_when_it_is_back(
    cluster: LocalCluster, folder: Path
) -> None:
    name = name_in(folder)
    objects, aside = folder / "objects" / name, folder / "aside"
    with dodona.connect(cluster.master_url, timeout_ms=60_000) as db:
        create(db)
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
        create(db)
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
    with opened(replicated(folder)) as db:
        create(db)
        write(db, 0, 50)
        make_chunks(db)
        write(db, 50, 50)
        document = document_of(folder)
    with opened(replicated(folder)) as db:
        write(db, 100, 10)
        assert len(db.query("select k from [//t]")) == 110
        again = document_of(folder)
    assert (again.epoch, again.members) == (document.epoch + 1, document.members)
    said = (folder / "logs" / "node-0.log").read_text()
    assert "rows of chunks come from the object store" not in said


def copied_bytes(folder: Path) -> int:
    """The size of the copies of chunks in the folder of the node."""
    found = (folder / "node-0" / "chunks").glob("*.arrow")
    return sum(it.stat().st_size for it in found)


@pytest.mark.part(
    "rows come from the object store within a limit, also of a node without its folder"
)
def test_a_node_keeps_so_many_copies_of_chunks_as_it_may(folder: Path) -> None:
    """Four chunks of half a MiB each are larger than the limit of one MiB."""
    chunks, rows = range(4), range(512)
    schema = [SCHEMA[0], {"name": "v", "type": "string"}]
    attributes = {"enable_compaction_and_partitioning": False}
    copies = Replicas(4, chunk_cache_mib_max=1)

    def value_of(key: int) -> bytes:
        return random.Random(key).randbytes(1_024)

    def keys_of(chunk: int) -> list[int]:
        return [chunk * len(rows) + row for row in rows]

    def read_all(db: dodona.Client) -> None:
        for chunk in chunks:
            keys = keys_of(chunk)
            found = db.lookup_rows("//t", [{"k": key} for key in keys])
            assert [it["v"] for it in found] == [value_of(it) for it in keys]
            wait_until(lambda: copied_bytes(folder) <= 1 << 20)

    with LocalCluster(folder, node_count=1, replicas=copies, arrange=forgetful) as cluster:
        with dodona.connect(cluster.master_url, timeout_ms=60_000) as db:
            db.create_table("//t", schema=schema, mount=True, attributes=attributes)
            for chunk in chunks:
                written = [{"k": key, "v": value_of(key)} for key in keys_of(chunk)]
                db.insert_rows("//t", written)
                make_chunks(db)
            assert len(list(folder.glob("objects/**/*.arrow"))) == len(chunks)
            wait_until(lambda: copied_bytes(folder) <= 1 << 20)
            read_all(db)
            read_all(db)
            cluster.kill("node 0")
            read_all(db)
            assert len(db.query("select k from [//t]")) == len(chunks) * len(rows)
        with urllib.request.urlopen(f"{cluster.node_urls[0]}/metrics") as page:
            metrics = page.read().decode()
    (line,) = re.findall(r"^dodona_node_chunk_cache_misses_total\S* (\S+)$", metrics, re.MULTILINE)
    assert float(line) >= len(chunks)


@pytest.mark.rest("the checks of a replica and of a chunk have tests of their own")
def test_the_folder_of_such_a_cluster_is_checked(folder: Path) -> None:
    with opened(replicated(folder)) as db:
        create(db)
        write(db, 0, 50)
        make_chunks(db)
    found = check_folder(folder)
    names = [it.name for it in found]
    replicas, members = (
        [f"{kind}{it}" for it in range(3)] for kind in ("replica-", "etcd member-")
    )
    assert names == ["master", *replicas, *members, "objects"]
    assert all(not it.damages for it in found)
    assert "object store: 1 chunks, 50 versions" in found[-1].contents
    (chunk,) = (folder / "objects").rglob("*.arrow")
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    (damage,) = check_folder(folder)[-1].damages
    assert damage.attributes["path"] == str(chunk)
    chunk.with_suffix(".index").unlink()
    assert "1 that a crash left over" in check_folder(folder)[-1].contents
    for lost in ("master", "replica-1", "etcd/member-2", "objects"):
        (folder / lost).rename(folder / "aside")
        assert [it.name for it in check_folder(folder) if it.damages] == [lost.replace("/", " ")]
        (folder / "aside").rename(folder / lost)


@pytest.mark.rest("the first test shows it for one node")
@pytest.mark.alone
def test_acknowledged_commits_survive_kills_of_nodes_that_lose_their_folders(
    tmp_path: Path,
) -> None:
    plan = CampaignPlan(kills=20, seed=6)
    summary = run_campaign(plan, tmp_path, print, arrange=forgetful, replicas=Replicas(4))
    assert summary.violations == []
    kills = summary.kills_by_role()
    assert min(kills[role] for role in ("node", "replica", "etcd")) > 0


# What a launcher refuses


def known(folder: Path, **fields: Any) -> None:
    """A folder that was started with three replicas and two nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    ReplicatedFolder("local-1", 3, 2, **fields).write(folder)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"replicas": None}, "has its logs on log replicas: start it with --replicas 3"),
        ({"replicas": Replicas(2)}, "must be 3 to 16, not 2"),
        ({"node_count": 1}, "has 2 nodes: start it with --nodes 2"),
        ({"replicas": Replicas(3, "s3://b/c")}, "objects: start it without --object-store"),
        ({"replicas": Replicas(3, "b/c")}, "b/c is no URL of an object store"),
        ({"replicas": Replicas(3, "file:///missing/folder")}, "there is no folder /missing/folder"),
    ],
)
def test_a_start_that_leaves_something_out_is_refused(
    folder: Path, options: dict[str, Any], text: str
) -> None:
    known(folder)
    with pytest.raises(LaunchFailed, match=text):
        LocalCluster(folder, **{"node_count": 2, "replicas": Replicas(3), **options}).__enter__()


def test_a_start_with_another_object_store_is_refused(folder: Path) -> None:
    known(folder, object_store="s3://bucket/prefix")
    with pytest.raises(LaunchFailed, match="start it with --object-store s3://bucket/prefix"):
        LocalCluster(folder, node_count=2, replicas=Replicas(3)).__enter__()


def test_a_member_of_etcd_without_its_data_is_refused(folder: Path) -> None:
    known(folder, has_been_ready=True)
    for index in (0, 2):
        (folder / "etcd" / f"member-{index}" / "member").mkdir(parents=True)
    with pytest.raises(LaunchFailed, match="put member-1 back"):
        LocalCluster(folder, node_count=2, replicas=Replicas(3)).__enter__()


def test_replicas_without_the_file_about_them_are_refused(folder: Path) -> None:
    (folder / "replica-0").mkdir(parents=True)
    text = r"replication\.json is missing beside log replicas"
    for replicas in (None, Replicas(3)):
        with pytest.raises(LaunchFailed, match=text):
            LocalCluster(folder, replicas=replicas).__enter__()
    with pytest.raises(dodona.errors.InvalidRequest, match=text):
        check_folder(folder)


def test_a_first_start_without_ports_leaves_no_trace(folder: Path) -> None:
    """The same folder may be started without replicas."""
    reservation = reserve_ports(0, 10)
    reservation.release()
    base, *_, last = reservation.ports
    with (
        socket.create_server((HOST, last)),
        pytest.raises(LaunchFailed, match="is not free"),
    ):
        LocalCluster(folder, replicas=Replicas(3), port_base=base).__enter__()
    with closing(DataFolder(folder)) as it:
        it.check_unreplicated()


def test_a_lost_master_is_told(folder: Path) -> None:
    known(folder, has_been_ready=True)
    for index in range(3):
        (folder / "etcd" / f"member-{index}" / "member").mkdir(parents=True)
    with pytest.raises(LaunchFailed, match=r"master\.mdb is missing beside the nodes' data"):
        LocalCluster(folder, node_count=2, replicas=Replicas(3)).__enter__()


def test_replicas_can_not_be_added_beside_logs_in_folders(folder: Path) -> None:
    (folder / "node-0" / "log").mkdir(parents=True)
    (folder / "node-0" / "log" / "1").touch()
    with pytest.raises(LaunchFailed, match="start it without --replicas"):
        replicated(folder).__enter__()


def test_an_embedded_database_refuses_such_a_folder(folder: Path) -> None:
    known(folder)
    with pytest.raises(dodona.errors.InvalidRequest, match="`dodona up --replicas`"):
        dodona.open(folder)


def test_an_object_store_needs_replicas() -> None:
    words = ["-m", "dodona_local.cli", "up", "--object-store", "s3://bucket/prefix"]
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    text = "--object-store needs --replicas: without it, chunks are in FOLDER"
    assert run.stderr == f"dodona: {text}\n"


def test_without_etcd_a_user_is_told_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(LaunchFailed, match="apt-get install etcd-server"):
        replicated(folder).__enter__()


@pytest.mark.parametrize(("name", "text"), [("x" * 90, "too long"), ("a,b", "has a comma")])
def test_a_path_that_etcd_can_not_have_is_refused(folder: Path, name: str, text: str) -> None:
    with pytest.raises(LaunchFailed, match=text):
        replicated(folder / name).__enter__()


def test_proxies_and_options_of_etcd_in_the_environment_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path may have a space and a percent sign, too."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ETCD_NAME", "other")
    with replicated(tmp_path / "a %20b") as cluster:
        assert cluster.processes["node 0"].is_ready
