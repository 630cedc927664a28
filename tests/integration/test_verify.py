"""`python -m dodona_loadtest.verify` on a running cluster: what it says and leaves.

Owns: the proof that a healthy cluster gets a clean verdict, and that a fault in it is seen.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pytest

import dodona
from dodona.errors import DodonaError
from dodona_loadtest import verify
from dodona_loadtest.workloads import WORKLOADS
from dodona_local.launcher import LocalCluster

pytestmark = pytest.mark.integration

PATH: Final = "//bank/accounts"


def tables_of(db: dodona.Client) -> list[str]:
    """But for the system's own, which come with the first bulk load."""
    return [path for path in db.list_tables() if not path.startswith("//sys/")]


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


@pytest.fixture
def had_loads(db: dodona.Client, path: str) -> None:
    """A cluster's first bulk load makes tables of the system's own, which stay."""
    schema = [{"name": "k", "type": "int64", "sort_order": "ascending"}]
    db.create_table(path, [*schema, {"name": "v", "type": "int64"}], mount=True)
    db.loads.begin([path]).abort()
    db.remove_table(path)


@pytest.mark.usefixtures("had_loads")
@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_verify_finds_no_violation_in_a_healthy_cluster_and_leaves_its_tables(
    cluster: LocalCluster, db: dodona.Client, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tables_of(db)
    command = [cluster.master_url, "--workload", workload, "--seconds", "1.5", "--seed", "1"]
    assert verify.main(command) == 0
    said = capsys.readouterr().out
    assert said.endswith("no violation\n")
    assert " 0 committed" not in said
    assert tables_of(db) == before


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


def test_verify_reports_an_unreachable_cluster_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert verify.main(["http://127.0.0.1:1", "--seconds", "1"]) == 2
    assert capsys.readouterr().err.startswith("verify: the master at http://127.0.0.1:1 can't be")
