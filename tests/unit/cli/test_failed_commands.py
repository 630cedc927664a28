"""Commands that fail leave no empty database where none was, and lose nothing where one is."""

from pathlib import Path
from typing import Any

import pytest

import dodona as dodona_client
from dodona_local.backup import back_up
from unit.backup.tables import make_plain
from unit.cli.commands import Commands


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A backup of two tables."""
    with dodona_client.open(tmp_path / "source") as db:
        make_plain(db, "//t")
        make_plain(db, "//u")
        back_up(db, tmp_path / "backup")
    return tmp_path / "backup"


def damage(folder: Path) -> None:
    part = next(folder.rglob("*.arrow"))
    part.write_bytes(part.read_bytes()[:-1])


@pytest.mark.parametrize("failure", ["no backup", "no such table", "damaged", "interrupted"])
def test_a_failed_restore_leaves_no_database(
    saved: Path, tmp_path: Path, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(tmp_path / "deep" / "copy")
    words: list[Any] = ["restore", saved]
    code = 1
    if failure == "no backup":
        words = ["restore", tmp_path / "nothing"]
    elif failure == "no such table":
        words.append("//nope")
    elif failure == "damaged":
        damage(saved)
    else:
        code = 130
        monkeypatch.setattr("dodona_local.backup.restoring._count", interrupt)
    commands.run(*words, code=code)
    assert not commands.folder.exists()
    if failure != "damaged":
        monkeypatch.undo()
        commands.said("restore", saved)
        assert commands.said("list") == "t\nu\n"


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_database_that_was_there_stays(saved: Path, tmp_path: Path) -> None:
    """Also one that has nothing yet."""
    commands = Commands(tmp_path / "copy")
    with dodona_client.open(commands.folder):
        pass
    damage(saved)
    commands.refused("restore", saved)
    assert commands.folder.exists()
    assert commands.said("list") == ""


def test_tables_that_are_restored_but_not_mounted_stay(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(*_: Any, **__: Any) -> None:
        raise dodona_client.Unavailable("no cell")

    commands = Commands(tmp_path / "copy")
    monkeypatch.setattr("dodona_local.backup.restoring._mount", planted)
    commands.run("restore", saved, code=3)
    assert commands.said("list") == "t\nu\n"


def test_a_failed_create_leaves_no_database(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "copy")
    commands.refused("create", "//t", "--schema", "a:int64")
    commands.refused("mkdir", "//a/b/c")
    assert not commands.folder.exists()


@pytest.mark.slow("several commands, each a process")
def test_unmounted_tables_are_named_or_left_out_of_a_backup(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "db")
    with dodona_client.open(commands.folder) as db:
        for path in ("//t", "//u", "//v"):
            make_plain(db, path)
        db.unmount_table("//u")
    said = commands.refused("backup", tmp_path / "all")
    assert "//u. Mount or freeze these tables" in said
    assert "--skip-unmounted" in said
    assert not (tmp_path / "all").exists()
    done = commands.run("backup", tmp_path / "some", "--skip-unmounted")
    assert done.stderr == "dodona: left out, since it is not mounted: //u\n"
    assert done.stdout.startswith("2 tables with 20 rows")
    copy = Commands(tmp_path / "copy")
    copy.said("restore", tmp_path / "some")
    assert copy.said("list") == "t\nv\n"
    said = commands.refused("backup", tmp_path / "none", "//u", "--skip-unmounted")
    assert "no table is mounted" in said
