"""Backups of clusters with copies of logs, and restores into them."""

from pathlib import Path

import pytest

import dodona
from dodona_local.backup import back_up, restore
from dodona_local.launcher import LocalCluster
from integration.replication.clusters import create, make_chunks, opened, replicated, write
from suite.etcd import NEEDS_ETCD

pytestmark = [
    pytest.mark.integration,
    pytest.mark.rest("backups are logical, and have tests of their own"),
    NEEDS_ETCD,
]


def rows(db: dodona.Client) -> list[dict[str, object]]:
    found: list[dict[str, object]] = db.query("select k, v from [//t] order by k").to_pylist()
    return found


def test_a_backup_goes_from_each_kind_of_cluster_into_the_other(tmp_path: Path) -> None:
    """From copies to a plain cluster and back, and from copies to copies."""
    with opened(LocalCluster(tmp_path / "plain", node_count=1)) as plain:
        with opened(replicated(tmp_path / "copies")) as copies:
            create(copies)
            write(copies, 0, 20)
            make_chunks(copies)
            write(copies, 20, 20)
            made = back_up(copies, tmp_path / "monday")
            assert made.row_count == 40
            wanted = rows(copies)
            restore(plain, tmp_path / "monday")
            assert rows(plain) == wanted
            copies.remove("//t")
            restore(copies, tmp_path / "monday")
            assert rows(copies) == wanted
            copies.remove("//t")
            write(plain, 40, 5)
            back_up(plain, tmp_path / "tuesday")
            restore(copies, tmp_path / "tuesday")
            assert rows(copies) == rows(plain)
            make_chunks(copies)
        with opened(replicated(tmp_path / "copies")) as copies:
            assert len(rows(copies)) == 45
