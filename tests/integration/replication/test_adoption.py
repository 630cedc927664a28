"""A plain cluster gets copies of its logs, by real replicas and etcd, and goes on with them."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dodona
from dodona.errors import InvalidRequest, Unavailable
from dodona_local import adopting
from dodona_local.adoption import PLAIN, Adoption, State
from dodona_local.checking import check_folder
from dodona_local.launcher import LocalCluster
from dodona_local.progress import Progress
from dodona_local.replicas import Replicas
from dodona_tablets.shell import s3_objects
from dodona_tablets.shell.s3_objects import S3Objects
from integration.replication.clusters import (
    SCHEMA,
    create,
    make_chunks,
    opened,
    replicated,
    write,
)
from suite.etcd import NEEDS_ETCD
from suite.programs import program
from suite.s3 import BUCKET, ENVIRONMENT, s3_server
from suite.waiting import WAIT_S_MAX, wait_until

pytestmark = [pytest.mark.integration, NEEDS_ETCD]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cluster with two nodes: rows are in a chunk and in a log."""
    folder = tmp_path_factory.mktemp("made") / "data"
    with opened(LocalCluster(folder, node_count=2)) as db:
        create(db)
        write(db, 0, 50)
        make_chunks(db)
        write(db, 50, 50)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "data")


def content(folder: Path) -> dict[str, bytes]:
    files = [it for part in ("node-0", "node-1") for it in (folder / part).rglob("*")]
    return {
        str(it.relative_to(folder)): it.read_bytes()
        for it in files
        if it.is_file() and it.name != "dodona.lock"
    }


def values(db: dodona.Client) -> list[int]:
    return [it["v"] for it in db.query("select v from [//t] order by k").to_pylist()]


def squares(count: int) -> list[int]:
    return [key * key for key in range(count)]


def adopt(folder: Path, replicas: Replicas) -> None:
    adopting.adopt(folder, replicas, Progress(), print)


@pytest.mark.part("a plain cluster gets copies of its logs")
def test_a_plain_cluster_goes_on_with_copies(tmp_path: Path) -> None:
    """An embedded database has the folder of a cluster with one node."""
    folder = tmp_path / "data"
    with dodona.open(folder) as db:
        create(db)
        write(db, 0, 5)
        make_chunks(db)
        write(db, 5, 5)
    adopt(folder, Replicas(3))
    with opened(replicated(folder)) as db:
        assert values(db) == squares(10)


@pytest.mark.rest("the first test shows an adoption, and unit tests each step of an undo")
def test_an_adoption_that_was_killed_goes_on_and_is_undone(folder: Path) -> None:
    before = content(folder)
    command = [sys.executable, "-m", "dodona_local.cli", "cluster", "adopt", str(folder)]
    with program(command) as it:
        wait_until(lambda: any(folder.glob("objects/**/*.arrow")), "no chunk was stored")
        it.send_signal(signal.SIGKILL)
        it.wait(WAIT_S_MAX)
    assert content(folder) == before
    adoption = Adoption.read(folder)
    assert adoption is not None
    assert adoption.state is State.COPYING
    again = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=True)
    up = f"dodona up --data-dir {folder} --nodes 2 --replicas 3"
    assert again.stdout == f"adopted: start it with {up}\n"
    assert content(folder / PLAIN) == before
    with opened(replicated(folder, node_count=2)) as db:
        assert values(db) == squares(100)
    assert not [it.name for it in check_folder(folder) if it.damages]
    adopting.undo(folder)
    assert content(folder) == before


@pytest.mark.rest("the unit tests of an undo show the refusal, and what is kept")
def test_the_cluster_from_before_is_kept_beside_the_one_with_copies(
    folder: Path, tmp_path: Path
) -> None:
    adopt(folder, Replicas(3))
    with opened(replicated(folder, node_count=2)) as db:
        write(db, 100, 10)
        db.create_table("//later", schema=SCHEMA, mount=True)
    with pytest.raises(InvalidRequest, match="may have acknowledged writes since the adoption"):
        adopting.undo(folder)
    before = shutil.copytree(folder / PLAIN, tmp_path / "before")
    with opened(LocalCluster(before, node_count=2)) as db:
        assert values(db) == squares(100)
        assert not db.exists("//later")
        write(db, 100, 20)
        assert values(db) == squares(120)
    adopting.finish(folder)
    for node in ("node-0", "node-1"):
        shutil.rmtree(folder / node)
    with opened(replicated(folder, node_count=2)) as db:
        assert values(db) == squares(110)


@pytest.mark.rest("the unit tests of an adoption have a store that does not answer, too")
def test_chunks_move_to_an_object_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is away, no adoption begins."""
    before = content(folder)
    replicas = Replicas(3, f"s3://{BUCKET}/dodona")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(s3_objects, "REPEATED_S_MAX", 1)
    with pytest.raises(Unavailable):
        adopt(folder, replicas)
    assert Adoption.read(folder) is None
    with s3_server() as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
        adopt(folder, replicas)
        cluster = LocalCluster(folder, node_count=2, replicas=replicas)
        with opened(cluster) as db:
            assert values(db) == squares(100)
        adoption = Adoption.read(folder)
        assert adoption is not None
        objects = S3Objects(replicas.object_store)
        stored = list(objects.names(adoption.name))
        assert stored != []
        adopting.undo(folder)
        assert list(objects.names(adoption.name)) == stored
    assert content(folder) == before
