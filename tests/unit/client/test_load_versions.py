"""What an older release recorded of an application's versions: without saying of which tables."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

import dodona
from dodona._core.loads.records import APPLICATIONS, SCHEMAS
from dodona._core.loads.versions import CLOCKS_US

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
