"""The writer and the reader of a cell count what is lost, and what is stale."""

import asyncio
from typing import Any, cast

import pytest

from dodona.aio import AsyncClient
from dodona_loadtest.chaos import pulses
from dodona_loadtest.chaos.pulses import Pulse
from dodona_wire.errors import Unavailable
from suite.waiting import WAIT_S_MAX

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Cell:
    """A cell with its rows. It forgets rows of these keys, or acknowledges none of them."""

    def __init__(self, forgets: set[int] = set(), refuses: set[int] = set()) -> None:  # noqa: B006
        self.rows: set[int] = set()
        self.looked = 0
        self._forgets, self._refuses = forgets, refuses

    async def insert_rows(self, _: str, rows: list[dict[str, int]], timeout_ms: int) -> None:
        (key,) = [it["k"] for it in rows]
        if key in self._refuses:
            raise Unavailable("no owner")
        if key not in self._forgets:
            self.rows.add(key)

    async def lookup_rows(self, _: str, keys: list[dict[str, int]], timeout_ms: int) -> list[Any]:
        self.looked += 1
        return [it for it in keys if it["k"] in self.rows]


def pulse() -> Pulse:
    return Pulse("//p", 0, 100)


async def beat(it: Pulse, cell: Cell, count: int) -> None:
    """Let the writer and the reader run until so many rows are acknowledged and looked up."""
    db = cast(AsyncClient, cell)
    tasks = [asyncio.create_task(work(db)) for work in (it.write, it.read)]
    async with asyncio.timeout(WAIT_S_MAX):
        while len(it.acknowledged) < count or cell.looked < count:
            await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_rows_of_a_sound_cell_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulses, "PAUSE_S", 0)
    it, cell = pulse(), Cell(refuses={101, 103})
    await beat(it, cell, 5)
    assert [key for _, key in it.acknowledged[:5]] == [100, 102, 104, 105, 106]
    assert (it.stale_count, await it.lost_count(cast(AsyncClient, cell))) == (0, 0)


async def test_a_row_that_was_acknowledged_and_is_gone_is_stale_and_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulses, "PAUSE_S", 0)
    monkeypatch.setattr(pulses, "KEYS_PER_LOOKUP", 2)
    forgotten = {101, *range(103, 1_000)}
    it, cell = pulse(), Cell(forgets=forgotten)
    await beat(it, cell, 5)
    assert it.stale_count > 0
    count = len(it.acknowledged)
    assert await it.lost_count(cast(AsyncClient, cell)) == count - 2
    assert await it.lost_count(cast(AsyncClient, cell)) == 0, "each row is counted once"
    cell.rows.remove(100)
    assert await it.lost_count(cast(AsyncClient, cell)) == 1, "a row may be lost later"
