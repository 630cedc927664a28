"""Bulk loads of the asyncio client, from begin to end."""

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dodona
import dodona.aio
from dodona.types import Atomicity
from suite.waiting import until

pytestmark = pytest.mark.anyio

COLUMNS = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


def rows(*keys: int, value: int = 1) -> pa.Table:
    return pa.table({"k": keys, "v": [value] * len(keys)})


async def test_a_load_from_begin_to_end(tmp_path: Path) -> None:
    async with await dodona.aio.open(tmp_path / "db") as db:
        await db.create_table("//t", COLUMNS, mount=True)
        async with await db.loads.begin(["//t"], application="app", version=1) as load:
            ticket = pickle.loads(pickle.dumps(load.ticket))
            tasks = [db.loads.join(ticket).write("//t", rows(at), at) for at in range(5)]
            staged = [batch for done in await asyncio.gather(*tasks) for batch in done]
            assert len(await db.select("//t")) == 0
            published = await load.publish(staged)
        assert published.row_count == 5
        assert await load.publish(staged) == await load.abort() == published
        assert await db.loads.abort(load.id) == published
        assert [row["k"] for row in await db.select("//t")] == [*range(5)]
        async with await db.loads.begin(["//t"], application="app", version=1) as load:
            assert load.is_recorded
        (record,) = await db.loads.list_loads()
        assert (record.state, record.load) == ("finished", ticket.load)
        assert await db.loads.recover() == await db.loads.list_recoveries() == []


async def test_a_load_block_publishes_at_its_end_or_aborts_after_an_error(tmp_path: Path) -> None:
    async with await dodona.aio.open(tmp_path / "db") as db:
        await db.create_table("//t", COLUMNS, mount=True)
        await db.create_table("//none", COLUMNS, "none", mount=True)
        async with await db.loads.begin(["//t"]) as load:
            await load.write("//t", rows(1))

        async def fail() -> None:
            async with await db.loads.begin(["//t"]) as load:
                await load.write("//t", rows(2))
                raise ZeroDivisionError("of the user's")

        async def insert() -> None:
            async with await db.loads.begin(["//t"], mode="insert") as load:
                await load.write("//t", rows(1))

        with pytest.raises(ZeroDivisionError, match="of the user's"):
            await fail()
        with pytest.raises(dodona.DuplicateKey):
            await insert()
        assert [it.state for it in await db.loads.list_loads()] == [
            "finished",
            "aborted",
            "aborted",
        ]
        async with await db.loads.begin(["//none"], atomicity="none") as load:
            assert await load.write("//none", rows(1), durability="async") == []
        with pytest.raises(dodona.LoadEnded):
            await load.write("//none", rows(2))
        assert [len(await db.select(path)) for path in ("//t", "//none")] == [1, 1]


@pytest.mark.parametrize("atomicity", ["full", "none"])
async def test_a_load_publishes_writes_that_were_not_awaited(
    tmp_path: Path, atomicity: Atomicity
) -> None:
    """An empty load was published, its version recorded, and each later try skipped."""
    async with await dodona.aio.open(tmp_path / "db") as db:
        await db.create_table("//t", COLUMNS, atomicity, mount=True)
        load: Any
        async with await db.loads.begin(["//t"], atomicity=atomicity) as load:
            for at in range(3):
                load.write("//t", rows(at))
            await load.write("//t", rows(3))
        assert [row["k"] for row in await db.select("//t")] == [0, 1, 2, 3]


async def test_the_error_of_a_write_that_was_not_awaited_aborts_the_load(tmp_path: Path) -> None:
    async with await dodona.aio.open(tmp_path / "db") as db:
        await db.create_table("//t", COLUMNS, mount=True)

        async def load(data: Any) -> None:
            begun: Any
            async with await db.loads.begin(["//t"], application="app", version=1) as begun:
                begun.write("//t", data)
                await begun.write("//t", rows(1))

        for data, error in (
            (pa.table({"k": [2], "other": [2]}), dodona.SchemaViolation),
            (None, dodona.DodonaError),
        ):
            with pytest.raises(error):
                await load(data)
        assert {it.state for it in await db.loads.list_loads()} == {"aborted"}
        assert len(await db.select("//t")) == 0
        await load(rows(5))  # for its version is not taken
        assert [row["k"] for row in await db.select("//t")] == [1, 5]


async def test_a_write_that_is_cancelled_is_not_published(tmp_path: Path) -> None:
    """Whether it has begun or not: who asks for it again would write its keys twice."""
    async with await dodona.aio.open(tmp_path / "db") as db:
        await db.create_table("//t", COLUMNS, mount=True)
        async with await db.loads.begin(["//t"]) as load:
            for pauses in range(2):
                task = asyncio.create_task(load.write("//t", rows(1)))
                for _ in range(pauses):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await load.write("//t", rows(1, value=2))
        assert [row["v"] for row in await db.select("//t")] == [2]


async def test_an_abort_leaves_no_write_behind(tmp_path: Path) -> None:
    async with await dodona.aio.open(tmp_path / "db") as db:
        await db.create_table("//t", COLUMNS, mount=True)
        load: Any = await db.loads.begin(["//t"])
        before = asyncio.all_tasks()
        load.write("//t", pa.table({"k": [2], "other": [2]}))
        load.write("//t", rows(1))
        writes = asyncio.all_tasks() - before
        assert len(writes) == 2
        await load.abort()
        await until(lambda: all(it.done() for it in writes))
        assert len(await db.select("//t")) == 0


def test_asyncio_calls_may_be_made_before_the_event_loop_runs(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    db = loop.run_until_complete(dodona.aio.open(tmp_path / "db"))
    loop.run_until_complete(db.create_table("//t", COLUMNS, mount=True))
    load = loop.run_until_complete(db.loads.begin(["//t"]))
    loop.run_until_complete(load.write("//t", rows(1)))
    assert loop.run_until_complete(load.publish()).row_count == 1
    loop.run_until_complete(db.close())
    loop.close()
