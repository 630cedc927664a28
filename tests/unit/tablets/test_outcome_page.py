"""A node's page about a transaction, over a real core: good ids and nonsense."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dodona.types import MAX_TIMESTAMP, CellId, Timestamp
from dodona_server.process import read_clock
from dodona_server.runtime import Runtime
from dodona_tablets.core.node import NodeCore
from dodona_tablets.shell.outcome_page import add_outcome_page
from dodona_wire.cores.effects import AskTimestamps, SendHeartbeat, SendToCell
from unit.tablets.cells import SECOND, Bench, put

pytestmark = pytest.mark.anyio


ELSEWHERE = (AskTimestamps, SendToCell, SendHeartbeat)


class NoLog:
    """Nothing is to be made durable by looking."""

    def append(self, records: Any) -> None:
        raise AssertionError(records)


@asynccontextmanager
async def pages_of(core: NodeCore) -> AsyncIterator[httpx.AsyncClient]:
    """The core's application, without a socket."""
    core.tick(read_clock())
    core.take_effects()
    runtime = Runtime(core, NoLog(), dict.fromkeys(ELSEWHERE, lambda _: None))
    pages = FastAPI()
    add_outcome_page(pages, runtime)
    runtime.start()
    transport = httpx.ASGITransport(pages)
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as http:
        yield http
    await runtime.close()


def page(transaction: int, state: str, **known: int) -> dict[str, Any]:
    return {
        "transaction": transaction,
        "state": state,
        "timestamp": None,
        "coordinator": None,
        **known,
    }


async def test_the_page_shows_each_state_of_a_transaction() -> None:
    bench = Bench(2)
    old = bench.begin()
    bench.oracle += 61 * SECOND
    committed = bench.begin()
    route = bench.commit_one(committed, put(1, 1))
    bench.answer_oracle()
    prepared, unheard = bench.begin(), bench.begin()
    bench.prepare(prepared, put(2, 2), cell=0)
    bench.answer_oracle()
    at = bench.answer(route).timestamp  # type: ignore[union-attr]
    forgotten = Timestamp(5)
    core = bench.nodes[CellId(0)]
    core.cell.outcomes.raise_watermark(forgotten)
    async with pages_of(core) as http:
        for transaction, expected in (
            (committed, page(committed, "committed", timestamp=at)),
            (old, page(old, "aborted")),
            (prepared, page(prepared, "pending", coordinator=0)),
            (unheard, page(unheard, "pending")),
            (forgotten, page(forgotten, "unknown")),
        ):
            for _ in range(2):
                response = await http.get(f"/v1/transactions/{transaction}")
                assert (response.status_code, response.json()) == (200, expected)
                assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "nonsense",
    ["0", "-1", "x", "1.5", "0x10", "%20", "1/2", "", "٣", "9" * 5000, str(MAX_TIMESTAMP + 1)],
)
async def test_nonsense_is_a_problem(nonsense: str) -> None:
    async with pages_of(Bench().nodes[CellId(0)]) as http:
        response = await http.get(f"/v1/transactions/{nonsense}")
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.json()["kind"], response.json()["status"]) == ("invalid_request", 400)


async def test_a_cell_that_is_starting_is_a_problem() -> None:
    core = Bench().nodes[CellId(0)]
    core.cell.fence = Timestamp(0)
    async with pages_of(core) as http:
        response = await http.get("/v1/transactions/5")
    assert response.status_code == 503
    assert response.json()["kind"] == "unavailable"
