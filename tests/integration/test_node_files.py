"""A real node has more chunks than it may have files open, and serves them."""

from dataclasses import replace
from pathlib import Path

import pytest

import dodona
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan

pytestmark = [pytest.mark.integration, pytest.mark.part("a node with few descriptors")]

FILES_MAX = 64
CHUNKS = 50
"""Each took two descriptors for as long as the node had it."""
SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "note", "type": "utf8"},
]


def limit(plans: list[Plan]) -> list[Plan]:
    return [
        replace(
            plan,
            module="integration.limited",
            arguments=(str(FILES_MAX), plan.module, *plan.arguments),
        )
        if plan.name.startswith("node")
        else plan
        for plan in plans
    ]


def test_a_node_serves_more_chunks_than_its_limit_of_open_files(tmp_path: Path) -> None:
    rows = [{"id": number, "note": f"row {number}"} for number in range(CHUNKS)]
    pivots = [[], *([row["id"]] for row in rows[1:])]
    with (
        LocalCluster(tmp_path / "data", node_count=1, arrange=limit) as cluster,
        dodona.connect(cluster.master_url) as db,
    ):
        db.create_table("//t", SCHEMA, pivot_keys=pivots, mount=True)
        db.insert_rows("//t", rows)
        db.unmount_table("//t")  # each tablet makes a chunk
        db.mount_table("//t")
        assert list(db.select("//t")) == rows
        cluster.kill("node 0")
        cluster.wait_until_ready("node 0", start_count=2)
        assert list(db.select("//t")) == rows
        db.insert_rows("//t", [{"id": CHUNKS, "note": "one more"}])
        assert len(db.select("//t")) == CHUNKS + 1
