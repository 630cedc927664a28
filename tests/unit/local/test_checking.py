"""`dodona check`: what a folder has is told; whatever is wrong with it is found, with its place."""

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import dodona
from dodona.errors import DataCorrupted, FolderInUse, InvalidRequest
from dodona_local import cli
from dodona_local.backup import back_up
from dodona_local.checking import CheckedPart, check_folder

SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "utf8"},
]
ROW_COUNT = 10_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedded database with a row in its log, and others in two chunks."""
    folder = tmp_path_factory.mktemp("made") / "db"
    with dodona.open(folder) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
        db.create_table("//bulk", schema=SCHEMA, atomicity="none", mount=True)
        db.insert_rows("//t", [{"id": 1, "value": "x"}])
        for first in (0, ROW_COUNT):
            numbers = range(first, first + ROW_COUNT)
            text = [f"{number:040}" for number in numbers]
            db.write_arrow("//bulk", pa.table({"id": numbers, "value": text}))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "db")


def content(folder: Path) -> dict[Path, bytes]:
    return {it: it.read_bytes() for it in folder.rglob("*") if it.is_file()}


def damages(folder: Path) -> list[DataCorrupted]:
    return [it for part in check_folder(folder) for it in part.damages]


def test_check_describes_a_sound_folder_and_leaves_its_data_unchanged(folder: Path) -> None:
    before = content(folder)
    master, cell = check_folder(folder)
    assert (master.name, master.damages) == ("master", ())
    assert "2 tables, 2 tablets, 1 cells" in master.contents
    assert (cell.name, cell.damages) == ("node-0", ())
    assert "cell: 2 tablets; log of 1 files" in cell.contents
    assert f"2 chunks, {2 * ROW_COUNT:,} versions" in cell.contents
    after = content(folder)
    assert after.keys() == before.keys()
    changed = {it.name for it in before if after[it] != before[it]}
    assert changed <= {"dodona.lock"}, "but for whose it was last"


def test_each_part_may_be_checked_alone(folder: Path) -> None:
    whole = check_folder(folder)
    assert [*check_folder(folder / "master"), *check_folder(folder / "node-0")] == whole


def test_check_does_not_report_leftovers_of_a_crash_as_damage(folder: Path) -> None:
    (folder / "node-0" / "chunks" / "99.arrow").write_bytes(b"half of it")
    (part,) = check_folder(folder / "node-0")
    assert part.damages == ()
    assert "1 that a crash left over" in part.contents


def test_a_missing_chunk_is_named(folder: Path) -> None:
    chunk = next((folder / "node-0" / "chunks").glob("*.arrow"))
    chunk.unlink()
    (damage,) = damages(folder)
    assert damage.attributes["path"] == str(chunk)


def test_a_chunk_in_place_of_another_is_named(folder: Path) -> None:
    chunks = folder / "node-0" / "chunks"
    first, second = sorted(int(it.stem) for it in chunks.glob("*.arrow"))
    for suffix in ("arrow", "index"):
        shutil.copy(chunks / f"{first}.{suffix}", chunks / f"{second}.{suffix}")
    (damage,) = damages(folder)
    assert damage.attributes["chunk"] == second


@pytest.mark.parametrize("pattern", ["master/master.mdb", "node-0/chunks/*.arrow", "node-0/log/*"])
def test_damage_anywhere_is_found_or_does_no_harm(folder: Path, pattern: str) -> None:
    """A byte that means nothing may have any value; then what is there is what was there."""
    sound = check_folder(folder)
    paths = sorted(folder.glob(pattern))
    random_ = random.Random(pattern)
    found_count = 0
    for _ in range(40):
        path = random_.choice(paths)
        raw = path.read_bytes()
        place = random_.choice([at for at, byte in enumerate(raw) if byte])
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :])
        found = check_folder(folder)
        if any(part.damages for part in found):
            found_count += 1
            assert [str(path)] == [it.attributes["path"] for part in found for it in part.damages]
        else:
            assert found == sound
        path.write_bytes(raw)
    assert found_count > 4


def test_check_reports_damage_in_the_master_and_in_the_cell(folder: Path) -> None:
    for path in (folder / "master" / "master.mdb", next((folder / "node-0" / "log").glob("*.mdb"))):
        path.write_bytes(b"")
    master, cell = check_folder(folder)
    assert len(master.damages) == len(cell.damages) == 1
    assert (master.contents, cell.contents) == ("not known", "not known")


def test_a_folder_in_use_is_not_checked(folder: Path) -> None:
    with dodona.open(folder), pytest.raises(FolderInUse, match="another process"):
        check_folder(folder)
    with dodona.open(folder), pytest.raises(FolderInUse):
        check_folder(folder / "node-0")


def test_check_of_an_empty_or_missing_folder_is_refused_and_creates_no_file(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InvalidRequest, match="there is nothing to check in"):
            check_folder(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_backup_is_checked(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "backup"
    with dodona.open(folder) as db:
        back_up(db, place)
    (part,) = check_folder(place)
    assert part.damages == ()
    assert f"backup: 2 tables, {2 * ROW_COUNT + 1:,} rows" in part.contents
    file = next(place.rglob("*.arrow"))
    file.write_bytes(file.read_bytes()[:-1])
    (damage,) = damages(place)
    assert str(file) in str(damage)


def test_the_check_command_names_the_damage_and_the_remedy(folder: Path) -> None:
    run = CliRunner().invoke
    sound = run(cli.application, ["check", str(folder)])
    assert sound.exit_code == 0
    assert "sound" in sound.stdout
    next((folder / "node-0" / "chunks").glob("*.arrow")).unlink()
    damaged = run(cli.application, ["check", str(folder)])
    assert damaged.exit_code == 1
    assert "1 damaged" in damaged.stdout
    assert "A file of a chunk is missing" in damaged.stderr
    assert "dodona restore" in damaged.stderr


def test_a_part_is_a_row_of_a_table() -> None:
    error = DataCorrupted("planted")
    assert CheckedPart("a", "b").columns == ("a", "b", "sound")
    assert CheckedPart("a", "b", (error, error)).columns == ("a", "b", "2 damaged")
