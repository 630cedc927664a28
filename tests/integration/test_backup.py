"""Backups of a real cluster while it is written to, and clusters made of them."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

import dodona
import dodona.aio
from dodona_local.backup import back_up, restore
from dodona_local.launcher import LocalCluster
from dodona_local.progress import Progress
from unit.backup.tables import make_impossible

pytestmark = pytest.mark.integration

BANK: Final = "//backups/bank"
LOG: Final = "//backups/log"
ACCOUNTS: Final = 20_000
BALANCE: Final = 100
TABLETS: Final = 8
WRITERS: Final = 3
TRANSFERS_MIN: Final = 30
COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "balance", "type": "int64", "lock": "money"},
    {"name": "memo", "type": "any"},
]
PIVOTS: Final[list[list[Any]]] = [[], *[[ACCOUNTS * at // TABLETS] for at in range(1, TABLETS)]]


@pytest.fixture
def bank(db: dodona.Client) -> Iterator[dodona.Client]:
    """Accounts in both nodes, and a table without atomicity."""
    attributes = {"owner": "ada", "max_data_versions": 2}
    db.create_table(BANK, COLUMNS, pivot_keys=PIVOTS, attributes=attributes, mount=True)
    db.create_table(LOG, COLUMNS, atomicity="none", mount=True)
    rows = [{"id": at, "balance": BALANCE, "memo": {"no": [at]}} for at in range(ACCOUNTS)]
    with db.begin() as tx:
        tx.insert_rows(BANK, rows)
    db.insert_rows(LOG, rows[:1000])
    yield db
    for path in ("//backups", "//restore"):
        db.remove(path, recursive=True, force=True)


class Writers:
    """Threads that move money between accounts of different tablets, until told to stop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self.count = 0
        self.problems: list[BaseException] = []

    @contextmanager
    def running(self) -> Iterator["Writers"]:
        threads = [threading.Thread(target=self._write, args=(at,)) for at in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()
        assert self.problems == []

    def _write(self, seed: int) -> None:
        random = Random(seed)
        try:
            with dodona.connect(self._url) as db:
                while not self._is_over.is_set():
                    db.run_in_transaction(lambda tx: self._transfer(tx, random))
                    with self._lock:
                        self.count += 1
        except BaseException as error:  # noqa: BLE001 - the test fails by it
            self.problems.append(error)

    def _transfer(self, tx: dodona.Transaction, random: Random) -> None:
        ids = random.sample(range(ACCOUNTS), 2)
        source, target = tx.lookup_rows(BANK, [{"id": it} for it in ids])
        amount = random.randint(0, source["balance"])
        for row, change in ((source, -amount), (target, amount)):
            changed = {"id": row["id"], "balance": row["balance"] + change}
            tx.insert_rows(BANK, [changed], update=True)


class Watching(Progress):
    """Waits for the writers in the middle of a backup."""

    def __init__(self, writers: Writers) -> None:
        self._writers = writers
        self._enough = threading.Event()

    def advance(self, count: int) -> None:
        began = self._writers.count
        while self._writers.count < began + TRANSFERS_MIN // WRITERS and not self._enough.is_set():
            self._enough.wait(0.01)
            assert not self._writers.problems
        self._enough.set()


def total(rows: Any) -> int:
    return sum(rows.column("balance").to_pylist())


def test_a_backup_under_writes_is_one_snapshot_and_can_be_restored(
    cluster: LocalCluster, bank: dodona.Client, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    writers = Writers(cluster.master_url)
    with writers.running():
        while writers.count < TRANSFERS_MIN:
            threading.Event().wait(0.01)
        made = back_up(bank, folder, [BANK, LOG], progress=Watching(writers))
    assert [it.row_count for it in made.tables] == [ACCOUNTS, 1000]
    assert len(made.tables[0].parts) == TABLETS
    then = bank.read_arrow(BANK, timestamp=made.timestamp)
    log = bank.read_arrow(LOG)
    assert total(then) == ACCOUNTS * BALANCE
    assert not then.equals(bank.read_arrow(BANK)), "it was written to meanwhile"

    with dodona.open(tmp_path / "embedded") as embedded:
        restore(embedded, folder)
        assert embedded.read_arrow(BANK).equals(then)

    before = bank.get_table(BANK)
    for path in (BANK, LOG):
        bank.remove_table(path)
    restore(bank, folder)
    assert bank.read_arrow(BANK).equals(then)
    assert bank.read_arrow(LOG).equals(log)
    after = bank.get_table(BANK)
    assert (after.schema, after.settings) == (before.schema, before.settings)
    assert [it.pivot_key for it in after.tablets] == [it.pivot_key for it in before.tablets]
    assert {it.cell for it in after.tablets} == {it.cell for it in before.tablets}
    assert bank.get(f"{BANK}/@owner") == "ada"
    again = Writers(cluster.master_url)
    with again.running():
        while again.count < TRANSFERS_MIN:
            threading.Event().wait(0.01)
    assert total(bank.read_arrow(BANK)) == ACCOUNTS * BALANCE


def test_a_table_with_an_expression_that_is_refused_today_is_restored(
    db: dodona.Client, tmp_path: Path
) -> None:
    path = "//impossible/old"
    rows = make_impossible(db, path)
    try:
        back_up(db, tmp_path / "backup", [path])
        db.remove_table(path)
        restore(db, tmp_path / "backup")
        assert list(db.select(path)) == rows
        with dodona.open(tmp_path / "embedded") as embedded:
            restore(embedded, tmp_path / "backup")
            assert list(embedded.select(path)) == rows
    finally:
        db.remove("//impossible", recursive=True)


def run(*words: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "dodona_local.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_commands_speak_to_a_cluster(
    cluster: LocalCluster, bank: dodona.Client, tmp_path: Path
) -> None:
    folder, url = tmp_path / "backup", cluster.master_url
    ended = run("backup", folder, BANK, "--url", url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"1 table with {ACCOUNTS:,} rows as of ")
    ended = run("restore", folder, "--url", url)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        f"dodona: {BANK} exists already, and a restore overwrites nothing: remove or move it, or "
        "name the tables to restore\n"
    )
    bank.remove_table(BANK)
    ended = run("restore", folder, "--url", url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert total(bank.read_arrow(BANK)) == ACCOUNTS * BALANCE
    ended = run("backup", folder, "--url", url)
    assert ended.returncode == 1
    assert "choose a new or an empty folder" in ended.stderr
    ended = run("backup", tmp_path / "other", "//backups/none", "--url", url)
    assert ended.returncode == 1
    assert ended.stderr.startswith("dodona: There is no table //backups/none")
    assert not (tmp_path / "other").exists()


@pytest.mark.anyio
async def test_an_asyncio_client_can_hold_a_snapshot(
    cluster: LocalCluster, bank: dodona.Client
) -> None:
    async with await dodona.aio.connect(cluster.master_url) as db:
        async with db.hold_snapshot([BANK]) as snapshot:
            bank.insert_rows(BANK, [{"id": 1, "balance": -1}])
            count = 0
            async for batch in snapshot.read_batches(BANK, columns=["balance"]):
                count += total(batch)
            await snapshot.check()
        assert count == ACCOUNTS * BALANCE
        with pytest.raises(dodona.InvalidRequest):
            await snapshot.check()
