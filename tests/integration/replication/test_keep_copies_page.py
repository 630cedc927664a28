"""The commands of the page "Keep copies of logs" start a cluster that works."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dodona
from documents.blocks import blocks_of
from suite.etcd import NEEDS_ETCD
from suite.programs import program
from suite.s3 import BUCKET, ENVIRONMENT, s3_server
from suite.waiting import WAIT_S_MAX

pytestmark = [pytest.mark.integration, NEEDS_ETCD]

PAGE = "docs/how-to/keep-copies-of-logs.md"
SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


def words_of(place: int, command: str = "dodona up") -> list[str]:
    """The words of the command in a block of the page that begins so."""
    (line,) = [it for it in lines_of(place) if it.startswith(command)]
    return shlex.split(line)[1:]


def lines_of(place: int) -> list[str]:
    """The lines of a block of the page."""
    return [it for it in blocks_of(PAGE) if it.language == "sh"][place].text.splitlines()


def run(words: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "dodona_local.cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@contextmanager
def running(words: list[str], folder: Path, **environment: str) -> Iterator[str]:
    """Run the command until the end of the block. Yield the URL of the master."""
    command = [sys.executable, "-m", "dodona_local.cli", *words, "--port-base", "0"]
    env = {**os.environ, **environment}
    options = {"cwd": folder, "env": env, "stdout": subprocess.PIPE, "text": True}
    with program(command, **options) as it:
        assert it.stdout is not None
        lines = list[str]()
        while not lines or lines[-1] != "ready":
            line = it.stdout.readline()
            assert line, f"it ended: {lines}"
            lines.append(line.strip())
        yield lines[0].removeprefix("master ")
        it.send_signal(signal.SIGINT)
        assert it.wait(WAIT_S_MAX) == 0


def use(url: str) -> None:
    """Write rows, and bring them into a chunk."""
    with dodona.connect(url, timeout_ms=60_000) as db:
        fill(db)


def fill(db: dodona.Client) -> None:
    db.create_table("//t", schema=SCHEMA, mount=True)
    db.insert_rows("//t", [{"k": key, "v": key} for key in range(100)])
    db.unmount_table("//t")
    db.mount_table("//t")
    assert len(db.query("select k from [//t]")) == 100


def test_on_one_machine(tmp_path: Path) -> None:
    words = words_of(0)
    assert words == ["up", "--data-dir", "./safe-data", "--replicas", "3"]
    with running(words, tmp_path) as url:
        use(url)
    assert list(tmp_path.glob("safe-data/objects/**/*.arrow")) != []
    assert run(["check", "./safe-data"], tmp_path).returncode == 0


def test_a_cluster_gets_copies_and_the_change_is_finished(tmp_path: Path) -> None:
    adopt, up = words_of(2, "dodona cluster"), words_of(2)
    finish, undo = words_of(3, "dodona cluster"), words_of(4, "dodona cluster")
    with dodona.open(tmp_path / "dodona-data") as db:  # the folder of a cluster, too
        fill(db)
    assert "no adoption is under way here" in run(finish, tmp_path).stderr
    assert "adopted: start it with dodona up" in run(adopt, tmp_path).stdout
    with running(up, tmp_path) as url, dodona.connect(url, timeout_ms=60_000) as db:
        assert len(db.query("select k from [//t]")) == 100
        db.insert_rows("//t", [{"k": 100, "v": 0}])
    refused = run(undo, tmp_path)
    assert "may have acknowledged writes since the adoption" in refused.stderr
    assert refused.returncode == 1
    copying = lines_of(5)
    subprocess.run("\n".join(copying[:-1]), cwd=tmp_path, shell=True, check=True)
    with running(shlex.split(copying[-1])[1:], tmp_path) as url, dodona.connect(url) as db:
        assert len(db.query("select k from [//t]")) == 100
    assert "finished" in run(finish, tmp_path).stdout
    assert run(["check", "./dodona-data"], tmp_path).returncode == 0


def test_with_a_node_that_stands_by(tmp_path: Path) -> None:
    words = words_of(1)
    assert words[-4:] == ["--replicas", "3", "--standbys", "1"]
    with running(words, tmp_path) as url:
        use(url)
    assert "this node stands by" in (tmp_path / "safe-data" / "logs" / "standby.log").read_text()


def test_with_an_object_store(tmp_path: Path) -> None:
    words = words_of(6)
    assert words[-1] == "s3://bucket/dodona"
    words[-1] = f"s3://{BUCKET}/dodona"
    with (
        s3_server() as s3,
        running(words, tmp_path, AWS_ENDPOINT_URL=s3.url, **ENVIRONMENT) as url,
    ):
        use(url)
        puts = [it for it in s3.requests if it.startswith(f"PUT /{BUCKET}/dodona/local-")]
        assert {Path(it).suffix for it in puts} == {".arrow", ".index"}
    assert not (tmp_path / "safe-data" / "objects").exists()
