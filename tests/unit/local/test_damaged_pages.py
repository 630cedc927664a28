"""Damaged files of LMDB, of a master and of a cell: `DataCorrupted` with the place, or no harm.

LMDB by itself ends the process: by an assertion, by a bus error. So each start is a process.
"""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import dodona
from dodona.errors import DataCorrupted
from dodona_local.checking import check_folder

SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "string"},
]
PAGE = 4096
SOUND, REFUSED, SURPRISED = range(3)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both files have pages of all kinds: branches, leaves, long values, and lists of free ones."""
    folder = tmp_path_factory.mktemp("made") / "db"
    with dodona.open(folder) as db:
        for number in range(60):
            db.create_table(f"//t{number}", schema=SCHEMA, mount=number == 0)
        for number in range(120):
            value = b"x" * (9_000 if number % 9 == 0 else 90)
            db.insert_rows("//t0", [{"id": number, "value": value}])
    return folder


def damages(raw: bytes) -> Iterator[bytes]:
    """Each page zeroed, or random, or with another kind; the end missing."""
    for number in range(len(raw) // PAGE):
        draw = random.Random(number)
        begin, end = number * PAGE, (number + 1) * PAGE
        yield raw[:begin] + bytes(PAGE) + raw[end:]
        yield raw[:begin] + draw.randbytes(PAGE) + raw[end:]
        yield raw[: begin + 8] + draw.randbytes(8) + raw[begin + 16 :]
        if number % 3 == 0:
            yield raw[: begin + PAGE // 2]


def end_of_start(folder: Path) -> int:
    """How a process ends that opens the folder, reads all rows, and writes one more."""
    child = os.fork()
    if child == 0:
        status = SURPRISED
        try:
            db = dodona.open(folder)
            status = SOUND if len(db.select("//t0")) == 120 else SURPRISED
            db.insert_rows("//t0", [{"id": -1, "value": b"y"}])
        except DataCorrupted as error:
            status = REFUSED if "path" in error.attributes else SURPRISED
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow("a process for each damaged page")
@pytest.mark.parametrize("name", ["master/master.mdb", "node-0/log/*.mdb"])
def test_a_damaged_page_is_reported_with_its_place_or_does_no_harm(
    made: Path, tmp_path: Path, name: str
) -> None:
    (path,) = made.glob(name)
    raw = path.read_bytes().rstrip(b"\0")
    raw += bytes(-len(raw) % PAGE)
    every = [*damages(raw)]
    ends = []
    for damaged in random.Random(name).sample(every, 60):
        folder = shutil.copytree(made, tmp_path / "db")
        (folder / path.relative_to(made)).write_bytes(damaged)
        ends.append(end_of_start(folder))
        shutil.rmtree(folder)
    assert set(ends) == {SOUND, REFUSED}, "some pages are free"
    assert ends.count(REFUSED) > 20


def test_check_reports_a_truncated_master_file_with_its_path(made: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(made, tmp_path / "db")
    path = folder / "master" / "master.mdb"
    os.truncate(path, path.stat().st_size // 2)
    found = [it for part in check_folder(folder) for it in part.damages]
    assert [it.attributes["path"] for it in found] == [str(path)]
