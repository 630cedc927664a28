"""Tablets that are gone leave real nodes, and what took their rows over keeps them."""

from typing import Any

import httpx
import pytest

import dodona
from dodona_local.launcher import LocalCluster
from suite.waiting import wait_until

pytestmark = pytest.mark.integration

FOLDER = "//dropping_test"
TABLE = f"{FOLDER}/t"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "int64"},
]
ROWS = [{"id": number, "value": number} for number in range(0, 200, 10)]


def count(cluster: LocalCluster, what: str) -> int:
    """Of all nodes."""
    return sum(httpx.get(f"{url}/v1/statistics").json()["cell"][what] for url in cluster.node_urls)


def wait_for(cluster: LocalCluster, dropped_count: int) -> None:
    wait_until(lambda: count(cluster, "tablets_dropped") >= dropped_count, pause_s=0.1)


def test_nodes_drop_the_tablets_of_resharded_and_removed_tables(
    cluster: LocalCluster, db: dodona.Client
) -> None:
    before, stored = count(cluster, "tablets_dropped"), count(cluster, "tablets_stored")
    db.create_table(TABLE, SCHEMA, pivot_keys=[[], [100]], mount=True)
    db.insert_rows(TABLE, ROWS)
    db.unmount_table(TABLE)
    db.reshard_table(TABLE, [[], [50], [150]])
    db.mount_table(TABLE)
    wait_for(cluster, before + 2)
    assert db.select(TABLE) == ROWS
    db.remove(FOLDER, recursive=True)
    wait_for(cluster, before + 5)
    assert count(cluster, "tablets_stored") <= stored
    db.create_table(TABLE, SCHEMA, mount=True)
    assert db.select(TABLE) == []
    db.remove(FOLDER, recursive=True)
