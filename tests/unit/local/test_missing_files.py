"""A folder that lacks a part: opening it and checking it say so, and what is left stays.

A start once took chunks for garbage because the log that names them was gone.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import dodona
from dodona.errors import DataCorrupted
from dodona_local import cli
from dodona_local.checking import check_folder
from dodona_tablets.core.records import Record
from dodona_tablets.shell import log as log_module
from dodona_tablets.shell.chunk_files import ChunkFiles

SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "utf8"},
]


ROW_COUNT = 10_000
"""Enough for a chunk."""


def bulk(number: int) -> pa.Table:
    numbers = range(number * ROW_COUNT, (number + 1) * ROW_COUNT)
    return pa.table({"id": numbers, "value": [f"{it:040}" for it in numbers]})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedded database with chunks, and with a log of several files."""
    folder = tmp_path_factory.mktemp("made") / "db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "SHORT_BYTES_MAX", 0)
        for number in range(3):
            with dodona.open(folder) as db:
                if number == 0:
                    db.create_table("//t", schema=SCHEMA, mount=True)
                    db.create_table("//bulk", schema=SCHEMA, atomicity="none", mount=True)
                db.insert_rows("//t", [{"id": number, "value": "x"}])
                db.write_arrow("//bulk", bulk(number))
    assert len(logs(folder)) > 2
    assert len(chunks(folder)) == 6
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "db")


def logs(folder: Path) -> list[Path]:
    return sorted((folder / "node-0" / "log").glob("*.mdb"))


def chunks(folder: Path) -> list[Path]:
    return sorted((folder / "node-0" / "chunks").iterdir())


def contents(folder: Path) -> set[Path]:
    durable = {".mdb", ".arrow", ".index"}
    return {it for it in folder.rglob("*") if it.suffix in durable}


MISSING: dict[str, Callable[[Path], list[Path]]] = {
    "the files of the log": logs,
    "the oldest file of the log": lambda it: logs(it)[:1],
    "a file within the log": lambda it: logs(it)[1:2],
    "the newest file of the log": lambda it: logs(it)[-1:],
    "the folder of the log": lambda it: [it / "node-0" / "log"],
    "the log and its bounds": lambda it: [*logs(it), it / "node-0" / "log-bounds"],
    "all but the chunks": lambda it: [it / "node-0" / "log", it / "node-0" / "log-bounds"],
    "the node": lambda it: [it / "node-0"],
    "the master's store": lambda it: [it / "master" / "master.mdb"],
    "the master": lambda it: [it / "master"],
    "a chunk": lambda it: chunks(it)[:1],
    "the chunks": lambda it: [it / "node-0" / "chunks"],
}


@pytest.mark.parametrize("what", MISSING)
def test_a_missing_part_is_reported_and_the_other_files_stay(folder: Path, what: str) -> None:
    away = folder.parent / "away"
    taken = MISSING[what](folder)
    for path in taken:
        target = away / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    left = contents(folder)

    damages = [it for part in check_folder(folder) for it in part.damages]
    assert damages, "check finds it"
    assert CliRunner().invoke(cli.application, ["check", str(folder)]).exit_code == 1
    for _ in range(2):
        with pytest.raises(DataCorrupted, match=r"missing|empty log"):
            dodona.open(folder)
    assert left <= contents(folder), "nothing was removed"

    for path in taken:
        if path.is_dir():
            shutil.rmtree(path)  # begun anew meanwhile
        (away / path.relative_to(folder)).rename(path)
    with dodona.open(folder) as db:
        assert [it["id"] for it in db.select("//t")] == [0, 1, 2]
        assert len(db.select("//bulk")) == 3 * ROW_COUNT


def test_an_orphan_chunk_is_removed_only_after_a_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    append, remove = log_module.CellLog.append, ChunkFiles.remove

    def append_and_tell(log: log_module.CellLog, records: Sequence[Record]) -> None:
        append(log, records)
        done.extend(type(it).__name__ for it in records)

    def tell_and_remove(files: ChunkFiles, numbers: Sequence[int]) -> None:
        done.extend(f"removed {it}" for it in numbers)
        remove(files, numbers)

    monkeypatch.setattr(log_module.CellLog, "append", append_and_tell)
    monkeypatch.setattr(ChunkFiles, "remove", tell_and_remove)
    orphans = [folder / "node-0" / "chunks" / f"99.{suffix}" for suffix in ("arrow", "index")]
    for path in orphans:
        path.write_bytes(b"half of it")
    with dodona.open(folder) as db:
        db.write_arrow("//bulk", bulk(9))
        db.unmount_table("//t")
        assert max(int(it.stem) for it in chunks(folder)) > 99, "no number is used twice"
    assert not any(it.exists() for it in orphans)
    assert "Checkpoint" in done[: done.index("removed 99")]
    assert not any(part.damages for part in check_folder(folder))


def test_a_first_start_that_a_crash_ended_is_not_refused(tmp_path: Path) -> None:
    """The master's store is made first, then an empty log, then the cell joins."""
    with dodona.open(tmp_path / "db"):
        pass
    shutil.rmtree(tmp_path / "db" / "node-0")
    for name in ("only a master", "and a log"):
        folder = tmp_path / name
        (folder / "master").mkdir(parents=True)
        if name == "and a log":
            log_module.CellLog.open(folder / "node-0", 1 << 30).close()
        with dodona.open(folder) as db:
            assert db.list_tables() is not None
