"""A node's page of what is prepared and undecided, over a real core."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dodona.types import CellId, Now
from dodona_tablets.core.node import NodeCore
from dodona_tablets.shell import doubt_page
from dodona_tablets.shell.doubt_page import add_doubt_page
from unit.tablets.cells import Bench, put

pytestmark = pytest.mark.anyio


async def page_of(core: NodeCore) -> Any:
    pages = FastAPI()
    add_doubt_page(pages, core)
    transport = httpx.ASGITransport(pages)
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as http:
        response = await http.get("/v1/in-doubt")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    return response.json()


async def test_the_page_lists_prepared_transactions_until_they_are_decided() -> None:
    bench = Bench(2)
    core = bench.nodes[CellId(1)]
    assert await page_of(core) == {"count": 0, "transactions": []}
    committed, younger, older = bench.begin(), bench.begin(), bench.begin()
    bench.commit_one(committed, put(1, 1), cell=1)
    bench.answer_oracle()
    for transaction, row in ((older, 2), (younger, 3)):
        bench.prepare(transaction, put(row, 2), cell=1)
        bench.answer_oracle()
    bench.prepare(bench.begin(), put(4, 2), cell=1)  # it has its locks, and no timestamp yet
    page = await page_of(core)
    assert page["count"] == 2
    assert [it["transaction"] for it in page["transactions"]] == sorted([older, younger])
    for it in page["transactions"]:
        assert (it["coordinator"], it["participants"]) == (0, [0, 1])
        assert it["prepare_timestamp"] > it["transaction"]
    bench.decide(older, None)
    bench.deliver()
    page = await page_of(core)
    assert older not in [it["transaction"] for it in page["transactions"]]


async def test_the_core_reports_the_age_of_a_transaction_in_doubt() -> None:
    bench = Bench(2)
    core = bench.nodes[CellId(1)]
    bench.prepare(bench.begin(), put(2, 2), cell=1)
    bench.answer_oracle()
    now = core.cell.now
    (found,) = core.in_doubt(Now(now.instant_us + 1_500_000, now.unix_us))
    assert found.age_ms >= 1500
    (found,) = core.in_doubt(Now(0, 0))
    assert found.age_ms == 0


async def test_the_page_lists_only_the_oldest_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt_page, "LISTED_MAX", 2)
    bench = Bench(2)
    begun = [bench.begin() for _ in range(3)]
    for row, transaction in enumerate(reversed(begun)):
        bench.prepare(transaction, put(row, 1), cell=1)
        bench.answer_oracle()
    page = await page_of(bench.nodes[CellId(1)])
    assert (page["count"], [it["transaction"] for it in page["transactions"]]) == (3, begun[:2])
