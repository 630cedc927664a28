"""Real servers whose disk fails under load end loudly, come back, and have what they promised.

Owns: the proof for whole processes, with their sockets and loops; every single call is tried
without those, by `disk_faults`.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona.errors import CommitOutcomeUnknown, Unavailable
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PATH = "//failing/rows"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "int64"},
]
WRITES_MIN = 60
SECONDS_MAX = 60.0


def write_until_it_came_back(cluster: LocalCluster, db: dodona.Client, name: str) -> set[int]:
    """→ the rows that were acknowledged."""
    acknowledged: set[int] = set()
    deadline = time.monotonic() + SECONDS_MAX
    number = 0
    while len(acknowledged) < WRITES_MIN or cluster.processes[name].start_count < 2:
        assert time.monotonic() < deadline, f"{len(acknowledged)} writes, and no failure"
        number += 1
        try:
            db.insert_rows(PATH, [{"id": number, "value": number}])
        except (CommitOutcomeUnknown, Unavailable):
            continue
        acknowledged.add(number)
    return acknowledged


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("node 0", ("sync", "30", "EIO")),
        ("node 0", ("write", "40", "ENOSPC")),
        ("master", ("synced write", "15", "EIO")),
    ],
)
def test_a_server_with_a_failing_disk_ends_and_comes_back(
    tmp_path: Path, name: str, call: tuple[str, str, str]
) -> None:
    def arrange(plans: list[Plan]) -> list[Plan]:
        return [
            replace(
                plan,
                module="integration.failing_server",
                arguments=(*call, plan.module, *plan.arguments),
            )
            if plan.name == name
            else plan
            for plan in plans
        ]

    with (
        LocalCluster(tmp_path / "cluster", node_count=1, arrange=arrange) as cluster,
        dodona.connect(cluster.master_url) as db,
    ):
        db.create_table(PATH, schema=SCHEMA, mount=True)
        acknowledged = write_until_it_came_back(cluster, db, name)
        rows = read_all(db)
    assert acknowledged <= rows
    said = (tmp_path / "cluster" / "logs" / f"{name.replace(' ', '-')}.log").read_text("utf-8")
    assert "stopping the process: its state is in doubt" in said
    assert ("No space left" if call[2] == "ENOSPC" else "Input/output error") in said


def read_all(db: dodona.Client) -> set[int]:
    """Once there is somebody who answers."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return set(db.select(PATH).to_arrow()["id"].to_pylist())
        except Unavailable:
            assert time.monotonic() < deadline, "nobody serves the table"
