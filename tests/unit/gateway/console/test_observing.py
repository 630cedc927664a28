"""What is known of the cluster while servers come, go and say nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from dodona._core.loads.records import LOADS
from dodona.errors import NodeNotFound
from dodona.types import TIMESTAMP_COUNTER_BITS, CellId, Timestamp
from dodona_gateway.core.console.replicas import replica_lines
from dodona_gateway.shell.console import observing
from dodona_gateway.shell.console.asking import Asker
from dodona_gateway.shell.console.observing import Observer
from suite.waiting import until

pytestmark = pytest.mark.anyio

MASTER, PROXY, ZERO, ONE = "http://master", "http://proxy", "http://zero", "http://one"
CLUSTER: dict[str, Any] = {
    "proxies": [PROXY],
    "cells": [
        {"cell": 0, "address": ZERO, "is_alive": True, "tablet_count": 1},
        {"cell": 1, "address": ONE, "is_alive": True, "tablet_count": 1},
    ],
}
START = {"began_us": 1, "replay_ms": 2, "after": "crash", "of_tomorrow": 1}


class Servers:
    """What servers say, by address and path; an address that is `silent` says nothing."""

    def __init__(self) -> None:
        self.silent: list[str] = []
        self.request_count = 0
        self.pages: dict[tuple[str, str], Any] = {(MASTER, "/v1/cluster"): CLUSTER}
        for place in (MASTER, PROXY, ZERO, ONE):
            self.pages[place, "/readyz"] = {"status": "ready"}
            self.pages[place, "/v1/recoveries"] = {"recoveries": [START]}
        self.pages[MASTER, "/v1/statistics"] = {"master": {"timestamp_count": 10}}
        for place in (ZERO, ONE):
            tablet = {"tablet": 7, "table": "//t", "state": "mounted"}
            self.pages[place, "/v1/statistics"] = {"cell": {"rows": 5}}
            self.pages[place, "/v1/tablets"] = {"count": 1, "tablets": [tablet]}
            self.pages[place, "/v1/in-doubt"] = {"count": 0, "transactions": []}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.request_count += 1
        place = f"{request.url.scheme}://{request.url.host}"
        if place in self.silent:
            raise httpx.ConnectError("refused")
        page = self.pages.get((place, request.url.path))
        if page is None:
            return httpx.Response(404, json={})
        return page if isinstance(page, httpx.Response) else httpx.Response(200, json=page)


class Settings:
    master_url = MASTER
    cluster_key = None


class Service:
    """As much of a gateway's as an observer uses: the tables of loads, by their paths."""

    settings = Settings()

    def __init__(self) -> None:
        self.client = self.session = self
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.reads: list[int] = []

    async def generate_timestamp(self) -> Timestamp:
        return Timestamp(10_000_000 << TIMESTAMP_COUNTER_BITS)

    def first_rows(self, path: str, count: int, bytes_max: int, lower: list[int]) -> Any:
        def read() -> Any:
            self.reads.append(lower[0])
            if path not in self.rows:
                raise NodeNotFound("there is no such table")
            found = [it for it in self.rows[path] if it["load"] >= lower[0]]
            return (found[:count], found[count]["load"] if len(found) > count else None), 0

        return read

    async def run(self, read: Callable[[], Any]) -> Any:
        return read()


@asynccontextmanager
async def observer_of(servers: Callable[..., Any]) -> AsyncIterator[Observer]:
    service: Any = Service()
    observer = Observer(service)
    observer._asker = Asker(None, httpx.MockTransport(servers))
    observer._replica_asker = Asker(None, httpx.MockTransport(servers))
    try:
        yield observer
    finally:
        await observer.close()


async def test_servers_are_found_by_the_master_and_asked_for_their_counts() -> None:
    servers = Servers()
    servers.pages[ONE, "/readyz"] = httpx.Response(503, json={"detail": "waiting for the oracle"})
    async with observer_of(servers) as observer:
        reported = await observer.cluster.get()
        assert reported is not None
        states = [(it.kind, it.cell, it.state, it.reason) for it in reported.servers]
        assert states == [
            ("master", None, "ready", ""),
            ("proxy", None, "ready", ""),
            ("cell", 0, "ready", ""),
            ("cell", 1, "waiting", "waiting for the oracle"),
        ]
        assert reported.servers[1].statistics is None  # that proxy has no such page
        assert (reported.problem, len(observer.history)) == ("", 0)


async def test_the_last_reports_stay_while_servers_are_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observing, "FRESH_S", -1)
    servers = Servers()
    async with observer_of(servers) as observer:
        assert len(await observer.starts.get() or []) == 3
        before = await observer.tablets.get() or {}
        assert sorted(before) == [0, 1]
        servers.silent = [MASTER, ONE]
        reported = await observer.cluster.get()
        assert reported is not None
        assert reported.problem == "refused"
        assert [it.state for it in reported.servers] == ["silent", "ready", "ready", "silent"]
        starts = await observer.starts.get()
        assert starts is not None
        assert [(it.server.name, it.server.state) for it in starts] == [
            ("master", "silent"),
            ("cell 0", "ready"),
            ("cell 1", "silent"),
        ]
        after = await observer.tablets.get() or {}
        assert sorted(after) == [0, 1]
        assert after[CellId(0)].reported_us > before[CellId(0)].reported_us
        assert after[CellId(1)] == before[CellId(1)], "with the time when it was told"
        assert sorted(await observer.doubts.get() or {}) == [CellId(0)]
        assert len(observer.history) >= 1


async def test_a_new_cell_is_asked_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever asks for the cluster and for what its cells have at the same time."""
    monkeypatch.setattr(observing, "FRESH_S", -1)
    servers = Servers()
    servers.pages[MASTER, "/v1/cluster"] = {}
    async with observer_of(servers) as observer:
        await observer.cluster.get()
        servers.pages[MASTER, "/v1/cluster"] = CLUSTER
        _, tablets, starts = await asyncio.gather(
            observer.cluster.get(), observer.tablets.get(), observer.starts.get()
        )
        assert sorted(tablets or {}) == [0, 1]
        assert len(starts or ()) == 3


async def test_a_cell_that_the_master_does_not_hear_is_lost() -> None:
    servers = Servers()
    zero, one = CLUSTER["cells"]
    cells = [zero, {**one, "is_alive": False}]
    servers.pages[MASTER, "/v1/cluster"] = {**CLUSTER, "cells": cells}
    async with observer_of(servers) as observer:
        reported = await observer.cluster.get()
        assert reported is not None
        assert (reported.servers[3].state, reported.servers[3].reason) == (
            "lost",
            "the master does not hear from it",
        )


async def test_the_observer_samples_rarely_unless_a_page_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observing, "LOOKED_S", 0.001)
    monkeypatch.setattr(observing, "IDLE_S", 3600.0)
    servers = Servers()
    async with observer_of(servers) as observer:
        task = asyncio.create_task(observer.run())
        first = await until(lambda: observer.cluster.value)
        await asyncio.sleep(0.05)  # a look that is not to come is seen if it comes by then
        assert observer.cluster.value is first
        observer.note_look()
        await until(lambda: observer.cluster.value is not first)
        task.cancel()
        await asyncio.wait([task])


# ---- loads


def load(age_s: int, now: int) -> dict[str, Any]:
    began = now - (age_s << TIMESTAMP_COUNTER_BITS)
    fields = {"state": "finished", "tables": ["//t"], "mode": "upsert", "owner": "", "lease_ms": 1}
    nothing = ("application", "version", "row_count", "deleted_count", "commit_timestamp", "reason")
    return {"load": began, **fields, **dict.fromkeys(nothing)}


@pytest.mark.parametrize(
    ("ages_s", "shown", "is_cut", "read_count"),
    [
        ([], 0, False, 6),
        ([20 * 86_400, 5_000, 10], 3, False, 6),
        ([*range(20 * 86_400, 20 * 86_400 - 150, -1), 10], 1, True, 6),
        ([*range(500, 0, -1)], 60, True, 3),
        ([1] * 500, 100, True, 1),
    ],
)
async def test_the_newest_loads_are_found_without_reading_all(
    ages_s: list[int], shown: int, is_cut: bool, read_count: int
) -> None:
    service: Any = Service()
    now = await service.generate_timestamp()
    service.rows[LOADS] = [load(it, now) for it in ages_s]
    observer = Observer(service)
    reported = await observer.loads.get()
    assert reported is not None
    assert (len(reported.loads), reported.is_cut, reported.recoveries) == (shown, is_cut, ())
    assert len(service.reads) == read_count + 1  # and there never was a recovery
    assert [it.load for it in reported.loads] == sorted(
        [it.load for it in reported.loads], reverse=True
    )
    await observer.close()


async def test_repeated_calls_within_the_fresh_time_ask_no_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observing, "FRESH_S", 3600)
    servers = Servers()
    async with observer_of(servers) as observer:
        await observer.cluster.get()
        asked_count = servers.request_count
        assert asked_count == 9  # the master for who there is, and of each two pages
        for _ in range(50):
            assert await observer.cluster.get() is not None
        assert servers.request_count == asked_count


async def test_a_silent_master_is_waited_for_once() -> None:
    """Both of its questions are under way before either is answered."""
    servers, asked = Servers(), set()
    both = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "master" and request.url.path != "/v1/statistics":
            asked.add(request.url.path)
            if len(asked) == 2:
                both.set()
            await both.wait()
        return servers(request)

    async with observer_of(answer) as observer:
        reported = await observer.cluster.get()
        assert reported is not None
        assert (reported.problem, len(reported.servers)) == ("", 4)


REPLICAS = ["http://here", "http://full", "http://away"]


def copied(servers: Servers) -> None:
    """Let the logs of both cells have copies."""
    states = [{"address": it, "role": "member", "replica": it[-4:]} for it in REPLICAS]
    states.append({"address": "0123", "role": "member", "replica": "0123"})
    for place in (ZERO, ONE):
        copies = {"epoch": 3, "wanted_count": 3, "copies_min": 2, "replicas": states}
        servers.pages[place, "/v1/statistics"] = {"cell": {"rows": 5}, "copies": copies}
    for place in REPLICAS:
        servers.pages[place, "/readyz"] = {"status": "ready"}
        counts = {"log_count": 2, "is_full": place == "http://full"}
        servers.pages[place, "/v1/statistics"] = {"replica": counts}
    servers.silent = ["http://away"]


async def test_the_replicas_that_cells_name_are_asked_from_the_next_look_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observing, "FRESH_S", -1)
    servers = Servers()
    copied(servers)
    async with observer_of(servers) as observer:
        first, second = await observer.cluster.get(), await observer.cluster.get()
        assert first is not None
        assert second is not None
        assert first.of("replica") == ()
        found = [(it.address, it.state, it.reason) for it in second.of("replica")]
        assert found == [
            ("http://here", "ready", ""),
            ("http://full", "waiting", "it has no space for new entries"),
            ("http://away", "silent", "refused"),
        ]
        lines = replica_lines(second)
        assert [it.member_of for it in lines] == [(0, 1)] * 3
        assert {it.server.kind for it in await observer.starts.get() or []} == {"master", "cell"}
        servers.silent += [ZERO, ONE]
        third = await observer.cluster.get()
        assert third is not None
        assert len(third.of("replica")) == 3, "although no cell names them now"
