"""The copies of logs over REST: what nodes say, and which nodes say nothing."""

from typing import Any

import httpx
import msgspec
import pytest

from dodona.errors import Forbidden
from dodona.types import CellId
from dodona_gateway.core import requests
from dodona_gateway.core.access.grants import Grant
from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.examples import EXAMPLES
from dodona_gateway.shell.console.asking import Asker
from dodona_gateway.shell.rest import copies
from dodona_gateway.shell.routes import Call
from dodona_wire.messages.catalog import Cell, Cluster

pytestmark = pytest.mark.anyio

EXAMPLE = EXAMPLES["get_copies"].answer["logs"][0]
REPORT: dict[str, Any] = {
    "log": "cell-0",
    "owner": EXAMPLE["owner"],
    "epoch": 4,
    "is_serving": True,
    "wanted_count": 3,
    "copies_min": 2,
    "coordinator_silent_us": 840_123,
    "replicas": [
        {
            "address": it["address"],
            "replica": it["replica"],
            "role": it["role"],
            "silent_us": 1_000 * it["silent_ms"] + 7,
        }
        for it in EXAMPLE["replicas"]
    ],
}
PAGES: dict[str, Any] = {
    "http://zero": {"cell": {}, "copies": REPORT},
    "http://one": {"cell": {}},
}


class Service:
    """As much of a gateway's as the handler uses."""

    class settings:  # noqa: N801 - it stands for an object
        cluster_key = None

    def __init__(self, cells: list[Cell]) -> None:
        self.client = self
        self.cells = cells

    async def get_cluster(self) -> Cluster:
        return Cluster((), tuple(self.cells))


def cell(number: int, address: str) -> Cell:
    return Cell(CellId(number), address, True, 1)


async def asked(
    monkeypatch: pytest.MonkeyPatch, principal: Principal, *cells: Cell
) -> dict[str, Any]:
    def answer(request: httpx.Request) -> httpx.Response:
        page = PAGES.get(f"http://{request.url.host}")
        if page is None:
            raise httpx.ConnectError("refused")
        assert request.url.path == "/v1/statistics"
        return httpx.Response(200, json=page)

    monkeypatch.setattr(copies, "Asker", lambda key: Asker(key, httpx.MockTransport(answer)))
    service: Any = Service(list(cells))
    call = Call(service, principal, "json", "", None)  # type: ignore[arg-type]  # no stream
    answer_of = await copies.get_copies(call, requests.Nothing())
    found: dict[str, Any] = msgspec.to_builtins(answer_of)
    return found


def reader(*grants: str) -> Principal:
    return Principal("ann", "0" * 16, tuple(Grant.parse(it) for it in grants))


async def test_the_example_is_what_a_gateway_makes_of_the_report_of_a_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = await asked(
        monkeypatch, reader("read://t"), cell(0, "http://zero"), cell(1, "http://one")
    )
    assert found == EXAMPLES["get_copies"].answer


async def test_cells_that_say_nothing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = cell(0, "http://zero"), cell(1, "http://gone"), cell(2, "")
    found = await asked(monkeypatch, reader("read:/"), *cells)
    assert [it["cell"] for it in found["logs"]] == [0]
    assert found["silent_cells"] == [1, 2]


async def test_a_caller_needs_a_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Forbidden):
        await asked(monkeypatch, reader(), cell(0, "http://zero"))
