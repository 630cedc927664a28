"""A key with more versions than one answer of a cell may have (65,535), in memory and in chunks."""

from collections.abc import Iterator
from typing import Any

import pytest

import dodona

PATH = "//hot"
COUNT = 66_000
SCHEMA: list[dict[str, Any]] = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
KEY = {"k": 1}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("long")) as db:
        db.create_table(PATH, SCHEMA, atomicity="none", mount=True)
        for number in range(COUNT):
            db.insert_rows(PATH, [{**KEY, "v": number}], durability="async")
        yield db


def in_pages(db: dodona.Client, page: int) -> list[int]:
    """All values, oldest first, asked for from the newest down as the page on versions says."""
    found: list[int] = []
    options: dict[str, Any] = {}
    while True:
        rows = db.lookup_versions(PATH, [KEY], limit=page, **options)
        if not rows:
            return found[::-1]
        (row,) = rows
        found += [it.value for it in row.values["v"]]
        options = {"timestamp": row.write_timestamps[-1] - 1}


@pytest.mark.slow("70,000 versions of a row")
@pytest.mark.parametrize("place", ["memory", "chunks"])
def test_all_versions_come_whole_and_in_pages(db: dodona.Client, place: str) -> None:
    if place == "chunks":
        db.unmount_table(PATH)
        db.mount_table(PATH)
    (row,) = db.lookup_versions(PATH, [KEY])
    assert [it.value for it in row.values["v"]] == list(range(COUNT))[::-1]
    assert len(set(row.write_timestamps)) == COUNT
    assert in_pages(db, 30_000) == list(range(COUNT))
    assert db.lookup_rows(PATH, [KEY]) == [{**KEY, "v": COUNT - 1}]
