"""Versions of applications: of tables that move, and as an older release recorded them, without
saying of which tables."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

import dodona
from dodona._core.loads.records import APPLICATIONS, SCHEMAS
from dodona._core.loads.versions import CLOCKS_US
from dodona.client import Client

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}
TABLE = [KEY, {"name": "v", "type": "int64"}]
OLD = [
    {"name": "application", "type": "utf8", "sort_order": "ascending"},
    {"name": "version", "type": "int64"},
    {"name": "load", "type": "uint64"},
    {"name": "query", "type": "utf8"},
]


@pytest.mark.parametrize("is_mounted", [True, False])
def test_they_count_for_the_tables_that_existed_then(tmp_path: Path, is_mounted: bool) -> None:
    with dodona.open(tmp_path / "db") as db:
        db.create_table("//before", TABLE, mount=True)
        db.create_table("//sys/load_applications", OLD, mount=True)
        db.insert_rows(APPLICATIONS, [{"application": "a", "version": 3, "load": 1}])
        if not is_mounted:
            db.unmount_table(APPLICATIONS)
        time.sleep(CLOCKS_US / 1_000_000 + 0.1)
        db.create_table("//after", TABLE, mount=True)
        with db.loads.begin(["//before"], application="a", version=3) as load:
            assert load.is_recorded
        with db.loads.begin(["//after"], application="a", version=3) as load:
            assert not load.is_recorded
            load.write("//after", pa.table({"k": [1], "v": [1]}))
        with db.loads.begin(["//before"], application="a", version=4) as load:
            assert not load.is_recorded
            load.write("//before", pa.table({"k": [1], "v": [1]}))
        found = [(row["path"], row["version"]) for row in db.select(APPLICATIONS)]
        assert found == [(None, 3), ("//after", 3), ("//before", 4)]
        names = [column.name for column in db.get_table(APPLICATIONS).schema.columns]
        assert sorted(names) == sorted(column["name"] for column in SCHEMAS[APPLICATIONS])


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
