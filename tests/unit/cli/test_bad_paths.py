"""Paths at which nothing can be: a typed error in every way in, never a traceback.

Of a schema, README's own short form with 16 columns was one (dbatools 9489, PyMySQL 472).
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dodona
import dodona.aio
from dodona.errors import InvalidRequest
from dodona_local.checking import check_folder
from dodona_local.cli import application
from dodona_local.cli.words import schema_of
from dodona_local.folder import DataFolder
from dodona_local.replicas import Replicas
from dodona_tablets.shell.object_urls import open_objects
from dodona_wire.net.folder import lock_folder
from dodona_wire.net.paths import place_of
from unit.cli.commands import TABLE, Commands

BAD = {
    "long": ("x" * 300, "File name too long"),
    "deep": ("a/" * 3000, "File name too long"),
    "nobody": ("~nobody-here/db", "a user without a home folder here"),
    "surrogate": ("a\ud800", "a character that a path can't have"),
    "NUL": ("a\0b", "a character that a path can't have"),
    "loop": ("loop", "Too many levels of symbolic links"),
    "under a file": ("file/inside", "Not a directory"),
}
BAD_WORDS = [it for name, it in BAD.items() if name not in ("surrogate", "NUL")]
"""A command's words have no such characters."""
bad = pytest.mark.parametrize(("path", "words"), BAD.values(), ids=BAD)
bad_words = pytest.mark.parametrize(("path", "words"), BAD_WORDS)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    (place / "file").write_text("")
    (place / "loop").symlink_to("loop")
    return place


async def opened(path: str) -> None:
    async with await dodona.aio.open(path):
        pass


CALLS: dict[str, Callable[[str], Any]] = {
    "place_of": place_of,
    "open": lambda it: dodona.open(it).close(),
    "aio.open": lambda it: asyncio.run(opened(it)),
    "a server's data": lambda it: lock_folder(it).close(),
    "up": lambda it: DataFolder(Path(it)),
    "check": lambda it: check_folder(Path(it)),
}


@bad
@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_opened_there(folder: Path, call: str, path: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        CALLS[call](path)
    said = str(refused.value)
    assert words in said or ("NUL" in said and "\0" in path)
    assert len(said) < 300
    assert {it.name for it in folder.iterdir()} == {"file", "loop"}


def test_a_place_is_absolute_and_may_be_empty(folder: Path) -> None:
    assert place_of("new") == folder / "new"
    assert place_of(folder / "none" / "new") == folder / "none" / "new"
    assert place_of("~") == Path.home()
    assert place_of("file") == folder / "file"


@bad_words
@pytest.mark.parametrize(
    "command",
    [
        ["create", TABLE, "--schema", "k:int64:key,v:int64", "--data-dir"],
        ["select", TABLE, "--data-dir"],
        ["insert", TABLE, "-", "--input-format", "csv", "--data-dir"],
        ["tokens", "list", "--data-dir"],
        ["check"],
    ],
    ids=lambda it: it[0],
)
def test_a_command_reports_a_bad_path(command: list[str], path: str, words: str) -> None:
    done = CliRunner().invoke(application, [*command, path])
    assert done.exit_code == 1, done.exception
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr) < 400


@bad_words
def test_a_file_is_not_read_there(bank: Commands, path: str, words: str) -> None:
    for command in (["insert", TABLE], ["delete", TABLE]):
        bank.refused(*command, path, "--input-format", "csv")
    bank.refused("create", "//x", "--schema", path)
    bank.refused("restore", path)


@pytest.mark.parametrize("name", ["long", "surrogate", "NUL"])
def test_an_object_store_is_not_looked_for_there(name: str) -> None:
    path, words = BAD[name]
    url = f"file:///{path}"
    for check in (Replicas(3, url).check_object_store, lambda: open_objects(url)):
        with pytest.raises(InvalidRequest, match=words):
            check()


@pytest.mark.parametrize("command", ["select", "check", "backup", "restore", "up"])
def test_an_empty_folder_is_not_this_one(folder: Path, command: str) -> None:
    """A variable of a script that was never set."""
    given = {"select": ["select", TABLE, "--data-dir", ""], "up": ["up", "--data-dir", ""]}
    done = CliRunner().invoke(application, given.get(command, [command, ""]))
    assert done.exit_code == 2
    assert "the path is empty: name a folder" in " ".join(done.stderr.replace("│", " ").split())
    assert {it.name for it in folder.iterdir()} == {"file", "loop"}


def test_a_long_schema_is_no_file() -> None:
    text = "k:int64:key," + ",".join(f"measurement_{it}:double" for it in range(100))
    assert len(schema_of(text).columns) == 101
    for strange in ("a\0b", "a\ud800b"):
        with pytest.raises(InvalidRequest, match="can't be read"):
            schema_of(strange)
