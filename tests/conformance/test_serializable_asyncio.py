"""Serializable transactions through the asyncio API.

Owns: that the asyncio API does as the blocking one, whose promises are in test_serializable.py. The
simulator has no event loop, so there are two back ends here.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dodona.aio
from conformance.tables import APART, PLAIN, refused
from dodona.errors import TransactionConflict
from dodona.types import Isolation

pytestmark = pytest.mark.anyio
NEAR, FAR = 1, 150


@pytest.fixture(params=["embedded", pytest.param("processes", marks=pytest.mark.integration)])
async def db(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[dodona.aio.AsyncClient]:
    if request.param == "embedded":
        opened = dodona.aio.open(tmp_path / "db", isolation="serializable")
    else:
        url = request.getfixturevalue("processes").url
        opened = dodona.aio.connect(url, isolation="serializable")
    async with await opened as client:
        yield client


@pytest.fixture
async def path(db: dodona.aio.AsyncClient, new_path: str) -> str:
    await db.create_table(new_path, PLAIN, pivot_keys=APART, mount=True)
    return new_path


async def select(tx: dodona.aio.AsyncTransaction, path: str) -> object:
    return await tx.select(path)


async def read_arrow(tx: dodona.aio.AsyncTransaction, path: str) -> object:
    return await tx.read_arrow(path)


async def look_up(tx: dodona.aio.AsyncTransaction, path: str) -> object:
    return await tx.lookup_rows(path, [{"k": NEAR}, {"k": FAR}])


async def look_up_versions(tx: dodona.aio.AsyncTransaction, path: str) -> object:
    return await tx.lookup_versions(path, [{"k": NEAR}, {"k": FAR}])


async def query(tx: dodona.aio.AsyncTransaction, path: str) -> object:
    return await tx.query(f"select count(*) from [{path}]")


READS = [select, read_arrow, look_up, look_up_versions, query]


@pytest.mark.parametrize("isolation", ["snapshot", "serializable", None])
@pytest.mark.parametrize("read", READS, ids=lambda it: it.__name__)
async def test_phantoms_are_refused_unless_the_transaction_asks_for_a_snapshot(
    read: Callable[[dodona.aio.AsyncTransaction, str], Awaitable[object]],
    isolation: Isolation | None,
    db: dodona.aio.AsyncClient,
    path: str,
) -> None:
    one, two = await db.begin(isolation=isolation), await db.begin(isolation=isolation)
    for tx, own in ((one, NEAR), (two, FAR)):
        await read(tx, path)
        await tx.insert_rows(path, [{"k": own, "v": 1}])
    await one.commit()
    if isolation == "snapshot":
        await two.commit()
        return
    with refused(TransactionConflict, is_retryable=True, table=path):
        await two.commit()


async def test_a_function_runs_again_until_what_it_read_is_unchanged(
    db: dodona.aio.AsyncClient, path: str
) -> None:
    seen: list[Any] = []

    async def copy(tx: dodona.aio.AsyncTransaction) -> None:
        found = await tx.lookup_rows(path, [{"k": FAR}])
        seen.append(len(found))
        if len(seen) == 1:
            await db.insert_rows(path, [{"k": FAR, "v": 7}])
        await tx.insert_rows(path, [{"k": NEAR, "v": sum(it["v"] for it in found)}])

    await db.run_in_transaction(copy)
    assert seen == [0, 1]
    assert await db.lookup_rows(path, [{"k": NEAR}]) == [{"k": NEAR, "v": 7}]
