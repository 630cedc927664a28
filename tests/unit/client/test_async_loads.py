"""Bulk loads of the asyncio client, from begin to end."""

import asyncio
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import dodona
import dodona.aio

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


async def test_a_block_publishes_at_its_end_or_aborts(tmp_path: Path) -> None:
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
