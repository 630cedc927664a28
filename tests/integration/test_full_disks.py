"""A server of a cluster whose disk is full: it says so, serves reads, and the others go on.

Owns: the proof for real servers, each with a small file system of its own. Embedded databases are
tried in `unit/local`.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona import aio
from dodona.errors import DiskFull, DodonaError
from dodona.types import Atomicity
from dodona_local.launcher import LocalCluster
from dodona_server import notices
from integration.gateway.rest import Rest
from suite.waiting import wait_until
from unit.local.disks import Disk, mounted

pytestmark = pytest.mark.integration

SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "string"},
]
FULL, OTHER = 10, 1_000
"""Keys in the cell whose disk is full, and in the other."""


def rows(first: int, count: int = 10) -> list[dict[str, Any]]:
    return [{"id": number, "value": b"x" * 100} for number in range(first, first + count)]


def keys(first: int, count: int = 10) -> list[dict[str, Any]]:
    return [{"id": number} for number in range(first, first + count)]


class Site:
    """A cluster with one disk that is small, and a table in both of its cells."""

    def __init__(self, cluster: LocalCluster, disk: Disk) -> None:
        self.cluster, self.disk = cluster, disk
        self.db = dodona.connect(cluster.master_url)
        modes: dict[str, Atomicity] = {"//full": "full", "//none": "none"}
        for path, mode in modes.items():
            self.db.create_table(path, SCHEMA, atomicity=mode, pivot_keys=[(), (500,)], mount=True)
            for first in (FULL, OTHER):
                self.db.insert_rows(path, rows(first))

    def fill(self) -> None:
        """And until every server has looked at its disk."""
        self.disk.fill()
        time.sleep(2 * notices.LOOK_SECONDS)

    def reads_go_on(self) -> None:
        for path in ("//full", "//none"):
            for first in (FULL, OTHER):
                found = self.db.lookup_rows(path, keys(first))
                assert [it and it["id"] for it in found] == [*range(first, first + 10)]

    def nobody_ended(self) -> None:
        counts = {name: it.start_count for name, it in self.cluster.processes.items()}
        assert set(counts.values()) == {1}, counts


def once_there_is_room(write: Callable[[], object]) -> None:
    def is_written() -> bool:
        try:
            write()
        except DiskFull:
            return False
        return True

    wait_until(is_written, "there is room", pause_s=0.05)


def site_of(folder: Path, name: str) -> Iterator[Site]:
    data = folder / "data"
    with (
        mounted(data / name) as disk,
        LocalCluster(data, node_count=2, gateway_count=1, is_insecure=True) as cluster,
    ):
        site = Site(cluster, disk)
        yield site
        site.db.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Site]:
    yield from site_of(tmp_path, "node-0")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Site]:
    yield from site_of(tmp_path, "master")


def load(db: dodona.Client) -> None:
    import pyarrow

    with db.loads.begin(["//full"]) as it:
        it.write("//full", pyarrow.table({"id": [FULL + 50], "value": [b"x"]}))


def in_transaction(db: dodona.Client, *firsts: int) -> None:
    with db.begin() as tx:
        for first in firsts:
            tx.insert_rows("//full", rows(first + 20))


WRITES: dict[str, Callable[[dodona.Client], object]] = {
    "blind": lambda db: db.insert_rows("//full", rows(FULL + 20)),
    "transaction": lambda db: in_transaction(db, FULL),
    "transaction of two cells": lambda db: in_transaction(db, FULL, OTHER),
    "deletion": lambda db: db.delete_rows("//full", keys(FULL + 90)),
    "non-atomic": lambda db: db.insert_rows("//none", rows(FULL + 20)),
    "load": load,
}


def test_a_node_with_a_full_disk_refuses_only_writes(node: Site) -> None:
    node.fill()
    for name, write in WRITES.items():
        with pytest.raises(DiskFull) as caught:
            write(node.db)
        assert str(node.disk.path) in str(caught.value), name
    with Rest(node.cluster.gateway_urls[0]) as rest:
        asked = [{"id": FULL + 20, "value": "x"}]
        answer = rest.send("insert_rows", table="//full", rows=asked)
        assert (answer.status_code, answer.json()["kind"]) == (507, "disk_full")
        assert rest("lookup_rows", table="//full", keys=[{"id": FULL}])["rows"][0]["id"] == FULL
    node.db.insert_rows("//full", rows(OTHER))
    node.db.insert_rows("//none", rows(OTHER))
    node.reads_go_on()
    assert not any(node.db.lookup_rows("//full", keys(OTHER + 20))), "of a refused transaction"
    node.disk.free()
    for write in WRITES.values():
        once_there_is_room(lambda write=write: write(node.db))  # type: ignore[misc]
    assert all(node.db.lookup_rows("//full", keys(FULL + 20)))
    node.nobody_ended()


@pytest.mark.anyio
async def test_an_asyncio_client_also_raises_disk_full(node: Site) -> None:
    async with await aio.connect(node.cluster.master_url) as db:
        node.fill()
        with pytest.raises(DiskFull, match="node-0"):
            await db.insert_rows("//full", rows(FULL + 20))
        assert len(await db.lookup_rows("//full", keys(FULL))) == 10
        await db.insert_rows("//full", rows(OTHER))
    node.disk.free()


def test_a_node_starts_on_a_full_disk_to_be_read(node: Site) -> None:
    node.fill()
    status = node.cluster.processes["node 0"]
    assert status.pid is not None
    os.kill(status.pid, signal.SIGKILL)
    node.cluster.wait_until_ready("node 0", start_count=2)
    node.fill()  # whatever it gave back is taken by others
    node.reads_go_on()
    with pytest.raises(DiskFull):
        node.db.insert_rows("//full", rows(FULL + 20))
    node.disk.free()
    once_there_is_room(lambda: node.db.insert_rows("//full", rows(FULL + 20)))


def test_a_master_with_a_full_disk_refuses_tree_changes_and_rows_still_commit(master: Site) -> None:
    master.fill()
    with pytest.raises(DiskFull) as caught:
        master.db.create_table("//more", SCHEMA)
    assert str(master.disk.path) in str(caught.value)
    with Rest(master.cluster.gateway_urls[0]) as rest:
        answer = rest.send("create_directory", path="//more")
        assert (answer.status_code, answer.json()["kind"]) == (507, "disk_full")
    for _ in range(3):
        master.db.generate_timestamp()
        in_transaction(master.db, FULL, OTHER)
    master.reads_go_on()
    master.disk.free()
    once_there_is_room(lambda: master.db.create_table("//more", SCHEMA))
    with pytest.raises(DodonaError):
        master.db.create_table("//more", SCHEMA)
    master.nobody_ended()
