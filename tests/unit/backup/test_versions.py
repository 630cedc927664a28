"""Versions of applications, backed up and restored with the tables that they were published in."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dodona._core.loads.records import APPLICATIONS
from dodona.catalog import MasterTransaction
from dodona.client import Client
from dodona.errors import (
    DodonaWarning,
    InvalidRequest,
    SnapshotTooOld,
    TableNotMounted,
    Unavailable,
)
from dodona_local.backup import back_up, restore, versions
from dodona_local.backup.manifest import SavedTable, SavedVersion, read_manifest
from dodona_local.errors import RestoreFailed
from unit.backup.tables import PLAIN, make_plain, same

OTHER_COLUMNS = [
    {"name": "application", "type": "utf8", "sort_order": "ascending"},
    {"name": "version", "type": "int64"},
    {"name": "load", "type": "uint64"},
    {"name": "query", "type": "utf8"},
]


def publish(db: Client, path: str, version: int, application: str = "nightly") -> bool:
    """Load a row that tells the version. → whether it was taken, and not skipped."""
    with db.loads.begin([path], application=application, version=version) as load:
        if not load.is_recorded:
            load.write(path, pa.table({"k": [version], "v": [version]}))
        return not load.is_recorded


def make_loaded(db: Client, path: str, version: int) -> None:
    db.create_table(path, PLAIN, mount=True)
    assert publish(db, path, version)


# ---- there and back


@pytest.mark.parametrize("has_loads", [False, True])
def test_a_restored_table_refuses_versions_that_were_published_before(
    db: Client, other: Client, folder: Path, has_loads: bool
) -> None:
    make_loaded(db, "//bank/t", 3)
    assert publish(db, "//bank/t", 8, "hourly")
    back_up(db, folder, None if not has_loads else ["//bank/t"])
    if has_loads:
        make_loaded(other, "//there", 5)
    restore(other, folder)
    assert not publish(other, "//bank/t", 3)
    assert not publish(other, "//bank/t", 2)
    assert not publish(other, "//bank/t", 8, "hourly")
    assert same(other.read_arrow("//bank/t"), db.read_arrow("//bank/t"))
    assert publish(other, "//bank/t", 4)
    assert not publish(other, "//bank/t", 4)
    if has_loads:
        assert not publish(other, "//there", 5)
        assert publish(other, "//there", 6)


def test_a_backup_saves_the_versions_as_of_its_timestamp(
    db: Client, other: Client, folder: Path
) -> None:
    make_loaded(db, "//t", 3)
    at = db.generate_timestamp()
    assert publish(db, "//t", 4)
    (saved,) = back_up(db, folder, ["//t"], at).tables
    assert [(it.application, it.version) for it in saved.versions] == [("nightly", 3)]
    restore(other, folder)
    assert not publish(other, "//t", 3)
    assert publish(other, "//t", 4)


def test_a_table_restored_at_its_old_path_has_the_versions_of_the_backup(
    db: Client, folder: Path
) -> None:
    """The row of the removed table is still there, and names another id."""
    make_loaded(db, "//t", 3)
    back_up(db, folder)
    assert publish(db, "//t", 4)
    db.remove("//t")
    restore(db, folder, ["//t"])
    assert not publish(db, "//t", 3)
    assert publish(db, "//t", 4)


def test_some_tables_come_with_their_versions_alone(
    db: Client, other: Client, folder: Path
) -> None:
    for path in ("//a", "//b", "//c"):
        make_loaded(db, path, 3)
    back_up(db, folder)
    restore(other, folder, ["//b"])
    for path in (
        "//a",
        "//c",
    ):  # made there, of no backup: perhaps with an id of the first database
        other.create_table(path, PLAIN, mount=True)
        assert publish(other, path, 3)
    assert not publish(other, "//b", 3)
    other.remove("//c")
    restore(other, folder, ["//c"])
    assert [publish(other, path, 3) for path in ("//a", "//b", "//c")] == [False] * 3


def test_versions_of_removed_or_moved_tables_are_not_saved(
    db: Client, other: Client, folder: Path
) -> None:
    for path in ("//made-anew", "//moved", "//kept"):
        make_loaded(db, path, 3)
    db.remove("//made-anew")
    make_plain(db, "//made-anew")
    db.unmount_table("//moved")
    db.move("//moved", "//elsewhere")
    db.mount_table("//elsewhere")
    made = back_up(db, folder)
    found = {it.path: len(it.versions) for it in made.tables if not it.path.startswith("//sys")}
    assert found == {"//made-anew": 0, "//elsewhere": 0, "//kept": 1}
    assert APPLICATIONS not in {it.path for it in made.tables}
    restore(other, folder)
    assert publish(other, "//made-anew", 3)
    assert publish(other, "//elsewhere", 3)
    assert not publish(other, "//kept", 3)


def test_a_table_of_versions_with_other_columns_is_refused(
    db: Client, other: Client, folder: Path
) -> None:
    make_loaded(db, "//t", 3)
    back_up(db, folder)
    for client in (db, other):
        client.remove(APPLICATIONS, force=True)
        client.create_table(APPLICATIONS, OTHER_COLUMNS, mount=True)
    refusal = "has the columns application, version, load, query"
    with pytest.raises(InvalidRequest, match=refusal):
        back_up(db, folder.with_name("another"))
    with pytest.raises(RestoreFailed, match=refusal):
        restore(other, folder)
    assert other.list_tables() == [APPLICATIONS]


def test_a_restore_brings_back_many_versions(
    db: Client, other: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "ROWS_PER_CALL", 2)
    db.create_table("//t", PLAIN, mount=True)
    names = [f"of {number}" for number in range(5)]
    for name in names:
        assert publish(db, "//t", 1, name)
    back_up(db, folder)
    restore(other, folder)
    assert [publish(other, "//t", 1, name) for name in names] == [False] * 5


# ---- what is not known


def test_the_table_of_versions_is_neither_saved_nor_restored(
    db: Client, other: Client, folder: Path
) -> None:
    make_loaded(db, "//t", 3)
    with pytest.raises(InvalidRequest, match="each table brings the versions"):
        back_up(db, folder, ["//t", APPLICATIONS])
    back_up(db, folder)
    with pytest.raises(InvalidRequest, match="each table brings the versions"):
        restore(other, folder, [APPLICATIONS])
    assert other.get("//") == {}


def test_versions_that_can_not_be_read(db: Client, other: Client, folder: Path) -> None:
    make_loaded(db, "//t", 3)
    db.unmount_table(APPLICATIONS)
    with pytest.raises(TableNotMounted, match="versions of applications can't be saved"):
        back_up(db, folder, ["//t"])
    assert not folder.exists()
    skipped: list[str] = []
    back_up(db, folder, ["//t"], skip=skipped.append)
    assert skipped == [APPLICATIONS]
    restore(other, folder)
    assert publish(other, "//t", 3)


def test_a_backup_warns_if_versions_of_its_timestamp_are_no_longer_kept(
    db: Client, other: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_loaded(db, "//t", 3)
    select = Client.select

    def planted(self: Client, path: str, *bounds: Any, **options: Any) -> Any:
        if path == APPLICATIONS:
            raise SnapshotTooOld("planted")
        return select(self, path, *bounds, **options)

    monkeypatch.setattr(Client, "select", planted)
    with pytest.warns(DodonaWarning, match="does not reach back"):
        back_up(db, folder, ["//t"])
    monkeypatch.undo()
    restore(other, folder)
    assert publish(other, "//t", 3)


# ---- all or nothing


def test_a_restore_that_is_not_published_leaves_no_version_that_counts(
    db: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash between the versions and the commit; and what counts elsewhere stays."""
    make_loaded(db, "//t", 3)
    make_loaded(db, "//u", 3)
    back_up(db, folder)
    db.remove("//t")

    def planted(self: MasterTransaction) -> None:
        rows = [(row["path"], row["version"]) for row in db.select(APPLICATIONS)]
        assert rows == [("//t", 3), ("//u", 3)]
        raise Unavailable("planted")

    monkeypatch.setattr(MasterTransaction, "commit", planted)
    with pytest.raises(RestoreFailed, match="left nothing behind: planted"):
        restore(db, folder, ["//t"])
    monkeypatch.undo()
    db.create_table("//t", PLAIN, mount=True)
    assert publish(db, "//t", 3)
    assert not publish(db, "//u", 3)


def test_a_restore_overwrites_no_versions_of_a_table_made_meanwhile(
    db: Client, other: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made one there before is not overwritten, nor are the versions of that table."""
    make_loaded(db, "//t", 3)
    back_up(db, folder, ["//t"])
    prepare = versions.prepare_versions_table

    def planted(client: Client) -> None:
        prepare(client)
        make_loaded(client, "//t", 7)

    monkeypatch.setattr("dodona_local.backup.restoring.prepare_versions_table", planted)
    with pytest.raises(RestoreFailed):
        restore(other, folder)
    assert not publish(other, "//t", 7)
    assert [row["v"] for row in other.select("//t")] == [7]


# ---- the manifest


def test_the_manifest_lists_the_versions_of_each_table(db: Client, folder: Path) -> None:
    make_loaded(db, "//t", 3)
    make_plain(db, "//u")
    made = back_up(db, folder, ["//t", "//u"])
    assert read_manifest(folder) == made
    first, second = json.loads((folder / "backup.json").read_text())["tables"]
    (row,) = db.select(APPLICATIONS)
    version = {"application": "nightly", "version": 3, "load": row["load"], "query": None}
    assert first["versions"] == [version]
    assert "versions" not in second
    saved: SavedTable = made.tables[0]
    assert saved.versions == (SavedVersion(**version),)
