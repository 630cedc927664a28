"""The manifest of a backup: what it says comes back, and nothing else is taken for it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dodona.errors import DataCorrupted, DodonaError, InvalidRequest
from dodona.schema import Column
from dodona.types import LoadId, Timestamp
from dodona_local.backup.manifest import (
    Manifest,
    RowFile,
    SavedDirectory,
    SavedTable,
    SavedVersion,
    parents_of,
    read_manifest,
    verify_parts,
    write_manifest,
)

CONTENT = b"rows" * 1000


def part(name: str = "tables/00000/00000-00.arrow", content: bytes = CONTENT) -> RowFile:
    return RowFile(name, 7, len(content), hashlib.sha256(content).hexdigest())


def table(path: str, *parts: RowFile) -> SavedTable:
    columns = (Column("k", "int64", "ascending"), Column("v", "any", lock="x"))
    return SavedTable(
        path,
        "full",
        False,
        Timestamp(77),
        columns,
        (b"", b"\xff\x00"),
        {"min_data_ttl": 5},
        {"owner": "ada", "sizes": [1, 2.5, None]},
        parts,
    )


VERSIONS = (SavedVersion("nightly", 7, LoadId(77), None),)
MANIFEST = Manifest(
    2,
    "0.1.0",
    "http://here",
    Timestamp(77),
    "2026-01-01T00:00:00+00:00",
    (SavedDirectory("//", {"a": {"b": [True]}}), SavedDirectory("//bank", {})),
    (replace(table("//bank/accounts", part()), versions=VERSIONS), table("//bank/old/accounts")),
)
CHECKSUM = "78590c54c798cbea214ceacbcd0d5f3908de4601b2bf4c9bd28bed6ce39aff25"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tables" / "00000").mkdir(parents=True)
    (tmp_path / part().name).write_bytes(CONTENT)
    write_manifest(tmp_path, MANIFEST)
    return tmp_path


def refusal(folder: Path, kind: type[DodonaError]) -> str:
    with pytest.raises(DodonaError) as caught:
        read_manifest(folder)
    assert type(caught.value) is kind
    assert str(folder) in caught.value.message
    return caught.value.message


def change(folder: Path, **changed: Any) -> None:
    path = folder / "backup.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def test_what_was_written_is_read(folder: Path) -> None:
    found = read_manifest(folder)
    assert replace(found, checksum="") == MANIFEST
    assert found.row_count == 7
    assert [it.name for it in found.parts] == [part().name]
    assert sorted(it.name for it in folder.iterdir()) == ["backup.json", "tables"]


def test_the_checksum_of_a_manifest_is_the_one_that_an_earlier_commit_wrote(folder: Path) -> None:
    assert json.loads((folder / "backup.json").read_text())["checksum"] == CHECKSUM


def test_the_manifest_is_json_with_line_breaks(folder: Path) -> None:
    text = (folder / "backup.json").read_text()
    assert json.loads(text)["tables"][0]["attributes"] == {"owner": "ada", "sizes": [1, 2.5, None]}
    assert text.count("\n") > 20


def test_another_layout_of_the_same_json_is_as_good(folder: Path) -> None:
    change(folder)
    assert replace(read_manifest(folder), checksum="") == MANIFEST


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "the folder does not exist" in refusal(tmp_path / "none", InvalidRequest)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert "there is no backup.json in it" in refusal(tmp_path, InvalidRequest)


@pytest.mark.parametrize("rest", [[], ["backup.json.unfinished"]])
def test_an_interrupted_backup(folder: Path, rest: list[str]) -> None:
    (folder / "backup.json").unlink()
    for name in rest:
        (folder / name).touch()
    assert "has a backup that was interrupted" in refusal(folder, InvalidRequest)


@pytest.mark.parametrize("format_number", [0, 1, 3, 77])
def test_a_backup_of_another_format_is_refused_and_stays_as_it_is(
    folder: Path, format_number: int
) -> None:
    change(folder, format=format_number, version="9.0", more={"of": "it"})
    path = folder / "backup.json"
    before = path.read_bytes()
    text = refusal(folder, InvalidRequest)
    assert f"{path} has format {format_number} (Dodona 9.0)" in text
    assert "reads format 2 only: restore with the other version" in text
    assert path.read_bytes() == before
    assert sorted(it.name for it in folder.iterdir()) == ["backup.json", "tables"]


@pytest.mark.parametrize(
    "changed",
    [
        {"timestamp": 78},
        {"tables": []},
        {"checksum": "00"},
        {"checksum": ""},
        {"timestamp": "soon"},
        {"surprise": 1},
    ],
)
def test_one_that_was_changed(folder: Path, changed: dict[str, Any]) -> None:
    change(folder, **changed)
    assert "is damaged" in refusal(folder, DataCorrupted)


@pytest.mark.parametrize("cut", [0, 1, 100, -2])
def test_one_that_was_cut_off(folder: Path, cut: int) -> None:
    path = folder / "backup.json"
    path.write_bytes(path.read_bytes()[:cut])
    assert "is damaged" in refusal(folder, DataCorrupted)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x.arrow", "tables/../x.arrow", "backup.json", ""]
)
def test_one_that_names_files_elsewhere(tmp_path: Path, name: str) -> None:
    write_manifest(tmp_path, replace(MANIFEST, tables=(table("//a", part(name)),)))
    assert "files that a backup can't have" in refusal(tmp_path, DataCorrupted)


def test_one_that_names_a_file_twice(tmp_path: Path) -> None:
    write_manifest(tmp_path, replace(MANIFEST, tables=(table("//a", part(), part()),)))
    assert "files that a backup can't have" in refusal(tmp_path, DataCorrupted)


# ---- files


def test_the_check_of_backup_files_counts_their_bytes(folder: Path) -> None:
    counts: list[int] = []
    verify_parts(folder, MANIFEST.parts, counts.append)
    assert sum(counts) == len(CONTENT)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "is missing"),
        (b"", "it has 0 bytes, not 4000"),
        (CONTENT + b".", "it has 4001 bytes, not 4000"),
        (CONTENT[:-1] + b"t", "its checksum is wrong"),
    ],
)
def test_unsound_files_are_named(folder: Path, content: bytes | None, reason: str) -> None:
    path = folder / part().name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataCorrupted, match=reason) as caught:
        verify_parts(folder, MANIFEST.parts, lambda _: None)
    assert str(path) in caught.value.message


# ---- some tables


def test_some_tables_come_with_their_directories() -> None:
    some = replace(MANIFEST, directories=(*MANIFEST.directories, SavedDirectory("//bank/old", {})))
    (only,) = some.only(["//bank/accounts", "//bank/accounts"]).tables
    assert only.path == "//bank/accounts"
    assert [it.path for it in some.only(["//bank/accounts"]).directories] == ["//bank"]
    assert [it.path for it in some.only(["//bank/old/accounts"]).directories] == [
        "//bank",
        "//bank/old",
    ]


def test_tables_that_the_manifest_lacks_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="has no table //x, //y: it has //bank/accounts, "):
        MANIFEST.only(["//x", "//bank/accounts", "//y"])


def test_directories_above_a_path() -> None:
    assert parents_of("//a/b/c") == ["//a", "//a/b"]
    assert parents_of("//a") == []
