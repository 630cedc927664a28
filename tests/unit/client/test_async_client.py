"""The asyncio client over real sockets: the twin of what `test_clients` tries."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona._core.protocol.routing import Routing
from dodona._io.drivers import AsyncioDriver
from dodona._io.sessions import new_session
from dodona.errors import InvalidRequest, TransactionConflict
from dodona_wire.messages.data import CommitOne, Lookup, Prepare
from unit.client.cluster import (
    CONFLICT,
    HANG,
    PATH,
    SCHEMA,
    FakeCluster,
    account,
    lose_commits,
    refuse_once,
)
from unit.client.protocols import key


@pytest.mark.anyio
async def test_the_twin_does_the_same(cluster: FakeCluster) -> None:
    async with await dodona.aio.connect(cluster.url) as db:
        await db.create_table(PATH, SCHEMA, pivot_keys=[[], [100]], mount=True)
        async with db.begin() as tx:
            await tx.insert_rows(PATH, [account(1), account(200)])
        assert tx.commit_timestamp is not None
        tx = await db.begin()
        assert await tx.lookup_rows(PATH, [{"id": 1}]) == [account(1)]
        await tx.delete_rows(PATH, [{"id": 200}])
        assert len(await tx.select(PATH)) == 2
        await tx.commit()
        assert await db.select(PATH) == [account(1)]
        assert await db.lookup_rows(PATH, [{"id": 200}]) == []
        assert (await db.outcome(tx.id)).state == "committed"  # type: ignore[arg-type]
        assert await db.insert_rows(PATH, [account(5)]) is not None
        assert await db.delete_rows(PATH, [{"id": 5}]) is not None
        assert await db.list_tables() == [PATH]
        assert (await db.get_table(PATH)).is_mounted
        assert len((await db.get_cluster()).proxies) == 1
        await db.remove_table(PATH)
        assert cluster.url in repr(db)
        assert "committed" in repr(tx)


@pytest.mark.anyio
async def test_the_asyncio_client_locks_aggregates_and_reads_its_own_writes(
    cluster: FakeCluster,
) -> None:
    async with await dodona.aio.connect(cluster.url) as db:
        summed = [SCHEMA[0], {**SCHEMA[1], "aggregate": "sum"}]
        await db.create_table(PATH, summed, mount=True)
        seen: list[Any] = []
        cluster.cell_answers = seen.append
        async with db.begin(read_own_writes=True) as tx:
            await tx.insert_rows(PATH, [account(1, 5)], aggregate=True, lock_type="shared_write")
            await tx.lock_rows(PATH, [{"id": 2}], lock_type="shared_weak")
            assert await tx.select(PATH) == [account(1, 5)]
            assert await tx.lookup_rows(PATH, [{"id": 1}]) == [account(1, 5)]
            assert await tx.lookup_versions(PATH, [{"id": 1}]) == []
        await db.insert_rows(PATH, [account(3, 7)], aggregate=True)
        (first,), (second,) = [it.modifications for it in seen if isinstance(it, CommitOne)]
        assert first.special == {key(1): (1, 1)}
        assert [lock.lock_type for lock in first.locks] == ["shared_weak"]
        assert second.special == {key(3): (1, 0)}
        (history,) = await db.lookup_versions(PATH, [{"id": 1}])
        assert history.key == {"id": 1}
        beginning = db.begin(read_own_writes=True)
        assert (await beginning).id != (await beginning).id  # each time it is another


@pytest.mark.anyio
async def test_the_embedded_twin_reads_arrow_in_a_transaction(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        await db.create_table(PATH, SCHEMA, mount=True)
        await db.insert_rows(PATH, [account(1)])
        async with db.begin(read_own_writes=True) as tx:
            await tx.insert_rows(PATH, [account(2)])
            assert (await tx.read_arrow(PATH)).to_pylist() == [account(1), account(2)]
            assert (await db.read_arrow(PATH)).to_pylist() == [account(1)]


@pytest.mark.anyio
async def test_an_exception_aborts_the_twin_too(cluster: FakeCluster) -> None:
    async with await dodona.aio.connect(cluster.url) as db:
        await db.create_table(PATH, SCHEMA)
        tx = await db.begin()

        async def fail() -> None:
            async with tx:
                await tx.insert_rows(PATH, [account(1)])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert tx.state is dodona.TransactionState.ABORTED
        assert await db.select(PATH) == []


@pytest.mark.anyio
async def test_many_tasks_share_frames(cluster: FakeCluster) -> None:
    async with await dodona.aio.connect(cluster.url) as db:
        timestamps = await asyncio.gather(*[db.generate_timestamp() for _ in range(500)])
        assert len(set(timestamps)) == 500
        await db.create_table(PATH, SCHEMA, pivot_keys=[[], [100]])
        frames_before = len(cluster.cells[0].frame_sizes)
        await asyncio.gather(*[db.insert_rows(PATH, [account(it)]) for it in range(100)])
        assert len(cluster.cells[0].frame_sizes) - frames_before <= 5
        assert len(await db.select(PATH)) == 100


@pytest.mark.anyio
async def test_the_twin_reruns_and_finds_out(cluster: FakeCluster) -> None:
    async with await dodona.aio.connect(cluster.url) as db:
        await db.create_table(PATH, SCHEMA)
        attempts: list[int] = []

        async def transfer(tx: dodona.aio.AsyncTransaction) -> int:
            attempts.append(1)
            await tx.insert_rows(PATH, [account(1)])
            return len(attempts)

        cluster.cell_answers = refuse_once(CommitOne)
        assert await db.run_in_transaction(transfer) == 2
        lose_commits(cluster, 1, is_applied=True)
        assert await db.run_in_transaction(transfer) == 3


@pytest.mark.anyio
async def test_a_refused_prepare_ends_a_commit_while_another_cell_hangs(
    cluster: FakeCluster,
) -> None:
    def answers(body: Any) -> Any:
        if isinstance(body, Prepare):
            if any(part.tablet == 0 for part in body.modifications):
                return HANG
            return CONFLICT
        return None

    async with await dodona.aio.connect(cluster.url) as db:
        await db.create_table(PATH, SCHEMA, pivot_keys=[[], [100]])
        cluster.cell_answers = answers
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TransactionConflict):
            async with db.begin() as tx:
                await tx.insert_rows(PATH, [account(1), account(100)])
        assert loop.time() - began < 5


@pytest.mark.anyio
async def test_a_cancelled_call_leaves_the_client_usable(cluster: FakeCluster) -> None:
    async with await dodona.aio.connect(cluster.url) as db:
        await db.create_table(PATH, SCHEMA)
        cluster.cell_answers = lambda body: HANG if isinstance(body, Lookup) else None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await db.lookup_rows(PATH, [{"id": 1}])
        cluster.cell_answers = lambda body: None
        assert await db.lookup_rows(PATH, [{"id": 1}]) == []


@pytest.mark.anyio
async def test_a_closed_asyncio_client_refuses_calls(cluster: FakeCluster) -> None:
    db = await dodona.aio.connect(cluster.url)
    await db.close()
    await db.close()
    with pytest.raises(InvalidRequest, match="closed"):
        await db.list_tables()
    with pytest.raises(InvalidRequest, match="closed"):
        await db.generate_timestamp()
    with pytest.raises(InvalidRequest, match="closed"):
        await db.begin()


def test_a_client_of_another_loop_is_refused(cluster: FakeCluster) -> None:
    async def make() -> AsyncioDriver:
        return AsyncioDriver(cluster.url, Routing())

    async def use(driver: AsyncioDriver) -> None:
        await driver.run(new_session().catalog.list_tables())

    with pytest.raises(InvalidRequest, match="another event loop"):
        asyncio.run(use(asyncio.run(make())))
