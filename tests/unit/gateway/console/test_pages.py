"""The pages' own code, without a cluster: what they wait for, what they leave open, and where they
lead that have no page."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dodona.errors import Forbidden, NodeNotFound, Unavailable
from dodona.types import CellId, Timestamp, TransactionId
from dodona_gateway.core.access.grants import parse_grants
from dodona_gateway.core.access.principal import ANYBODY, Principal
from dodona_gateway.core.console.server_pages import (
    CellCounts,
    Doubt,
    DoubtPage,
    OpenTransaction,
    ReportedCluster,
    Server,
    StatisticsPage,
)
from dodona_gateway.shell.console import cluster_pages, patience, table_pages
from dodona_gateway.shell.console.console import Console
from dodona_gateway.shell.console.rendering import POLICY
from dodona_gateway.shell.console.visits import Visit

pytestmark = pytest.mark.anyio

ZERO, ONE = CellId(0), CellId(1)
COUNTS = StatisticsPage(cell=CellCounts(tablets=3))
CELLS = (
    Server("cell", "a", "ready", cell=ZERO, statistics=COUNTS),
    Server("cell", "b", "ready", cell=ONE),
)
REPORTED = ReportedCluster(0, (Server("master", "m", "ready"), *CELLS))
UNHEARD = ReportedCluster(0, (Server("master", "m", "silent"),), "no answer within 2 s")
DOUBT = Doubt(TransactionId(7), ZERO, (ZERO, ONE), Timestamp(9), 1_500)


class Known:
    """As `Cached`: answers once all that are expected have been asked."""

    problem = None

    def __init__(self, value: Any, asked: Callable[[], None], may_go_on: asyncio.Event) -> None:
        self._value = value
        self._asked = asked
        self._may_go_on = may_go_on
        self.old_ms: int | None = None

    async def get(self) -> Any:
        self._asked()
        await self._may_go_on.wait()
        return self._value


class Observer:
    """Whoever asks for one thing after the other waits for ever."""

    history = type("History", (), {"points": lambda *_: [], "last": lambda *_: None})()

    def __init__(self, expected: int, **values: Any) -> None:
        self._left = expected
        self._all = asyncio.Event()
        for name in ("cluster", "tablets", "doubts", "starts", "transactions", "loads"):
            setattr(self, name, Known(values.get(name), self._note, self._all))

    def _note(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._all.set()

    def note_look(self) -> None:
        pass


class Held:
    open_count = 0

    def held(self, owner: str | None) -> list[Any]:
        return []


class Client:
    """The master says nothing."""

    async def wait(self, *_: Any) -> Any:
        await asyncio.Event().wait()

    list_tables = get_table = get = list = generate_timestamp = wait


class Service:
    settings = type("Settings", (), {"address": "http://g"})()
    transactions = Held()
    client = Client()

    async def schema(self, path: str) -> Any:
        await asyncio.Event().wait()


def visit_of(observer: Any, principal: Principal = ANYBODY, **parameters: str) -> Visit:
    service: Any = Service()
    request: Any = type("Request", (), {"query_params": parameters})()
    return Visit(service, observer, principal, request)


async def text_of(show: Any, visit: Visit) -> str:
    async with asyncio.timeout(10):
        return bytes((await show(visit)).body).decode()


@pytest.mark.parametrize(
    ("show", "count"),
    [
        (cluster_pages.show_cluster, 3),
        (cluster_pages.show_transactions, 4),
        (cluster_pages.show_recoveries, 3),
    ],
)
async def test_a_page_asks_for_all_its_data_in_parallel(show: Any, count: int) -> None:
    assert "not reached yet" in await text_of(show, visit_of(Observer(count)))
    nobody = Principal("eve", "0" * 16, ())
    with pytest.raises(Forbidden):
        await show(visit_of(Observer(count), nobody))


async def test_an_incomplete_figure_shows_the_number_of_its_cells() -> None:
    doubts = {ZERO: DoubtPage(1, (DOUBT,))}
    shown = await text_of(
        cluster_pages.show_cluster, visit_of(Observer(3, cluster=REPORTED, doubts=doubts))
    )
    assert shown.count("from 1 of 2 cells") == 6
    assert "1 <small>over 1 s" in shown
    doubts[ONE] = DoubtPage(1, (DOUBT,))
    shown = await text_of(
        cluster_pages.show_cluster, visit_of(Observer(3, cluster=REPORTED, doubts=doubts))
    )
    assert shown.count("from 1 of 2 cells") == 5
    assert "1 <small>over 1 s" in shown, "prepared in two cells, and one transaction"


async def test_unknown_transactions_are_not_shown_as_none() -> None:
    show = cluster_pages.show_transactions
    for reported, doubts in ((REPORTED, None), (UNHEARD, {})):
        shown = await text_of(show, visit_of(Observer(4, cluster=reported, doubts=doubts)))
        assert "transactions in doubt are not known" in shown
        assert "open transactions are not known" in shown
    observer = Observer(4, cluster=REPORTED, doubts={ZERO: DoubtPage()}, transactions=())
    shown = await text_of(show, visit_of(observer))
    assert "cell 1</a>: " in shown
    assert "does not report its transactions in doubt" in shown
    assert "None in the cells that answer." in shown
    assert "None is open" in shown


async def test_a_page_reports_transactions_beyond_the_listed_ones() -> None:
    opened = [OpenTransaction(it, 0, "", 1, 1) for it in range(103)]
    doubts = {it: DoubtPage(5_000, (DOUBT,)) for it in (ZERO, ONE)}
    observer = Observer(4, cluster=REPORTED, doubts=doubts, transactions=opened)
    shown = await text_of(cluster_pages.show_transactions, visit_of(observer))
    assert "at least 1</span>" in shown
    assert ">103</span>" in shown
    assert "And 3 more." in shown


async def test_titles_are_for_administrators() -> None:
    opened = [OpenTransaction(1, 0, "secret title", 1, 1)]
    observer = Observer(4, cluster=REPORTED, doubts={}, transactions=opened)
    reader = Principal("ann", "0" * 16, parse_grants(["read:/"]))
    shown = await text_of(cluster_pages.show_transactions, visit_of(observer, reader))
    assert "secret title" not in shown
    assert "administrators of everything" in shown


@pytest.mark.parametrize(
    "show", [table_pages.show_tables, table_pages.show_table, table_pages.show_rows]
)
async def test_a_page_does_not_wait_long_for_a_silent_master(
    show: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 0.01)
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable, match="does not answer"):
            await show(visit_of(Observer(1), path="//t"))


# ---- addresses


@pytest.fixture
async def browser() -> AsyncIterator[httpx.AsyncClient]:
    """At a console behind no edge, by somebody who may do everything."""
    service: Any = Service()
    console, application = Console(lambda: service), FastAPI()
    console._observer = Observer(0)  # type: ignore[assignment]
    application.router.redirect_slashes = False
    console.add_pages(application)

    async def known(scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = {"principal": ANYBODY}
        await application(scope, receive, send)

    transport = httpx.ASGITransport(known)
    async with httpx.AsyncClient(transport=transport, base_url="http://g") as client:
        yield client


async def test_the_console_path_with_a_trailing_slash_redirects(browser: httpx.AsyncClient) -> None:
    answer = await browser.get("/console/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")
    assert answer.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/console/table/"),
        ("GET", "/console/nonsense/deep"),
        ("GET", "/console/static/other.js"),
        ("GET", "/console/parts/none"),
        ("POST", "/console/tables"),
        ("DELETE", "/console/query"),
    ],
)
async def test_an_unknown_console_path_is_reported_on_a_page(
    method: str, path: str, browser: httpx.AsyncClient
) -> None:
    answer = await browser.request(method, path)
    assert answer.status_code == NodeNotFound.status
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == POLICY
    assert f"no page {path}" in answer.text
    assert ('href="/console/transactions"' in answer.text) == ("/parts/" not in path)


async def test_pages_that_are_there_are_found_before_those_that_are_not(
    browser: httpx.AsyncClient,
) -> None:
    for path in ("/console", "/console/transactions", "/console/static/console.css"):
        assert (await browser.get(path)).status_code == 200
