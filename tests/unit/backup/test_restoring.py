"""Restores that fail: before anything is made, or leaving nothing, or saying what is left."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dodona.client import Client
from dodona.errors import (
    DataCorrupted,
    InvalidRequest,
    SchemaViolation,
    TableExists,
    Unavailable,
)
from dodona_local.backup import back_up, restore, restoring
from dodona_local.backup.manifest import write_manifest
from dodona_local.errors import RestoreFailed
from unit.backup.tables import Counting, Interrupting, make_impossible, make_plain, same


def test_nothing_is_overwritten(db: Client, other: Client, folder: Path) -> None:
    make_plain(db, "//a/t")
    make_plain(db, "//a/u")
    back_up(db, folder)
    make_plain(other, "//a/t", 3)
    with pytest.raises(
        TableExists, match=r"^//a/t exists already, and a restore overwrites nothing"
    ):
        restore(other, folder)
    assert other.get("//") == {"a": {"t": None}}
    assert other.read_arrow("//a/t").num_rows == 3
    restore(other, folder, ["//a/u"])


def test_a_table_where_a_directory_goes(db: Client, other: Client, folder: Path) -> None:
    make_plain(db, "//a/t")
    back_up(db, folder)
    make_plain(other, "//a")
    with pytest.raises(TableExists, match=r"^//a exists already"):
        restore(other, folder)


def test_a_name_that_the_tree_does_not_take(db: Client, other: Client, folder: Path) -> None:
    make_plain(db, "//a/t")
    make_plain(db, "//b")
    made = back_up(db, folder)
    tables = [replace(it, path=it.path.replace("//a/t", "//a/..")) for it in made.tables]
    write_manifest(folder, replace(made, tables=tuple(tables)))
    with pytest.raises(InvalidRequest, match=r"node can't be named \. or \.\.") as caught:
        restore(other, folder)
    assert caught.value.attributes["path"] == "//a/.."
    assert other.get("//") == {}
    restore(other, folder, ["//b"])
    assert other.get("//") == {"b": None}


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_noticed_before_anything_is_made(
    db: Client, other: Client, folder: Path, damage: str
) -> None:
    make_plain(db, "//t")
    make_plain(db, "//u")
    path = folder / back_up(db, folder).parts[1].name
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-1])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    with pytest.raises(DataCorrupted, match="nothing was restored"):
        restore(other, folder)
    assert other.get("//") == {}
    restore(other, folder, ["//t"])


@pytest.mark.parametrize("step", ["loading", "counting"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), DataCorrupted("planted")])
def test_a_failed_restore_leaves_nothing(
    db: Client, other: Client, folder: Path, step: str, error: BaseException
) -> None:
    make_plain(db, "//t")
    back_up(db, folder)
    kind = RestoreFailed if isinstance(error, DataCorrupted) else KeyboardInterrupt
    with pytest.raises(kind) as caught:
        restore(other, folder, progress=Interrupting(error, step))
    if kind is RestoreFailed:
        text = "the restore failed, and left nothing behind: planted"
        assert str(caught.value).startswith(text)
    assert other.get("//") == {}
    restore(other, folder)


def test_a_table_with_an_expression_that_is_refused_today_is_restored(
    db: Client, other: Client, folder: Path
) -> None:
    rows = make_impossible(db, "//a/old")
    assert len(rows) == 7
    make_plain(db, "//a/t")
    back_up(db, folder)
    restore(other, folder)
    assert list(other.select("//a/old")) == rows
    before, after = (it.get_table("//a/old") for it in (db, other))
    assert after.schema == before.schema
    assert [it.pivot_key for it in after.tablets] == [it.pivot_key for it in before.tablets]
    assert other.get("//a/old/@owner") == "ada"
    with pytest.raises(SchemaViolation, match="divides by zero"):
        other.insert_rows("//a/old", [{"k": 6, "v": 6}])
    with pytest.raises(SchemaViolation, match="divides by zero"):
        other.create_table("//a/new", after.schema)
    back_up(other, folder.with_name("again"))


def test_a_table_with_an_expression_that_nothing_can_read_is_not_restored(
    db: Client, other: Client, folder: Path
) -> None:
    make_impossible(db, "//a/old")
    made = back_up(db, folder)
    (table,) = made.tables
    columns = (replace(table.columns[0], expression="k %"), *table.columns[1:])
    write_manifest(folder, replace(made, tables=(replace(table, columns=columns),)))
    with pytest.raises(RestoreFailed, match=r"left nothing behind.*'c' is wrong"):
        restore(other, folder)
    assert other.get("//") == {}


def test_a_failed_restore_names_a_folder_that_it_could_not_remove(
    db: Client, other: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_plain(db, "//t")
    back_up(db, folder)

    def planted(*_: Any, **__: Any) -> None:
        raise Unavailable("the master is away")

    monkeypatch.setattr(Client, "remove", planted)
    with pytest.raises(RestoreFailed, match=r"may have left //restore-\d+, which you can remove"):
        restore(other, folder, progress=Interrupting(DataCorrupted("planted"), "loading"))


def test_rows_that_are_missing_are_noticed(
    db: Client, other: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_plain(db, "//t")
    back_up(db, folder)
    write = Client.write_arrow

    def planted(self: Client, path: str, data: Any, **options: Any) -> int:
        return write(self, path, [batch.slice(1) for batch in data], **options)

    monkeypatch.setattr(Client, "write_arrow", planted)
    with pytest.raises(RestoreFailed, match="10 rows of //t were saved, but 9 were loaded"):
        restore(other, folder)
    assert other.get("//") == {}


def test_a_file_is_loaded_again_after_an_answer_was_lost(
    db: Client, other: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_plain(db, "//t")
    back_up(db, folder)
    monkeypatch.setattr(restoring, "LOAD_PAUSE_SECONDS", 0.0)
    write = Client.write_arrow
    lost: list[str] = []

    def planted(self: Client, path: str, data: Any, **options: Any) -> int:
        written = write(self, path, data, **options)
        if len(lost) < 2:
            lost.append(path)
            raise Unavailable("no answer")
        return written

    monkeypatch.setattr(Client, "write_arrow", planted)
    counted = Counting()
    restore(other, folder, progress=counted)
    assert counted.steps["loading"] == 10
    assert same(other.read_arrow("//t"), db.read_arrow("//t"))


def test_a_restore_names_the_tables_that_it_could_not_mount(
    db: Client, other: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("//t", "//u", "//v"):
        make_plain(db, path)
    back_up(db, folder)
    mount = Client.mount_table

    def planted(self: Client, path: str, **options: Any) -> None:
        if path == "//u":
            raise Unavailable("no cell")
        mount(self, path, **options)

    monkeypatch.setattr(Client, "mount_table", planted)
    with pytest.raises(RestoreFailed, match=r"these are not mounted: //u, //v. Mount these tables"):
        restore(other, folder)
    monkeypatch.undo()
    for path in ("//u", "//v"):
        other.mount_table(path)
        assert other.read_arrow(path).num_rows == 10
