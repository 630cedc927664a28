"""Early locks through the asyncio API: lines, their ends, and functions that run again.

Owns: that the asyncio API does as the blocking one, whose promises are in test_early_locks.py. The
simulator has no event loop, so there are two back ends here.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dodona.aio
from conformance.locking import FAR, LONG_MS, keys
from conformance.tables import APART, PLAIN, refused
from dodona._core.writing import early_locks
from dodona.errors import InvalidRequest, RowBlocked

pytestmark = pytest.mark.anyio
WRITER_COUNT, STEP_COUNT = 8, 5


@pytest.fixture(params=["embedded", pytest.param("processes", marks=pytest.mark.integration)])
async def db(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dodona.aio.AsyncClient]:
    monkeypatch.setattr(early_locks, "LEASE_MS", LONG_MS)
    if request.param == "embedded":
        opened = dodona.aio.open(tmp_path / "db")
    else:
        opened = dodona.aio.connect(request.getfixturevalue("processes").url)
    async with await opened as client:
        yield client


@pytest.fixture
async def path(db: dodona.aio.AsyncClient, new_path: str) -> str:
    await db.create_table(new_path, PLAIN, pivot_keys=APART, mount=True)
    return new_path


async def is_free(db: dodona.aio.AsyncClient, path: str, key: int) -> bool:
    try:
        await (await db.begin(locks={path: keys(key)}, nowait=True)).abort()
    except RowBlocked:
        return False
    return True


async def wait_until(db: dodona.aio.AsyncClient, path: str, key: int, *, is_so: bool) -> None:
    async with asyncio.timeout(60):
        while await is_free(db, path, key) is not is_so:
            await asyncio.sleep(0.01)


async def test_owners_wait_in_order_and_read_the_newest_version(
    db: dodona.aio.AsyncClient, path: str
) -> None:
    found: list[list[int]] = []

    async def add(number: int) -> None:
        async with db.begin(locks={path: keys(1, number)}) as tx:
            rows = await tx.lookup_rows(path, keys(1))
            found.append([row["v"] for row in rows])
            await tx.insert_rows(path, [{"k": 1, "v": number}])

    tasks = []
    async with db.begin(locks={path: keys(1)}) as tx:
        for number in (10, 11, 12):
            tasks.append(asyncio.create_task(add(number)))
            await wait_until(db, path, number, is_so=False)
        await tx.insert_rows(path, [{"k": 1, "v": 9}])
    await asyncio.gather(*tasks)
    assert found == [[9], [10], [11]]


async def test_a_wait_ends_with_the_row_and_its_owner(
    db: dodona.aio.AsyncClient, path: str
) -> None:
    async with db.begin(locks={path: keys(FAR)}) as tx:
        owner = tx._buffer.locked.owner
        for how in ({"wait_ms": 50}, {"nowait": True}):
            with refused(RowBlocked, is_retryable=True, key={"k": FAR}, table=path, owner=owner):
                await db.begin(locks={path: keys(1, FAR)}, **how)
            await wait_until(db, path, 1, is_so=True)


async def test_free_rows_are_taken(db: dodona.aio.AsyncClient, path: str) -> None:
    wanted = {path: keys(1, 2, FAR)}
    async with db.begin(locks={path: keys(1)}), db.begin(locks=wanted, skip_locked=5) as tx:
        assert tx.locked_rows == {path: keys(2, FAR)}


@pytest.mark.parametrize("end", ["abort", "exception", "commit"])
async def test_the_end_of_a_transaction_releases_its_rows(
    db: dodona.aio.AsyncClient, path: str, end: str
) -> None:
    tx = await db.begin(locks={path: keys(1, FAR)})
    if end == "abort":
        await tx.abort()
    elif end == "commit":
        await tx.insert_rows(path, [{"k": 1, "v": 1}])
        await tx.commit()
    else:
        with pytest.raises(ZeroDivisionError):
            async with tx:
                raise ZeroDivisionError
    for key in (1, FAR):
        await wait_until(db, path, key, is_so=True)


async def test_a_task_that_is_cancelled_in_its_block_releases_its_rows(
    db: dodona.aio.AsyncClient, path: str
) -> None:
    is_begun = asyncio.Event()

    async def hold() -> None:
        async with db.begin(locks={path: keys(1)}):
            is_begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await is_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(db, path, 1, is_so=True)


async def test_a_counter_of_eight_tasks_loses_no_step(
    db: dodona.aio.AsyncClient, path: str
) -> None:
    await db.insert_rows(path, [{"k": 1, "v": 0}])

    async def step(tx: dodona.aio.AsyncTransaction) -> None:
        (row,) = await tx.lookup_rows(path, keys(1))
        await tx.insert_rows(path, [{"k": 1, "v": row["v"] + 1}])

    async def count() -> None:
        for _ in range(STEP_COUNT):
            await db.run_in_transaction(step)

    await asyncio.gather(*[count() for _ in range(WRITER_COUNT)])
    assert await db.lookup_rows(path, keys(1)) == [{"k": 1, "v": WRITER_COUNT * STEP_COUNT}]


async def test_arguments_that_mean_nothing_are_refused_at_the_call(
    db: dodona.aio.AsyncClient, path: str
) -> None:
    with pytest.raises(InvalidRequest, match="give locks, too"):
        db.begin(nowait=True)
    with pytest.raises(InvalidRequest, match="locks are a dict"):
        await db.begin(locks={})
