"""Each scenario under Locust on one cluster, over both clients: a verdict each, and a clean one.

Owns: the proof that the real processes are driven and judged. That lies are found is shown on a
database in memory (`unit/loadtest/test_scenarios`), and here once more.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import pytest

import dodona
from dodona.errors import DodonaError
from dodona_loadtest.load import Client, Load
from dodona_loadtest.scenarios import SCENARIOS
from dodona_local.launcher import LocalCluster

pytestmark = pytest.mark.integration

NAMES: Final = list(SCENARIOS)
SMALL: Final = ("--rows", "200", "--field-count", "3", "--hotspot-accounts", "20")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes and a gateway."""
    folder: Path = tmp_path_factory.mktemp("loaded")
    with LocalCluster(folder / "data", gateway_count=1, is_insecure=True) as running:
        yield running


def run(
    cluster: LocalCluster, client: Client, scenario: str, *more: str, seconds: float = 2
) -> "CompletedProcess[str]":
    return Load(client, scenario, seconds, 4, [*SMALL, *more]).run(cluster)


@pytest.mark.parametrize("place", range(0, len(NAMES), 2), ids=NAMES[::2])
def test_scenarios_get_clean_verdicts(loaded: LocalCluster, place: int) -> None:
    """Two over one client, and side by side with them two others over the other."""
    mine, others = NAMES[place : place + 2], [*NAMES, *NAMES][place + 2 : place + 4]
    tests: list[tuple[Client, str]] = [("python", name) for name in mine]
    tests += [("rest", name) for name in others]
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(run, loaded, client, name) for client, name in tests]
        for done, (_, name) in zip(running, tests, strict=True):
            ended = done.result()
            assert ended.returncode == 0, ended.stdout + ended.stderr
            assert ended.stdout.endswith("no violation\n\nPASSED\n")
            assert f"\n# {name}, " in ended.stdout
    with dodona.connect(loaded.master_url) as db:
        assert db.list_tables() == []


@contextmanager
def a_forger(url: str) -> Iterator[None]:
    """Somebody pays himself, once there are accounts, as a database might that lost an update."""
    is_over, path = threading.Event(), "//smallbank/checking"

    def forge() -> None:
        with dodona.connect(url) as db:
            while not is_over.wait(0.05):
                with suppress(DodonaError):
                    if db.lookup_rows(path, [{"id": 1}]):
                        row = {"id": 1, "balance": 1_000_000, "writer": "nobody"}
                        db.insert_rows(path, [row])
                        return

    forger = threading.Thread(target=forge)
    forger.start()
    try:
        yield
    finally:
        is_over.set()
        forger.join()


def test_a_broken_promise_fails_the_load_test_and_keeps_its_tables(
    loaded: LocalCluster,
) -> None:
    with a_forger(loaded.master_url):
        forged = run(loaded, "rest", "smallbank")
    assert forged.returncode == 1
    assert "GHOST: nobody wrote" in forged.stdout
    assert "cents" in forged.stdout
    again = run(loaded, "python", "smallbank", seconds=1)
    assert again.returncode == 2
    assert "no set-up: //smallbank/checking is there already" in again.stdout
    with dodona.connect(loaded.master_url) as db:
        for name in ("checking", "savings", "customers"):
            db.remove_table(f"//smallbank/{name}")


def test_a_broken_limit_a_full_history_and_a_failed_setup_have_different_exit_codes(
    loaded: LocalCluster,
) -> None:
    nobody = "http://127.0.0.1:1"
    full = run(loaded, "python", "bank", "--records-max", "300", seconds=60)
    assert full.returncode == 0, full.stdout + full.stderr
    assert "ended early, with 300 records" in full.stdout
    tests: list[tuple[Client, list[str], int, str]] = [
        ("python", ["timestamps", "--rate-min", "1e9"], 1, "limit 1e+09: BROKEN\n"),
        ("rest", ["ycsb_a", "--zipfian-theta", "2"], 2, "no set-up: --zipfian-theta must be at"),
        ("rest", ["loads"], 2, "no set-up: loads goes over the Python client only"),
        ("rest", ["ycsb_b", "--master-url", nobody], 2, f"no set-up: the master at {nobody} can't"),
    ]
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(run, loaded, client, *options) for client, options, *_ in tests]
        for done, (*_, status, said) in zip(running, tests, strict=True):
            ended = done.result()
            assert ended.returncode == status, ended.stdout + ended.stderr
            assert said in ended.stdout
