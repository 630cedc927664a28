"""Whatever Dodona writes that has data or secrets in it is for its owner alone, also where the user
lets others read what he makes."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import dodona
from dodona_local.backup import back_up
from dodona_local.launcher import LocalCluster

pytestmark = pytest.mark.integration
SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


@pytest.fixture(autouse=True)
def _generous() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def fill(db: dodona.Client) -> None:
    db.create_table("//t", SCHEMA, mount=True)
    db.insert_rows("//t", [{"k": it, "v": it} for it in range(100)])
    db.unmount_table("//t")  # so that there is a chunk
    db.mount_table("//t")


def open_to_others(folder: Path) -> list[str]:
    found = []
    for path in (folder, *sorted(folder.rglob("*"))):
        mode = path.lstat().st_mode
        if not stat.S_ISSOCK(mode) and mode & 0o077:
            found.append(f"{path.relative_to(folder)} {mode:o}")
    return found


def test_an_embedded_database(tmp_path: Path) -> None:
    with dodona.open(tmp_path / "db") as db:
        fill(db)
        assert list((tmp_path / "db").rglob("*.arrow"))
        assert open_to_others(tmp_path / "db") == []
        back_up(db, tmp_path / "kept", ["//t"])
    assert open_to_others(tmp_path / "kept") == []


def test_a_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with LocalCluster(folder, node_count=1, gateway_count=1, has_key=True) as cluster:
        with dodona.connect(cluster.master_url) as db:
            fill(db)
        assert list(folder.rglob("*.arrow"))
        assert open_to_others(folder) == []
