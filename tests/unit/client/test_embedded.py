"""The embedded database: the same API without a server, shared flushes, and recovery in place."""

import asyncio
import importlib.metadata
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona._io.sessions import load_embedded
from dodona.errors import (
    DataCorrupted,
    FolderInUse,
    InvalidRequest,
    TableNotMounted,
    TransactionAborted,
    TransactionConflict,
)
from dodona.types import Atomicity
from dodona_tablets.shell.log import CellLog

PATH = "//bank/accounts"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "balance", "type": "int64"},
]


def account(number: int, balance: int = 100) -> dict[str, Any]:
    return {"id": number, "balance": balance}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
def db(folder: str) -> Iterator[dodona.Client]:
    with dodona.open(folder) as client:
        client.create_table(PATH, SCHEMA, pivot_keys=[[], [100]], mount=True)
        yield client


def test_an_embedded_database_commits_reads_and_reports_outcomes(db: dodona.Client) -> None:
    with db.begin() as tx:
        tx.insert_rows(PATH, [account(1), account(200)])
    with db.begin() as tx:
        assert tx.lookup_rows(PATH, [{"id": 200}, {"id": 1}]) == [account(200), account(1)]
        tx.insert_rows(PATH, [account(1, 7)])
        tx.delete_rows(PATH, [{"id": 200}])
    assert db.select(PATH) == [account(1, 7)]
    assert db.read_arrow(PATH).to_pylist() == [account(1, 7)]
    assert db.outcome(tx.id).state == "committed"  # type: ignore[arg-type]
    first, second = db.generate_timestamp(), db.generate_timestamp()
    assert tx.commit_timestamp is not None
    assert tx.commit_timestamp < first < second


def test_committed_rows_exist_after_a_restart_of_an_embedded_database(folder: str) -> None:
    with dodona.open(folder) as db:
        db.create_table(PATH, SCHEMA, mount=True)
        db.create_table("//log", SCHEMA, atomicity="none", mount=True)
        last = db.insert_rows(PATH, [account(1)])
        db.insert_rows("//log", [account(2)], durability="async")
    for _ in range(2):
        with dodona.open(folder) as db:
            assert db.select(PATH) == [account(1)]
            assert db.select("//log") == [account(2)]
            assert last is not None
            assert db.generate_timestamp() > last


def test_conflicts_are_found(db: dodona.Client) -> None:
    first, second = db.begin(), db.begin()
    for tx in (first, second):
        tx.insert_rows(PATH, [account(1)])
    first.commit()
    with pytest.raises(TransactionConflict):
        second.commit()


def test_tables_are_unmounted_and_removed(db: dodona.Client) -> None:
    db.unmount_table(PATH)
    with pytest.raises(TableNotMounted):
        db.select(PATH)
    db.mount_table(PATH)
    db.insert_rows(PATH, [account(1)])
    db.unmount_table(PATH)
    db.remove_table(PATH)
    assert db.list_tables() == []


def test_bulk_writes(db: dodona.Client) -> None:
    import pyarrow

    db.create_table("//log", SCHEMA, atomicity="none", pivot_keys=[[], [500]], mount=True)
    data = pyarrow.table({"id": range(1_000), "balance": range(1_000)})
    assert db.write_arrow("//log", data) == 1_000
    assert db.read_arrow("//log").equals(data.cast(db.read_arrow("//log").schema))


def test_threads_add_up_and_share_flushes(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes: list[int] = []
    append = CellLog.append

    def counted(log: CellLog, records: Sequence[Any]) -> None:
        flushes.append(len(records))
        append(log, records)

    monkeypatch.setattr(CellLog, "append", counted)
    db.insert_rows(PATH, [account(it, 0) for it in range(8)])

    def work(number: int) -> None:
        def add(tx: dodona.Transaction) -> None:
            (row,) = tx.lookup_rows(PATH, [{"id": number % 8}])
            tx.insert_rows(PATH, [account(number % 8, row["balance"] + 1)])

        for _ in range(10):
            db.run_in_transaction(add, attempts_max=1_000)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(row["balance"] for row in db.select(PATH)) == 160
    assert max(flushes) > 1


# ---- the folder


def open_elsewhere(folder: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Another process that opens the folder, and does not succeed."""
    code = f"import dodona; dodona.open({folder!r})"
    command = [sys.executable, *options, "-c", code]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode == 1
    return run


def test_the_error_in_a_second_process_names_the_folder_in_use(
    db: dodona.Client, folder: str
) -> None:
    run = open_elsewhere(folder)
    assert "dodona.errors.FolderInUse" in run.stderr
    assert folder in run.stderr
    assert f"id {os.getpid()}" in run.stderr
    assert db.list_tables() == [PATH]


def test_a_second_open_in_the_same_process_fails_and_leaves_no_folder_lock(folder: str) -> None:
    with dodona.open(folder), pytest.raises(FolderInUse, match=folder):
        dodona.open(folder)
    dodona.open(folder).close()


def test_a_server_in_the_folder_is_respected(folder: str) -> None:
    dodona.open(folder).close()
    log = CellLog.open(Path(folder) / "node-0", 1 << 30)
    with pytest.raises(FolderInUse, match=folder):
        dodona.open(folder)
    log.close()
    dodona.open(folder).close()


def test_the_folder_of_a_larger_cluster_is_refused(folder: str) -> None:
    (Path(folder) / "node-1").mkdir(parents=True)
    with pytest.raises(InvalidRequest, match="node-1"):
        dodona.open(folder)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InvalidRequest, match="data folder"):
        dodona.open(str(tmp_path / "file"))


def test_damage_is_named_and_nothing_stays_locked(folder: str) -> None:
    dodona.open(folder).close()
    (Path(folder) / "master" / "master.mdb").write_bytes(b"damaged" * 1_000)
    for _ in range(2):
        with pytest.raises(DataCorrupted):
            dodona.open(folder)


def test_an_embedded_database_refuses_to_run_without_assertions(folder: str) -> None:
    run = open_elsewhere(folder, "-O")
    assert "InvalidRequest: an embedded database does not run under python -O" in run.stderr


@pytest.fixture
def _first_open() -> Iterator[None]:
    load_embedded.cache_clear()
    yield
    load_embedded.cache_clear()


@pytest.mark.usefixtures("_first_open")
def test_open_without_the_server_extra_names_the_extra_to_install(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(entry: importlib.metadata.EntryPoint) -> Any:
        raise ModuleNotFoundError("No module named 'lmdb'", name="lmdb")

    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", missing)
    with pytest.raises(InvalidRequest, match=r"dodona\[server\]") as caught:
        dodona.open(folder)
    assert caught.value.attributes == {"missing": "lmdb"}


@pytest.mark.usefixtures("_first_open")
@pytest.mark.parametrize("has_metadata", [False, True])
def test_open_without_a_registered_database_names_the_extra_to_install(
    folder: str, has_metadata: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also if another project's distribution has the name."""
    if has_metadata:
        foreign = tmp_path / "dodona_server-1.0.dist-info"
        foreign.mkdir()
        (foreign / "METADATA").write_text("Metadata-Version: 2.1\nName: dodona-server\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(InvalidRequest, match=r"dodona\[server\]") as caught:
        dodona.open(folder)
    assert caught.value.attributes == {"missing": "dodona-server"}


# ---- when something goes wrong


def fail_once(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, is_written: bool) -> None:
    """The next flush of the cell's log raises, before or after the records are durable."""
    append = CellLog.append

    def failing(log: CellLog, records: Sequence[Any]) -> None:
        monkeypatch.setattr(CellLog, "append", append)
        if is_written:
            append(log, records)
        raise error

    monkeypatch.setattr(CellLog, "append", failing)


def test_a_failed_flush_is_recovered_from(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.insert_rows(PATH, [account(1, 1)])
    fail_once(monkeypatch, OSError("the disk is full"), is_written=False)
    tx = db.begin()
    tx.insert_rows(PATH, [account(1, 2)])
    with pytest.raises(TransactionAborted):
        tx.commit()
    assert db.select(PATH) == [account(1, 1)]
    db.insert_rows(PATH, [account(1, 3)])
    assert db.select(PATH) == [account(1, 3)]


def test_a_flush_that_failed_after_the_fact_is_found_to_have_been_committed(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, OSError("too late"), is_written=True)
    assert db.insert_rows(PATH, [account(1, 2)]) is not None
    assert db.select(PATH) == [account(1, 2)]


def test_an_interrupt_is_the_callers_and_the_database_goes_on(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch, KeyboardInterrupt(), is_written=False)
    with pytest.raises(KeyboardInterrupt):
        db.insert_rows(PATH, [account(1, 2)])
    assert db.select(PATH) == []
    db.insert_rows(PATH, [account(1, 3)])


def test_a_transaction_begun_before_a_recovery_has_to_begin_again(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = db.begin()
    tx.insert_rows(PATH, [account(5)])
    fail_once(monkeypatch, OSError("the disk is full"), is_written=False)
    db.insert_rows(PATH, [account(1)])  # reads nothing, and so can begin again by itself
    with pytest.raises(dodona.SnapshotTooOld):
        tx.commit()
    assert db.select(PATH) == [account(1)]


# ---- closing, forking, awaiting


def test_a_closed_embedded_database_refuses_calls(folder: str) -> None:
    db = dodona.open(folder)
    tx = db.begin()
    db.close()
    db.close()
    for call in (db.generate_timestamp, db.list_tables, db.begin):
        with pytest.raises(InvalidRequest, match="closed"):
            call()
    tx.abort()


def test_an_embedded_database_refuses_calls_in_a_forked_process(db: dodona.Client) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"nothing"
        try:
            db.list_tables()
        except InvalidRequest as error:
            said = error.message.encode()
        finally:
            db.close()
            os.write(write, said)
            os._exit(0)
    os.waitpid(child, 0)
    assert b"fork" in os.read(read, 1_000)
    os.close(read)
    os.close(write)
    db.insert_rows(PATH, [account(1)])


@pytest.mark.anyio
async def test_the_twin_for_asyncio(folder: str) -> None:
    async with await dodona.aio.open(folder) as db:
        await db.create_table(PATH, SCHEMA, mount=True)
        async with db.begin() as tx:
            await tx.insert_rows(PATH, [account(1)])
        assert await db.generate_timestamp() > (tx.commit_timestamp or 0)
        await asyncio.gather(*[db.insert_rows(PATH, [account(it)]) for it in range(100)])
        assert len(await db.select(PATH)) == 100
        with pytest.raises(FolderInUse):
            await dodona.aio.open(folder)
    await db.close()
    with pytest.raises(InvalidRequest, match="closed"):
        await db.list_tables()
    with pytest.raises(InvalidRequest, match="closed"):
        await db.generate_timestamp()
    dodona.open(folder).close()


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_a_table_of_more_columns_than_a_number_has_bits(
    db: dodona.Client, atomicity: Atomicity
) -> None:
    count = 200
    names = [f"v{number}" for number in range(count)]
    schema = [
        dodona.Column("id", "int64", "ascending"),
        *[dodona.Column(it, "int64") for it in names],
    ]
    db.create_table("//wide", schema, atomicity=atomicity, mount=True)
    whole = {"id": 1, **{name: number for number, name in enumerate(names)}}
    db.insert_rows("//wide", [whole, {"id": 2, "v0": 5}])
    db.insert_rows("//wide", [{"id": 1, "v150": -1}], update=True)
    whole["v150"] = -1
    assert db.lookup_rows("//wide", [{"id": 1}]) == [whole]
    assert db.lookup_rows("//wide", [{"id": 1}], columns=["v7", "v150"]) == [{"v7": 7, "v150": -1}]
    assert db.select("//wide", columns=["id", "v199"]) == [
        {"id": 1, "v199": 199},
        {"id": 2, "v199": None},
    ]
    assert db.read_arrow("//wide", columns=["v150"]).to_pydict() == {"v150": [-1, None]}
