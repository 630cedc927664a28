"""Real servers whose disk fails under load end loudly, come back, and have what they promised.

Owns: the proof for whole processes, with their sockets and loops; every single call is tried
without those, by `disk_faults`.
"""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import dodona
from dodona.errors import CommitOutcomeUnknown, TransactionAborted, Unavailable
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan
from integration.failing_server import sign_beside
from suite.waiting import WAIT_S_MAX, wait_until

pytestmark = pytest.mark.integration

PATH = "//failing/rows"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "int64"},
]
WRITES_MIN = 60


def write_until_it_came_back(cluster: LocalCluster, db: dodona.Client, name: str) -> set[int]:
    """→ the rows that were acknowledged."""
    acknowledged: set[int] = set()
    deadline = time.monotonic() + WAIT_S_MAX
    number = 0
    while len(acknowledged) < WRITES_MIN or cluster.processes[name].start_count < 2:
        assert time.monotonic() < deadline, f"{len(acknowledged)} writes, and no failure"
        number += 1
        try:
            db.insert_rows(PATH, [{"id": number, "value": number}])
        except (CommitOutcomeUnknown, TransactionAborted, Unavailable):
            continue  # aborted: the call failed before the group was written
        acknowledged.add(number)
    return acknowledged


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("node 0", ("sync", "30", "EIO")),
        ("node 0", ("write", "40", "ENOSPC")),
        ("master", ("synced write", "2", "EIO")),
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
        sign_beside(tmp_path / "cluster" / name.replace(" ", "-")).touch()
        acknowledged = write_until_it_came_back(cluster, db, name)
        rows = read_all(db)
    assert acknowledged <= rows
    said = (tmp_path / "cluster" / "logs" / f"{name.replace(' ', '-')}.log").read_text("utf-8")
    assert "stopping the process: its state is in doubt" in said
    assert ("No space left" if call[2] == "ENOSPC" else "Input/output error") in said


@pytest.mark.part("a disk that hangs")
@pytest.mark.parametrize("inline_flush_us_max", [3_000, 0])
def test_a_node_whose_disk_hangs_is_not_ready_and_continues_afterwards(
    tmp_path: Path, inline_flush_us_max: int
) -> None:
    """Whoever waits for the disk: the event loop, or the log's thread."""

    def arrange(plans: list[Plan]) -> list[Plan]:
        more = ("--inline-flush-us-max", str(inline_flush_us_max))
        module = "integration.hanging_node"
        return [
            replace(plan, module=module, arguments=(*plan.arguments, *more))
            if plan.name == "node 0"
            else plan
            for plan in plans
        ]

    with (
        LocalCluster(tmp_path / "cluster", node_count=1, arrange=arrange) as cluster,
        dodona.connect(cluster.master_url) as db,
        ThreadPoolExecutor(1) as pool,
    ):
        db.create_table(PATH, schema=SCHEMA, mount=True)
        db.insert_rows(PATH, [{"id": 1, "value": 1}])
        (log,) = (tmp_path / "cluster").rglob("log/*.mdb")
        hang = log.parents[1] / "hang"
        hang.touch()
        (url,) = cluster.node_urls
        writing = pool.submit(db.insert_rows, PATH, [{"id": 2, "value": 2}])
        try:
            said = wait_for(url, 503)
            assert re.search(r"the disk has not answered for \d+ ms", said["detail"])
            for page in ("healthz", "startupz"):
                assert httpx.get(f"{url}/{page}").status_code == 200
            assert not writing.done()
        finally:
            hang.unlink()
        writing.result(WAIT_S_MAX)
        wait_for(url, 200)
        assert cluster.processes["node 0"].start_count == 1
        assert read_all(db) == {1, 2}


def wait_for(url: str, status: int) -> Any:
    """What `/readyz` says, once it says yes, or no."""
    seen: list[httpx.Response] = []

    def is_said() -> bool:
        seen[:] = [httpx.get(f"{url}/readyz", timeout=WAIT_S_MAX)]
        return seen[0].status_code == status

    wait_until(is_said, lambda: seen[0].text, pause_s=0.05)
    return seen[0].json()


def read_all(db: dodona.Client) -> set[int]:
    """Once there is somebody who answers."""
    rows: set[int] = set()

    def is_read() -> bool:
        try:
            rows.update(db.select(PATH).to_arrow()["id"].to_pylist())
        except Unavailable:
            return False
        return True

    wait_until(is_read, "nobody serves the table")
    return rows
