"""Calls of the asyncio client that are cancelled anywhere: the next call works, rows that are
written together come together, and what was acknowledged is there. Of a cluster and embedded.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dodona.aio
from dodona.aio import AsyncClient
from dodona_local.launcher import LocalCluster
from suite.waiting import WAIT_S_MAX

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
KEYS = [{"id": 1}, {"id": 100}]
STEPS = 12
"""Cancelled after so many turns of the event loop, and after as many longer and longer times."""
STEP_S = 0.0004
Call = Callable[[AsyncClient, str, int], Awaitable[Any]]


def both(number: int) -> list[dict[str, int]]:
    return [{**key, "v": number} for key in KEYS]


async def commit(db: AsyncClient, path: str, number: int) -> None:
    async with await db.begin() as tx:
        await tx.lookup_rows(path, KEYS)
        await tx.insert_rows(path, both(number))


async def rerun(db: AsyncClient, path: str, number: int) -> None:
    await db.run_in_transaction(lambda tx: tx.insert_rows(path, both(number)))


async def load(db: AsyncClient, path: str, number: int) -> None:
    async with await db.loads.begin([path]) as it:
        await it.write(path, pa.Table.from_pylist(both(number)))


async def select(db: AsyncClient, path: str, _: int) -> None:
    assert len(list(await db.select(path))) == len(KEYS)


async def hold(db: AsyncClient, path: str, _: int) -> None:
    async with await db.hold_snapshot([path]) as snapshot:
        assert [batch async for batch in snapshot.read_batches(path)]


CALLS: dict[str, Call] = {
    "insert": lambda db, path, number: db.insert_rows(path, both(number)),
    "commit": commit,
    "rerun": rerun,
    "load": load,
    "lookup": lambda db, path, _: db.lookup_rows(path, KEYS),
    "select": select,
    "query": lambda db, path, _: db.query(f"select sum(v) from [{path}]"),
    "hold": hold,
}
WRITES = {"insert", "commit", "rerun", "load"}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("place", ["cluster", "embedded"])
async def test_a_call_may_be_cancelled_anywhere(
    cluster: LocalCluster, tmp_path: Path, place: str, name: str
) -> None:
    path = f"//cancelled/{name}"
    opening = dodona.aio.connect(cluster.master_url)
    if place == "embedded":
        opening.close()
        opening = dodona.aio.open(tmp_path / "db")
    async with await opening as db:
        await db.create_table(path, SCHEMA, pivot_keys=[[], [50]], mount=True)
        await db.insert_rows(path, both(0))
        cancelled_count = 0
        for number in range(1, 2 * STEPS + 1):
            before = await value(db, path)
            is_over = await is_done(CALLS[name](db, path, number), number)
            cancelled_count += not is_over
            after = await value(db, path)
            if name not in WRITES:
                assert after == before
            else:
                assert after in ({number} if is_over else {before, number})
        assert cancelled_count > 0, "nothing was cancelled"


async def value(db: AsyncClient, path: str) -> int:
    async with asyncio.timeout(WAIT_S_MAX):
        first, second = await db.lookup_rows(path, KEYS)
    assert first["v"] == second["v"]
    return int(first["v"])


async def is_done(call: Awaitable[Any], step: int) -> bool:
    """Cancel it at that step. → whether it had ended before."""
    task = asyncio.ensure_future(call)
    for _ in range(min(step, STEPS)):
        await asyncio.sleep(0)
    if step > STEPS:
        await asyncio.sleep((step - STEPS) * STEP_S)
    task.cancel()
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            await task
    except asyncio.CancelledError:
        return False
    return True
