"""`python -m dodona_loadtest.verify`, and Locust, on a running cluster: what they say and leave.

Owns: the proof that a healthy cluster gets a clean verdict, and that a fault in it is seen.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

import dodona
from dodona.errors import DodonaError
from dodona_loadtest import verify
from dodona_loadtest.workloads import WORKLOADS
from dodona_local.launcher import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

LOCUSTFILE: Final = Path(__file__).parents[2] / "loadtest" / "locustfile.py"
PATH: Final = "//bank/accounts"


@contextmanager
def a_forger(db: dodona.Client) -> Iterator[None]:
    """Somebody else changes a balance, as a database might that lost an update."""
    is_over = threading.Event()

    def forge() -> None:
        while not is_over.wait(0.1):
            with suppress(DodonaError):
                db.insert_rows(PATH, [{"id": 1, "balance": 1_000_000, "writer": "nobody"}])
                return

    forger = threading.Thread(target=forge)
    forger.start()
    try:
        yield
    finally:
        is_over.set()
        forger.join()


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_a_healthy_cluster_gets_a_clean_verdict_and_is_left_as_it_was(
    cluster: LocalCluster, db: dodona.Client, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = db.list_tables()
    command = [cluster.master_url, "--workload", workload, "--seconds", "1.5", "--seed", "1"]
    assert verify.main(command) == 0
    said = capsys.readouterr().out
    assert said.endswith("no violation\n")
    assert " 0 committed" not in said
    assert db.list_tables() == before


def test_rows_that_no_session_wrote_are_a_violation_and_the_tables_stay(
    cluster: LocalCluster, db: dodona.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        with a_forger(db):
            assert verify.main([cluster.master_url, "--seconds", "1.5"]) == 1
        assert "GHOST: nobody wrote" in capsys.readouterr().out
        assert verify.main([cluster.master_url, "--seconds", "1.5"]) == 2
        assert f"{PATH} is there already" in capsys.readouterr().err
    finally:
        db.remove_table(PATH)


def test_no_cluster_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["http://127.0.0.1:1", "--seconds", "1"]) == 2
    assert capsys.readouterr().err.startswith("verify: the master at http://127.0.0.1:1 can't be")


def locust(url: str) -> "subprocess.CompletedProcess[str]":
    options = ["--headless", "--users", "6", "--spawn-rate", "6", "--run-time", "3s"]
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--host", url]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


def test_locust_drives_the_same_workloads_and_shows_the_verdict(
    cluster: LocalCluster, db: dodona.Client
) -> None:
    done = locust(cluster.master_url)
    assert "\nno violation\n" in done.stdout, done.stderr
    assert " 0 committed" not in done.stdout
    assert done.returncode == 0
    try:
        with a_forger(db):
            done = locust(cluster.master_url)
        assert "GHOST: nobody wrote" in done.stdout
        assert done.returncode == 1
    finally:
        db.remove_table(PATH)


def test_locust_without_a_verdict_is_no_success() -> None:
    assert locust("http://127.0.0.1:1").returncode == 2
