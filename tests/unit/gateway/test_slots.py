"""Turns at heavy work: how many work at a time, who waits for whom, and who is refused."""

import asyncio

import pytest

from dodona.errors import Overloaded
from dodona_gateway.shell.slots import WAITING_PER_SLOT_MAX, Slots, Turns

pytestmark = pytest.mark.anyio


class Work:
    """Takes turns, and holds them until it is told to go on."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._done = asyncio.Event()
        self.working: list[str] = []
        self.most: dict[str, int] = {}

    async def take(self, table: str) -> None:
        async with self._turns.take(table):
            self.working.append(table)
            count = self.working.count(table)
            self.most[table] = max(count, self.most.get(table, 0))
            await self._done.wait()
            self.working.remove(table)

    def go_on(self) -> None:
        self._done.set()


async def until_all_wait() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_no_table_waits_for_another() -> None:
    turns = Turns(2)
    work = Work(turns)
    tasks = [asyncio.create_task(work.take("//silent")) for _ in range(500)]
    await until_all_wait()
    tasks.append(asyncio.create_task(work.take("//other")))
    await until_all_wait()
    assert work.working == ["//silent", "//silent", "//other"]
    work.go_on()
    await asyncio.gather(*tasks)
    assert work.most == {"//silent": 2, "//other": 1}


async def test_a_cancelled_caller_leaves_its_turn_to_the_next_caller_and_keeps_no_state() -> None:
    turns = Turns(1)
    work = Work(turns)
    working, waiting, last = (asyncio.create_task(work.take("//t")) for _ in range(3))
    await until_all_wait()
    for task in (waiting, working):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until_all_wait()
    assert not last.done()
    assert work.working == ["//t", "//t"], "the first was cut off in its turn"
    work.go_on()
    await last
    assert vars(turns)["_free"] == vars(turns)["_caller_counts"] == {}


async def test_slots_have_a_bounded_line() -> None:
    slots = Slots("queries", 1)
    go_on = asyncio.Event()

    async def take() -> None:
        async with slots.take():
            await go_on.wait()

    tasks = [asyncio.create_task(take()) for _ in range(1 + WAITING_PER_SLOT_MAX)]
    await until_all_wait()
    assert slots.statistics() == {"running": 1, "waiting": WAITING_PER_SLOT_MAX}
    with pytest.raises(Overloaded, match="runs 1 queries at a time"):
        await take()
    go_on.set()
    await asyncio.gather(*tasks)
    assert slots.statistics() == {"running": 0, "waiting": 0}
