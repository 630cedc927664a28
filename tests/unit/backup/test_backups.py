"""Backups of an embedded database, and what is not made one."""

import errno
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc
import pytest

import dodona
from dodona._core.session import Session
from dodona.client import Client
from dodona.errors import (
    DodonaWarning,
    InvalidRequest,
    MetadataChanged,
    SnapshotTooOld,
    TableNotFound,
    TableNotMounted,
    Unavailable,
)
from dodona_local.backup import back_up, parts, restore
from dodona_local.backup import manifest as manifests
from dodona_local.backup.manifest import MANIFEST_NAME, read_manifest
from dodona_oracle.core import attributes
from unit.backup.tables import PLAIN, Interrupting, make_plain, same

Row = dict[str, Any]

PATH = "//bank/all/types"
COLUMNS: list[Row] = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "s", "type": "string", "sort_order": "descending"},
    {"name": "f", "type": "double", "sort_order": "ascending"},
    {"name": "i", "type": "int64"},
    {"name": "u", "type": "uint64"},
    {"name": "d", "type": "double"},
    {"name": "b", "type": "boolean"},
    {"name": "bytes", "type": "string", "required": True},
    {"name": "text", "type": "utf8", "lock": "texts"},
    {"name": "any", "type": "any"},
    {"name": "nested", "type": "list<optional<struct<a:utf8,at:timestamp64>>>"},
    {"name": "sum", "type": "int64", "aggregate": "sum"},
]
PIVOTS: list[list[Any]] = [[], [0], [0, "m"], [5], [1000, b"\xff", 0.5]]
MOMENT = datetime(1899, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
ROWS: list[Row] = [
    {"k": None, "s": None, "f": None, "bytes": b""},
    {"k": -(1 << 63), "s": b"\x00", "f": -0.0, "bytes": b"\xff\x00", "u": (1 << 64) - 1},
    {"k": 0, "s": b"", "f": float("-inf"), "bytes": b"x", "d": float("nan"), "b": False},
    {"k": 0, "s": b"zz", "f": 0.1, "bytes": b"x", "text": "", "any": None, "i": 0},
    {"k": 5, "s": None, "f": 1.0, "bytes": b"x", "text": "äß\x00☃", "any": {"a": [1, None, b"b"]}},
    {"k": 5, "s": None, "f": 2.0, "bytes": b"x", "nested": [None, {"a": "ä", "at": MOMENT}]},
    {"k": 6, "s": None, "f": 1.0, "bytes": b"x", "any": [1.5, "x", {"y": {}}], "sum": 7, "b": True},
    {"k": 1000, "s": b"\xff", "f": 0.5, "bytes": b"y" * 100_000, "d": 1e308, "i": -1},
]


def make_table(db: Client, path: str = PATH, **options: Any) -> None:
    db.create_table(path, COLUMNS, mount=True, **{"pivot_keys": PIVOTS, **options})
    db.insert_rows(path, ROWS)


# ---- there and back


def test_all_types_come_back_byte_for_byte(db: Client, other: Client, folder: Path) -> None:
    make_table(db)
    db.insert_rows(PATH, [{**ROWS[6], "sum": 5}], update=True, aggregate=True)
    made = back_up(db, folder)
    assert made.row_count == len(ROWS)
    restore(other, folder)
    assert same(other.read_arrow(PATH), db.read_arrow(PATH))
    assert other.read_arrow(PATH).num_rows == len(ROWS)
    ours, theirs = db.get_table(PATH), other.get_table(PATH)
    assert theirs.schema == ours.schema
    assert [it.pivot_key for it in theirs.tablets] == [it.pivot_key for it in ours.tablets]
    assert len(theirs.tablets) == len(PIVOTS)
    assert (theirs.atomicity, theirs.is_mounted) == ("full", True)
    with other.begin() as tx:
        tx.insert_rows(PATH, [{**ROWS[6], "sum": 1}], update=True, aggregate=True)
    (row,) = other.lookup_rows(PATH, [{name: ROWS[6][name] for name in ("k", "s", "f")}], ["sum"])
    assert row == {"sum": 13}


def test_a_backup_restores_directories_settings_and_attributes(
    db: Client, other: Client, folder: Path
) -> None:
    settings = {"max_data_versions": 5, "min_data_ttl": 0, "enable_shared_write_locks": True}
    make_plain(db, "//a/b/t", attributes={**settings, "owner": "ada", "tags": [1, {"x": None}]})
    make_plain(db, "//a/none", atomicity="none", tablet_count=7)
    db.create_table("//empty", PLAIN, tablet_count=3, mount=True)
    make_plain(db, "//frozen")
    db.freeze_table("//frozen")
    db.create_directory("//a/hollow", attributes={"why": "not"})
    db.set("//@cluster_name", "first")
    made = back_up(db, folder, source="test")
    assert (made.source, made.row_count) == ("test", 30)
    restore(other, folder)
    assert other.get("//") == db.get("//")
    assert other.list_tables() == db.list_tables()
    assert other.get("//a/hollow/@why") == "not"
    assert other.get("//@cluster_name") == "first"
    assert other.get("//a/b/t/@tags") == [1, {"x": None}]
    for path in db.list_tables():
        assert other.read_arrow(path).equals(db.read_arrow(path)), path
        ours, theirs = db.get_table(path), other.get_table(path)
        assert (ours.settings, ours.atomicity) == (theirs.settings, theirs.atomicity)
        assert [it.state for it in ours.tablets] == [it.state for it in theirs.tablets]


def test_a_backup_keeps_the_isolation_of_a_table_and_names_none_without_one(
    db: Client, other: Client, folder: Path
) -> None:
    make_plain(db, "//a/checked", attributes={"isolation": "serializable"})
    make_plain(db, "//a/plain")
    make_plain(db, "//a/none", atomicity="none")
    back_up(db, folder)
    saved = {it.path: it.settings for it in read_manifest(folder).tables}
    assert {path: it.get("isolation", "unnamed") for path, it in saved.items()} == {
        "//a/checked": "serializable",
        "//a/plain": "unnamed",
        "//a/none": "unnamed",
    }
    restore(other, folder)
    for path in saved:
        assert other.get_table(path).settings == db.get_table(path).settings, path


def test_a_restore_adds_missing_attributes_to_an_existing_directory(
    db: Client, other: Client, folder: Path
) -> None:
    make_plain(db, "//a/t")
    for name in ("mine", "yours"):
        db.set(f"//a/@{name}", "saved")
    other.create_directory("//a", attributes={"mine": "kept"})
    back_up(db, folder)
    restore(other, folder)
    assert (other.get("//a/@mine"), other.get("//a/@yours")) == ("kept", "saved")


def test_a_restore_leaves_out_a_setting_that_an_earlier_master_kept_on_a_directory(
    db: Client, other: Client, folder: Path
) -> None:
    make_plain(db, "//a/t")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attributes, "SETTINGS", ())
        db.set("//a/@", {"min_data_ttl": 5, "owner": "ada"})
    back_up(db, folder)
    with pytest.warns(DodonaWarning, match="'min_data_ttl' of the directory //a is not restored"):
        restore(other, folder)
    assert other.get("//a/@owner") == "ada"
    assert not other.exists("//a/@min_data_ttl")


def test_some_tables_are_saved_and_some_restored(db: Client, other: Client, folder: Path) -> None:
    for path in ("//a/1", "//a/2", "//b/3"):
        make_plain(db, path)
    db.create_directory("//c")
    made = back_up(db, folder, ["//a/1", "//b/3"])
    assert [it.path for it in made.directories] == ["//a", "//b"]
    restore(other, folder, ["//b/3"])
    assert other.get("//") == {"b": {"3": None}}
    restore(other, folder, ["//a/1"])
    assert other.list_tables() == ["//a/1", "//b/3"]
    with pytest.raises(InvalidRequest, match="has no table //a/2"):
        restore(other, folder, ["//a/2"])


def test_tokens_stay_where_they_are(db: Client, other: Client, folder: Path) -> None:
    """Restored elsewhere, they would be good again though they were revoked since."""
    for client in (db, other):
        client.create_table("//sys/tokens", PLAIN, mount=True)
    make_plain(db, "//bank/accounts", 3)
    assert [it.path for it in back_up(db, folder).tables] == ["//bank/accounts"]
    restore(other, folder)
    assert same(db.read_arrow("//bank/accounts"), other.read_arrow("//bank/accounts"))


def test_a_backup_excludes_rows_written_after_its_timestamp(
    db: Client, other: Client, folder: Path
) -> None:
    make_plain(db, "//t")
    at = db.generate_timestamp()
    db.insert_rows("//t", [{"k": 1, "v": -1}, {"k": 77, "v": -1}])
    made = back_up(db, folder, timestamp=at)
    assert (made.timestamp, made.tables[0].timestamp) == (at, at)
    restore(other, folder)
    assert same(other.read_arrow("//t"), db.read_arrow("//t", timestamp=at))


def test_rows_that_would_soon_expire_are_all_restored(
    db: Client, other: Client, folder: Path
) -> None:
    quick = {"min_data_versions": 0, "min_data_ttl": 0, "max_data_ttl": 0}
    make_plain(db, "//t", attributes=quick)
    back_up(db, folder)
    restore(other, folder)
    assert other.get_table("//t").settings.min_data_versions == 0
    assert other.read_arrow("//t").num_rows == 10


def test_long_tablets_have_several_files(
    db: Client, other: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES_MAX", 1)
    make_plain(db, "//t", 25_000, atomicity="none", pivot_keys=[[], [12_500]])
    made = back_up(db, folder)
    names = [it.name for it in made.parts]
    assert names == [
        f"tables/00000/{it}.arrow" for it in ("00000-00", "00000-01", "00001-00", "00001-01")
    ]
    restore(other, folder)
    assert other.read_arrow("//t").equals(db.read_arrow("//t"))


def test_arrow_reads_the_files_of_a_backup(db: Client, folder: Path) -> None:
    make_plain(db, "//t")
    (part,) = back_up(db, folder).parts
    found = pyarrow.ipc.open_file(folder / part.name).read_all()
    assert found.to_pylist() == [{"k": number, "v": number} for number in range(10)]


# ---- a backup that is not made


def test_a_folder_that_is_taken(db: Client, folder: Path) -> None:
    make_plain(db, "//t")
    back_up(db, folder)
    before = sorted(folder.rglob("*"))
    with pytest.raises(InvalidRequest, match="is not empty, it has other files in it"):
        back_up(db, folder)
    assert sorted(folder.rglob("*")) == before
    (folder / "backup.json").unlink()
    with pytest.raises(InvalidRequest, match="it has a backup that was interrupted in it"):
        back_up(db, folder)
    with pytest.raises(InvalidRequest, match="can't be used for a backup: File exists"):
        back_up(db, folder / "tables" / "00000" / "00000-00.arrow")


def test_a_folder_may_be_named_from_home(
    db: Client, other: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a script there is no shell that would write it out."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    make_plain(db, "//t")
    back_up(db, "~/saved")
    assert (tmp_path / "home" / "saved").is_dir()
    restore(other, "~/saved")
    assert list(other.select("//t")) == list(db.select("//t"))


@pytest.mark.parametrize("folder", ["~nobody-of-that-name/saved", "sav\0ed", "x" * 300])
def test_a_folder_that_can_not_be_is_refused(db: Client, folder: str) -> None:
    make_plain(db, "//t")
    with pytest.raises(InvalidRequest, match="the path"):
        back_up(db, folder)
    with pytest.raises(InvalidRequest, match="the path"):
        restore(db, folder)


def test_an_empty_folder_is_taken(db: Client, folder: Path) -> None:
    make_plain(db, "//t")
    folder.mkdir()
    back_up(db, folder)
    assert read_manifest(folder).row_count == 10


def test_a_cluster_without_tables_has_a_backup_of_its_directories(
    db: Client, other: Client, folder: Path
) -> None:
    """A nightly backup begins before the first table."""
    db.create_directory("//a/b", attributes={"owner": "ada"}, recursive=True)
    before = db.generate_timestamp()
    manifest = back_up(db, folder)
    assert (manifest.tables, manifest.row_count) == ((), 0)
    assert before < manifest.timestamp < db.generate_timestamp()
    assert read_manifest(folder) == manifest
    restore(other, folder)
    assert other.get("//a/b/@owner") == "ada"
    assert other.list("//") == ["a"]


def test_a_backup_that_fails_leaves_no_folder(db: Client, folder: Path) -> None:
    with pytest.raises(InvalidRequest, match="there is no table"):
        back_up(db, folder, [])
    make_plain(db, "//t")
    db.create_table("//closed", PLAIN)
    with pytest.raises(
        TableNotMounted, match=r"can't be read: //closed\. Mount or freeze these tables"
    ):
        back_up(db, folder)
    with pytest.raises(TableNotFound):
        back_up(db, folder, ["//t", "//none"])
    with pytest.raises(InvalidRequest, match="as a list"):
        back_up(db, folder, "//t")
    with pytest.raises(InvalidRequest, match="future"):
        back_up(db, folder, ["//t"], dodona.Timestamp(db.generate_timestamp() + (1 << 40)))
    assert not folder.exists()


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), Unavailable("a cell is away")])
def test_an_interrupted_backup_leaves_nothing(
    db: Client, folder: Path, error: BaseException, is_there: bool
) -> None:
    make_plain(db, "//t")
    if is_there:
        folder.mkdir()
    with pytest.raises(type(error)):
        back_up(db, folder, progress=Interrupting(error, "saving"))
    assert folder.exists() == is_there
    assert not is_there or not any(folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
def test_a_backup_that_fails_after_its_manifest_got_its_name_leaves_nothing(
    db: Client, folder: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest stayed without the rows: a damaged backup."""
    make_plain(db, "//t")

    def fail(path: Path) -> None:
        assert (path / MANIFEST_NAME).exists()
        raise error

    monkeypatch.setattr(manifests, "sync_folder", fail)
    with pytest.raises(type(error)):
        back_up(db, folder)
    assert not folder.exists()


def test_a_snapshot_that_was_lost_is_no_backup(
    db: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_plain(db, "//t")

    def planted(self: Session, hold: Any) -> None:
        raise SnapshotTooOld("the snapshot is not held any more")

    monkeypatch.setattr(Session, "check_hold_at_end", planted)
    with pytest.raises(SnapshotTooOld):
        back_up(db, folder)
    assert not folder.exists()


def test_a_killed_backup_is_never_restored(
    db: Client, other: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_plain(db, "//t")
    monkeypatch.setattr("dodona_local.backup.making._clear", lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        back_up(db, folder, progress=Interrupting(KeyboardInterrupt(), "saving"))
    with pytest.raises(InvalidRequest, match="has a backup that was interrupted"):
        restore(other, folder)


def test_a_backup_fails_if_a_table_is_altered_meanwhile(
    db: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_plain(db, "//t")
    hold = Client.hold_snapshot

    def planted(self: Client, paths: Sequence[str], timestamp: Any = None) -> Any:
        self.unmount_table("//t")
        self.alter_table("//t", [*PLAIN, {"name": "w", "type": "int64"}])
        self.mount_table("//t")
        return hold(self, paths, timestamp)

    monkeypatch.setattr(Client, "hold_snapshot", planted)
    with pytest.raises(MetadataChanged, match="altered during the backup"):
        back_up(db, folder)
    assert not folder.exists()
