"""More rows than a node has memory for: they are written, read and there after a restart."""

import signal
from os import kill
from pathlib import Path
from typing import Any

import httpx
import pytest

import dodona
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan
from suite.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.alone,  # memory is counted so often a second
]

PATH = "//memory/rows"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "number", "type": "int64"},
    {"name": "text", "type": "string"},
]
MEMORY_MIB = 16
PEAK_BYTES_MAX = 24 << 20
"""Memory is counted ten times a second: what comes in between is taken, too."""
ROWS = 60_000
STEP = 1_000
TEXT = b"x" * 1_000
"""All rows have nearly four times as much text as there is memory."""


def with_little_memory(plans: list[Plan]) -> list[Plan]:
    return [
        it.with_option("--memory-mib-max", str(MEMORY_MIB)) if it.name == "node 0" else it
        for it in plans
    ]


def statistics(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{cluster.node_urls[0]}/v1/statistics").json()["cell"]
    return found


def check(db: dodona.Client) -> None:
    table = db.read_arrow(PATH, columns=["id", "number"])
    assert table.column("id").to_pylist() == list(range(ROWS))
    assert table.column("number").to_pylist() == [-number for number in range(ROWS)]
    some = range(0, ROWS, 997)
    rows = db.lookup_rows(PATH, [{"id": number} for number in some])
    assert rows == [{"id": number, "number": -number, "text": TEXT} for number in some]


def test_more_rows_than_memory(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "data", node_count=1, arrange=with_little_memory) as cluster,
        dodona.connect(cluster.master_url) as db,
    ):
        db.create_table(PATH, SCHEMA, atomicity="none", mount=True)
        for first in range(0, ROWS, STEP):
            rows = [
                {"id": number, "number": -number, "text": TEXT}
                for number in range(first, first + STEP)
            ]
            db.insert_rows(PATH, rows)
            assert statistics(cluster)["memory_bytes"] <= PEAK_BYTES_MAX
        found = statistics(cluster)
        assert found["flushed"] > 2
        assert found["chunk_bytes"] > MEMORY_MIB << 20
        check(db)
        pid = cluster.processes["node 0"].pid
        assert pid is not None
        kill(pid, signal.SIGKILL)
        wait_until(lambda: cluster.processes["node 0"].pid != pid)
        cluster.wait_until_ready("node 0")
        check(db)
