"""Commands against a real cluster: its state, rows in several cells, and whoever is down."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import dodona
from dodona_local.cli import application
from dodona_local.launcher import LocalCluster

pytestmark = pytest.mark.integration

SCHEMA = "id:int64:key,name:utf8,balance:int64"
PIVOTS = "[[], [10000], [20000]]"
COUNT = 30_000


def run(cluster: LocalCluster, *words: object, stdin: str = "", code: int = 0) -> Result:
    given = [*map(str, words), "--url", cluster.master_url]
    done = CliRunner().invoke(application, given, input=stdin)
    assert done.exit_code == code, (done.exit_code, done.output, done.exception)
    return done


def value(cluster: LocalCluster, *words: object, code: int = 0) -> Any:
    return json.loads(run(cluster, *words, "--format", "json", code=code).stdout)


def text_of(rows: range) -> str:
    return "".join([f'{{"id": {it}, "name": "n{it}", "balance": 100}}\n' for it in rows])


@pytest.mark.part("the command line against a cluster")
def test_rows_in_several_cells_come_and_go(
    cluster: LocalCluster, db: dodona.Client, path: str, tmp_path: Path
) -> None:
    """As a whole, in batches, from a file into another table: what was there is there."""
    run(cluster, "create", path, "--schema", SCHEMA, "--pivot-keys", PIVOTS)
    tablets = value(cluster, "describe", path, "--tablets")
    assert len({it["cell"] for it in tablets}) == 2
    rows = text_of(range(COUNT))
    said = run(cluster, "insert", path, "-", "--input-format", "json", stdin=rows).stdout
    (load,) = [it for it in value(cluster, "loads", "list") if it["tables"] == [path]]
    assert said.endswith(f" at timestamp {load['commit_timestamp']}\n")
    before = db.generate_timestamp()
    keys = "id\n" + "".join(f"{it}\n" for it in range(0, COUNT, 2))
    words = ("--input-format", "csv", "--batch-rows", 4000)
    run(cluster, "delete", path, "-", *words, stdin=keys)
    file = tmp_path / "rows.parquet"
    said = run(cluster, "export", path, file, "--timestamp", before).stdout
    assert said.startswith(f"{COUNT:,} rows of {path} as of timestamp {before}: ")
    run(cluster, "create", f"{path}_copy", "--schema", SCHEMA, "--pivot-keys", PIVOTS)
    run(cluster, "insert", f"{path}_copy", file, "--batch-rows", 7000)
    assert list(db.select(f"{path}_copy")) == list(db.select(path, timestamp=before))
    assert len(db.select(path)) == COUNT / 2
    (counted,) = [value(cluster, "query", f"select count(*) n, sum(balance) s from [{path}]")]
    assert counted == {"n": COUNT / 2, "s": 100 * COUNT / 2}


def test_a_row_that_others_write_is_no_reason_to_fail(
    cluster: LocalCluster, db: dodona.Client, path: str
) -> None:
    """A batch over two cells is a transaction that may lose a conflict: it is run again."""
    run(cluster, "create", path, "--schema", SCHEMA, "--pivot-keys", PIVOTS)
    command = [sys.executable, "-m", "dodona_local.cli", "insert", path, "-"]
    command += ["--input-format", "json", "--batch-rows", "50", "--url", cluster.master_url]
    rows = text_of(range(9_900, 10_100)) * 5
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write(rows)
            writer.stdin.close()
        assert [writer.wait(120) for writer in writers] == [0, 0]
    finally:
        for writer in writers:
            writer.kill()
    assert len(db.select(path)) == 200


@pytest.mark.part("the command line against a cluster")
def test_cluster_status_reports_the_state_of_each_server(cluster: LocalCluster) -> None:
    parts = value(cluster, "cluster", "status")
    assert [it["part"] for it in parts] == ["master", "proxy", "cell 0", "cell 1"]
    assert {it["state"] for it in parts} == {"ready"}
    (version,) = {it["version"] for it in parts}
    assert run(cluster, "cluster", "status").stdout.count(version) >= 4
    said = CliRunner().invoke(application, ["--version"]).stdout
    assert said == f"dodona {version}\n"
    assert all(it["committed"] is not None for it in parts[2:])
    assert value(cluster, "transactions", "in-doubt") == []


def test_commands_name_a_cell_that_does_not_answer(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", back_off_s_max=60) as cluster:
        node = cluster.processes["node 1"]
        assert node.pid is not None
        subprocess.run(["kill", "-STOP", str(node.pid)], check=True)
        try:
            parts = value(cluster, "cluster", "status", code=1)
            states = {it["part"]: it["state"] for it in parts}
            assert states["cell 0"] == states["master"] == "ready"
            assert states["cell 1"].startswith("no answer from ")
            done = run(cluster, "transactions", "in-doubt", code=3)
            assert done.stderr.startswith("dodona: cell 1 can't be asked: no answer from ")
        finally:
            subprocess.run(["kill", "-CONT", str(node.pid)], check=True)


def test_cluster_status_reports_a_master_that_does_not_answer(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9"
    done = CliRunner().invoke(application, ["cluster", "status", "--url", url])
    assert done.exit_code == 1
    assert "no answer from" in done.stdout
