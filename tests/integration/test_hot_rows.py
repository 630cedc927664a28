"""Writes without a transaction, of few rows by many clients, while the cells are killed.

Owns: the proof that each acknowledged write is there at its commit timestamp, by reading the table
as of just that timestamp, and that none of them was refused because somebody was faster.
"""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

import dodona.aio
from dodona.errors import CommitOutcomeUnknown, DodonaError, Unavailable
from dodona_local.launcher import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(300)]

PATH = "//hot/rows"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "writer", "type": "int64"},
    {"name": "number", "type": "int64"},
]
HOT_ROWS = (0, 1, 100, 101)
"""Two on each node."""
WRITERS = 16
WRITES = 60


class Writer:
    """Writes one row after the other, each with a value of its own."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """Commit timestamp → row, number of the write."""
        self.unsure_count = 0
        self.may_end = asyncio.Event()

    async def run(self, db: "dodona.aio.AsyncClient") -> None:
        for number in itertools.count():
            if number >= WRITES and self.may_end.is_set():
                return
            row = HOT_ROWS[(self.number + number) % len(HOT_ROWS)]
            try:
                at = await db.insert_rows(
                    PATH, [{"id": row, "writer": self.number, "number": number}]
                )
            except (CommitOutcomeUnknown, Unavailable):
                self.unsure_count += 1
            else:
                assert at is not None
                assert all(at > before for before in self.acknowledged)
                self.acknowledged[at] = (row, number)
            await asyncio.sleep(0.02)


async def test_each_acknowledged_write_is_visible_at_its_commit_timestamp(tmp_path: Path) -> None:
    writers = [Writer(number) for number in range(WRITERS)]
    with LocalCluster(tmp_path / "cluster") as cluster:
        clients = [await dodona.aio.connect(cluster.master_url) for _ in range(3)]
        await clients[0].create_table(PATH, schema=SCHEMA, pivot_keys=[[], [100]], mount=True)
        async with asyncio.TaskGroup() as running:
            tasks = [
                running.create_task(writer.run(clients[writer.number % len(clients)]))
                for writer in writers
            ]
            for name in ("node 0", "node 1"):
                await asyncio.sleep(0.3)
                assert not any(task.done() for task in tasks), "nobody writes any more"
                cluster.kill(name)
                await asyncio.to_thread(cluster.wait_until_ready, name, start_count=2)
            for writer in writers:
                writer.may_end.set()
        for writer in writers:
            await check(clients[0], writer)
        for client in clients:
            await client.close()
    stamps = [at for writer in writers for at in writer.acknowledged]
    assert len(set(stamps)) == len(stamps)
    assert len(stamps) > WRITERS * WRITES // 2


async def check(db: "dodona.aio.AsyncClient", writer: Writer) -> None:
    for at, (row, number) in writer.acknowledged.items():
        found = await db.lookup_rows(PATH, [{"id": row}], timestamp=dodona.types.Timestamp(at))
        assert found == [{"id": row, "writer": writer.number, "number": number}]


async def test_an_ordinary_transaction_does_not_overlook_a_blind_write(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", node_count=1) as cluster:
        async with await dodona.aio.connect(cluster.master_url) as db:
            await db.create_table(PATH, schema=SCHEMA, mount=True)
            await db.insert_rows(PATH, [{"id": 0, "number": 0}])
            transaction = await db.begin()
            await transaction.lookup_rows(PATH, [{"id": 0}])
            await db.insert_rows(PATH, [{"id": 0, "number": 1}])
            await transaction.insert_rows(PATH, [{"id": 0, "number": 2}])
            with pytest.raises(DodonaError, match="written by a concurrent transaction") as caught:
                await transaction.commit()
            assert caught.value.is_retryable
            assert [it["number"] for it in await db.lookup_rows(PATH, [{"id": 0}])] == [1]


ROUNDS = 6
COUNTERS = (0, 100)
"""On both nodes: each increment is a commit in two cells."""


async def test_all_writers_of_a_hot_counter_succeed(tmp_path: Path) -> None:
    """Of 64 writers of one row, 11 % gave up. Callers of both clients, each counted just once."""
    with LocalCluster(tmp_path / "cluster") as cluster:
        async with await dodona.aio.connect(cluster.master_url) as db:
            await db.create_table(PATH, schema=SCHEMA, pivot_keys=[[], [100]], mount=True)
            await db.insert_rows(PATH, [{"id": it, "number": 0} for it in COUNTERS])
            with dodona.connect(cluster.master_url) as blocking:
                async with asyncio.TaskGroup() as running:
                    for _ in range(WRITERS // 2):
                        running.create_task(count_up(db))
                        running.create_task(asyncio.to_thread(count_up_blocking, blocking))
            rows = await db.lookup_rows(PATH, [{"id": it} for it in COUNTERS])
            assert [row["number"] for row in rows] == [WRITERS * ROUNDS] * len(COUNTERS)


async def count_up(db: "dodona.aio.AsyncClient") -> None:
    async def increment(tx: "dodona.aio.AsyncTransaction") -> None:
        rows = await tx.lookup_rows(PATH, [{"id": it} for it in COUNTERS])
        await tx.insert_rows(PATH, [{**row, "number": row["number"] + 1} for row in rows])

    for _ in range(ROUNDS):
        await db.run_in_transaction(increment)


def count_up_blocking(db: dodona.Client) -> None:
    def increment(tx: dodona.Transaction) -> None:
        rows = tx.lookup_rows(PATH, [{"id": it} for it in COUNTERS])
        tx.insert_rows(PATH, [{**row, "number": row["number"] + 1} for row in rows])

    for _ in range(ROUNDS):
        db.run_in_transaction(increment)
