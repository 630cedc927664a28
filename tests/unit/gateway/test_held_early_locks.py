"""Transactions with early locks, as a gateway holds them: whatever ends one releases its rows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

import dodona.aio
from dodona.aio import AsyncClient
from dodona.errors import InvalidRequest, Overloaded, RowBlocked, TransactionConflict
from dodona_gateway.core.holdings import HoldingLimits
from dodona_gateway.shell import transactions
from dodona_gateway.shell.transactions import EarlyLocks, Transactions
from suite.waiting import until
from unit.client.cluster import PATH, SCHEMA, account

pytestmark = pytest.mark.anyio
ANN: Final = "ann"
LOCKS: Final = EarlyLocks({PATH: [{"id": 1}, {"id": 2}]}, nowait=True)


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with await dodona.aio.open(str(tmp_path / "data")) as client:
        await client.create_table(PATH, SCHEMA, mount=True)
        yield client


def held_by(client: AsyncClient, **limits: int) -> Transactions:
    return Transactions(client, 5, HoldingLimits(**limits))


async def begin(held: Transactions, locks: EarlyLocks = LOCKS) -> str:
    text, _ = await held.begin(ANN, "full", "sync", False, 1_000, locks=locks)
    return text


async def is_free(held: Transactions) -> bool:
    try:
        await held.abort(await begin(held), ANN)
    except RowBlocked:
        return False
    return True


async def wait_until_free(held: Transactions) -> None:
    async with asyncio.timeout(60):
        while not await is_free(held):
            await asyncio.sleep(0)


async def commit(held: Transactions, text: str) -> None:
    async with held.use(text, ANN) as tx:
        await tx.insert_rows(PATH, [account(1)])
    await held.commit(text, ANN)


async def commit_nothing(held: Transactions, text: str) -> None:
    await held.commit(text, ANN)


async def abort(held: Transactions, text: str) -> None:
    await held.abort(text, ANN)


async def lose(held: Transactions, text: str) -> None:
    await held._client.insert_rows(PATH, [account(3)])
    async with held.use(text, ANN) as tx:
        await tx.insert_rows(PATH, [account(3)])
    with pytest.raises(TransactionConflict):
        await held.commit(text, ANN)


@pytest.mark.parametrize("end", [abort, commit, commit_nothing, lose])
async def test_the_end_of_a_held_transaction_releases_its_rows(
    db: AsyncClient, end: Callable[[Transactions, str], Awaitable[None]]
) -> None:
    held = held_by(db)
    text, begun = await held.begin(ANN, "full", "sync", False, 60_000, locks=LOCKS)
    assert begun.locked_rows == LOCKS.rows
    assert not await is_free(held)
    await end(held, text)
    await wait_until_free(held)


async def test_the_end_of_its_lease_releases_its_rows(
    db: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_us = 0
    monkeypatch.setattr(transactions, "_now_us", lambda: now_us)
    held = held_by(db)
    task = asyncio.create_task(held.run())
    await begin(held)
    now_us += 2_000_000
    await until(lambda: held.open_count == 0)
    await wait_until_free(held)
    await until(lambda: not held._aborts)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_transaction_without_room_releases_its_rows(db: AsyncClient) -> None:
    held = held_by(db, open_per_owner_max=1)
    full, waits = await begin(held, EarlyLocks()), False
    real = held._holdings.check_room

    def check_room(owner: str) -> None:
        """There is room at first. Another transaction begins meanwhile."""
        nonlocal waits
        if waits:
            real(owner)
        waits = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held._holdings, "check_room", check_room)
        with pytest.raises(Overloaded, match="your limit"):
            await begin(held)
    await held.abort(full, ANN)
    await wait_until_free(held)


@pytest.mark.parametrize(
    ("locks", "error"),
    [
        (LOCKS, RowBlocked),
        (LOCKS._replace(nowait=False, wait_ms=20), RowBlocked),
        (EarlyLocks(nowait=True), InvalidRequest),
        (LOCKS._replace(skip_locked=1), InvalidRequest),
    ],
)
async def test_a_refused_begin_holds_nothing(
    db: AsyncClient, locks: EarlyLocks, error: type[Exception]
) -> None:
    held = held_by(db)
    await begin(held)
    with pytest.raises(error):
        await begin(held, locks)
    assert held.open_count == 1


async def test_free_rows_are_taken(db: AsyncClient) -> None:
    held = held_by(db)
    await begin(held)
    wanted: Any = {PATH: [{"id": it} for it in range(5)]}
    locks = EarlyLocks(wanted, skip_locked=2)
    _, begun = await held.begin(ANN, "full", "sync", False, 60_000, locks=locks)
    assert begun.locked_rows == {PATH: [{"id": 0}, {"id": 3}]}
