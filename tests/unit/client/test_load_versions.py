"""Versions of applications: of tables that move, and in a table with other columns."""

from pathlib import Path

import pyarrow as pa
import pytest

import dodona
from dodona._core.loads.records import APPLICATIONS
from dodona.client import Client
from dodona.errors import InvalidRequest

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}
TABLE = [KEY, {"name": "v", "type": "int64"}]
OTHER = [
    {"name": "application", "type": "utf8", "sort_order": "ascending"},
    {"name": "version", "type": "int64"},
    {"name": "load", "type": "uint64"},
    {"name": "query", "type": "utf8"},
]


def test_a_table_of_versions_with_other_columns_is_refused(tmp_path: Path) -> None:
    with dodona.open(tmp_path / "db") as db:
        db.create_table("//t", TABLE, mount=True)
        db.create_table(APPLICATIONS, OTHER, mount=True)
        row = {"application": "a", "version": 3, "load": 1, "query": None}
        db.insert_rows(APPLICATIONS, [row])
        with pytest.raises(InvalidRequest, match="reads application, path, version") as caught:
            db.loads.begin(["//t"], application="a", version=3)
        assert "has the columns application, version, load, query" in caught.value.message
        assert caught.value.attributes["table"] == APPLICATIONS
        assert [dict(it) for it in db.select(APPLICATIONS)] == [row]


def publish(db: Client, path: str, version: int) -> bool:
    """→ whether it was taken, and not skipped."""
    with db.loads.begin([path], application="a", version=version) as load:
        if not load.is_recorded:
            load.write(path, pa.table({"k": [version], "v": [version]}))
        return not load.is_recorded


def move(db: Client, source: str, destination: str) -> None:
    db.unmount_table(source)
    db.move(source, destination)
    db.mount_table(destination)


def test_load_versions_of_a_moved_table_stay_at_its_old_path(tmp_path: Path) -> None:
    with dodona.open(tmp_path / "db") as db:
        db.create_table("//t", TABLE, mount=True)
        assert publish(db, "//t", 3)
        move(db, "//t", "//moved")
        assert publish(db, "//moved", 3)  # there it has none
        move(db, "//moved", "//t")
        assert not publish(db, "//t", 3)  # it is back
        assert publish(db, "//t", 4)
        move(db, "//t", "//moved")
        assert not publish(db, "//moved", 3)
        assert publish(db, "//moved", 4)


def test_a_table_that_takes_the_place_of_a_moved_one_has_no_versions(tmp_path: Path) -> None:
    with dodona.open(tmp_path / "db") as db:
        db.create_table("//t", TABLE, mount=True)
        assert publish(db, "//t", 3)
        db.unmount_table("//t")
        db.move("//t", "//moved")
        db.copy("//moved", "//t")
        for path in ("//t", "//moved"):
            db.mount_table(path)
        assert publish(db, "//t", 3)
        db.remove("//t")
        move(db, "//moved", "//t")
        assert publish(db, "//t", 3)  # the other table's version took the place of its own
