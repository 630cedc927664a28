"""What a cell's start found undecided, and what it notes of it."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dodona.types import CellId
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.start import recovered
from dodona_tablets.core.start.recovered import Recovered
from dodona_tablets.shell import tablets_page
from dodona_tablets.shell.tablets_page import add_tablets_page
from unit.tablets.cells import ATOMIC, NON_ATOMIC, Bench, put

ZERO, ONE = CellId(0), CellId(1)


def outcomes(found: Recovered) -> list[Any]:
    return [(it.transaction, it.found, it.outcome) for it in found.transactions]


def test_a_first_start_finds_nothing_and_serves() -> None:
    bench = Bench(1)
    found = bench.nodes[ZERO].recovered
    assert (found.transaction_count, found.served_after_ms) == (0, None)
    bench.pass_time(0.1)
    assert found.served_after_ms is not None
    assert found.is_quiet


def test_a_recovered_prepared_transaction_is_tracked_until_its_outcome() -> None:
    bench = Bench(2)
    committed, aborted = bench.begin(), bench.begin()
    for transaction, row in ((committed, 1), (aborted, 2)):
        bench.prepare(transaction, put(row, 1), cell=1)
    bench.prepare(committed, put(1, 1), cell=0)
    bench.answer_oracle()
    bench.start(ONE)
    found = bench.nodes[ONE].recovered
    assert outcomes(found) == [(committed, "prepared", None), (aborted, "prepared", None)]
    assert not found.is_quiet
    assert found.transactions[0].participants == (ZERO, ONE)
    for _ in range(5):
        bench.pass_time(1)
        bench.settle()
    bench.pass_time(0.1)
    assert outcomes(found) == [
        (committed, "prepared", "committed"),
        (aborted, "prepared", "aborted"),
    ]
    assert found.is_quiet
    at = bench.nodes[ZERO].cell.commit_timestamp_of(committed)
    assert [it.timestamp for it in found.transactions] == [at, None]
    assert all(it.after_ms is not None and it.after_ms > 0 for it in found.transactions)


def test_a_recovered_commit_is_tracked_until_it_is_delivered() -> None:
    bench = Bench(2)
    transaction = bench.begin()
    for cell in (0, 1):
        bench.prepare(transaction, put(1, 1), cell=cell)
    bench.answer_oracle()
    bench.decide(transaction, bench.timestamp())
    bench.in_flight.clear()
    bench.start(ZERO)
    found = bench.nodes[ZERO].recovered
    assert outcomes(found) == [(transaction, "committed", None)]
    bench.pass_time(2)
    assert outcomes(found) == [(transaction, "committed", None)]
    bench.settle()
    bench.pass_time(0.1)
    assert outcomes(found) == [(transaction, "committed", "delivered")]


def test_only_the_first_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovered, "LISTED_MAX", 2)
    bench = Bench(2)
    begun = [bench.begin() for _ in range(3)]
    for row, transaction in enumerate(begun):
        bench.prepare(transaction, put(row, 1), cell=1)
    bench.answer_oracle()
    bench.start(ONE)
    found = bench.nodes[ONE].recovered
    assert (found.transaction_count, [it[0] for it in outcomes(found)]) == (3, begun[:2])


# ---- the tablets, one by one


async def page_of(core: NodeCore) -> Any:
    pages = FastAPI()
    add_tablets_page(pages, core)
    transport = httpx.ASGITransport(pages)
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as http:
        response = await http.get("/v1/tablets")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    return response.json()


@pytest.mark.anyio
async def test_the_page_lists_tablets_with_their_rows_chunks_memory_and_writers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(2)
    bench.commit(put(1, 1), put(2, 2))
    core = bench.nodes[ZERO]
    page = await page_of(core)
    atomic, other = page["tablets"]
    assert (page["count"], atomic["tablet"], other["tablet"]) == (2, ATOMIC, NON_ATOMIC)
    assert (atomic["table"], atomic["state"], atomic["rows"]) == ("//test/full", "mounted", 2)
    assert atomic["memory_bytes"] > 0
    assert (other["rows"], other["chunks"], other["chunk_bytes"]) == (0, 0, 0)
    bench.prepare(bench.begin(), put(3, 3), cell=0)
    assert (await page_of(core))["tablets"][0]["writers"] == 1
    monkeypatch.setattr(tablets_page, "LISTED_MAX", 1)
    page = await page_of(core)
    assert (page["count"], len(page["tablets"])) == (2, 1)


@pytest.mark.anyio
async def test_the_page_shows_a_tablet_that_is_no_longer_served_as_stored() -> None:
    bench = Bench(1)
    bench.assign(ZERO, [])
    states = [it["state"] for it in (await page_of(bench.nodes[ZERO]))["tablets"]]
    assert states == ["stored", "stored"]
