"""Folders of earlier commits are opened, read, written, and checked."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona_local.checking import check_folder
from integration.old_stores import APPLICATION, ATOMIC, PLAIN, VERSION, fill, read

STORES = sorted((Path(__file__).parent / "stores").glob("*.tar.xz"))
"""Each named by the day on which a commit wrote it."""

pytestmark = pytest.mark.integration


@pytest.fixture(params=STORES, ids=lambda path: path.name.partition(".")[0])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What this version reads of what it wrote itself."""
    with dodona.open(tmp_path_factory.mktemp("new")) as db:
        fill(db)
        yield read(db)


def test_there_is_an_old_store() -> None:
    assert STORES


@pytest.mark.part("stores of an earlier commit")
def test_all_that_an_earlier_commit_wrote_is_there(old: Path, expected: dict[str, Any]) -> None:
    for _ in range(2):  # once as it was, once as this commit left it
        with dodona.open(old) as db:
            assert read(db) == expected


def test_an_old_store_can_be_written(old: Path) -> None:
    with dodona.open(old) as db:
        with db.begin() as tx:
            (row,) = tx.lookup_rows(ATOMIC, [{"id": 1}])
            tx.insert_rows(ATOMIC, [{**row, "text": "new"}])
        db.insert_rows(PLAIN, [{"k": b"c", "v": 2.5}])
        db.unmount_table(ATOMIC)
        db.mount_table(ATOMIC)
    with dodona.open(old) as db:
        assert db.lookup_rows(ATOMIC, [{"id": 1}])[0]["text"] == "new"
        assert db.lookup_rows(PLAIN, [{"k": b"c"}])[0]["v"] == 2.5


def test_versions_of_applications_count_on(old: Path) -> None:
    with dodona.open(old) as db:
        for version, is_recorded in ((VERSION, True), (VERSION + 1, False)):
            with db.loads.begin([ATOMIC], application=APPLICATION, version=version) as load:
                assert load.is_recorded is is_recorded


def test_the_check_of_an_old_store_finds_no_damage(old: Path) -> None:
    with dodona.open(old):
        pass
    parts = check_folder(old)
    assert {part.name for part in parts} == {"master", "node-0"}
    assert not [part.damages for part in parts if part.damages]
