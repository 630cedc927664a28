"""Asking servers: whatever they say or don't, a page waits for none of them for long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from dodona.errors import Unavailable
from dodona_gateway.core.console.server_pages import StatisticsPage
from dodona_gateway.shell.console import asking, cached
from dodona_gateway.shell.console.asking import Asker
from dodona_gateway.shell.console.cached import Cached
from dodona_wire.net.cluster_key import ClusterKey
from suite.waiting import WAIT_S_MAX

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def asker_of(answer: Any, key: ClusterKey | None = None) -> AsyncIterator[Asker]:
    """One whose servers are a function of the request."""
    asker = Asker(key, httpx.MockTransport(answer))
    try:
        yield asker
    finally:
        await asker.close()


async def test_the_console_reads_the_readiness_and_counters_of_a_server() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/readyz":
            problem = {"detail": "waiting for the oracle", "status": 503}
            return httpx.Response(503, json=problem, headers={"server": "dodona/0.1.0"})
        reported = {
            "cell": {"commits": {"blind": {"committed": 7}}, "of_tomorrow": {}},
            "log_bytes": 5,
        }
        return httpx.Response(200, json=reported)

    async with asker_of(answer) as asker:
        ready = await asker.readiness("http://node")
        assert (ready.reason, ready.version) == ("waiting for the oracle", "0.1.0")
        page = await asker.page("http://node", "/v1/statistics", StatisticsPage)
        assert page.cell is not None
        assert (page.cell.decided("committed"), page.log_bytes, page.master) == (7, 5, None)


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (404, b"{}", "status 404"),
        (500, b"\xff", "status 500"),
        (503, b'{"detail": "it starts"}', "it starts"),
        (200, b"{", "can't be decoded"),
        (200, b'{"log_bytes": "x"}', "can't be decoded"),
        (200, b" " * 200, "more than 100 bytes"),
    ],
)
async def test_an_unusable_answer_of_a_server_is_reported_with_the_reason(
    status: int, content: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ANSWER_BYTES_MAX", 100)
    async with asker_of(lambda _: httpx.Response(status, content=content)) as asker:
        with pytest.raises(Unavailable, match=said):
            await asker.page("http://node", "/v1/statistics", StatisticsPage)


async def test_asking_many_servers_returns_only_the_answers_that_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "TIMEOUT_S", 0.05)
    under_way = most = 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            if request.url.host == "silent":
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            if request.url.host == "down":
                raise httpx.ConnectError("refused")
            return httpx.Response(200, json={"log_bytes": 1})
        finally:
            under_way -= 1

    addresses = [(number, f"http://node{number}") for number in range(60)]
    addresses += [(100, "http://silent"), (101, "http://down")]
    async with asker_of(answer) as asker:
        found = await asker.pages(addresses, "/v1/statistics", StatisticsPage)
    assert sorted(found) == [*range(60)]
    assert most <= asking.AT_A_TIME_MAX


async def test_256_silent_servers_cost_no_more_than_one() -> None:
    """Sixteen were asked at a time, for two seconds each: a page waited for half a minute."""
    under_way, all_asked = 0, asyncio.Event()

    async def answer(_: httpx.Request) -> httpx.Response:
        nonlocal under_way
        under_way += 1
        if under_way == 256:
            all_asked.set()
        async with asyncio.timeout(WAIT_S_MAX):
            await all_asked.wait()
        return httpx.Response(200, json={"log_bytes": 1})

    addresses = [(number, f"http://node{number}") for number in range(256)]
    async with asker_of(answer) as asker:
        found = await asker.pages(addresses, "/v1/statistics", StatisticsPage)
    assert len(found) == 256


async def test_a_server_whose_turn_does_not_come_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "AT_A_TIME_MAX", 2)
    monkeypatch.setattr(asking, "TURN_S_MAX", 0.02)
    monkeypatch.setattr(asking, "TIMEOUT_S", WAIT_S_MAX)
    asked: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        await asyncio.Event().wait()
        raise AssertionError("it is silent")

    async with asker_of(answer) as asker:
        waiting = [asyncio.create_task(asker.readiness(f"http://silent{it}")) for it in range(2)]
        async with asyncio.timeout(WAIT_S_MAX):
            while len(asked) < 2:
                await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="not asked: 2 other servers did not answer"):
            await asker.readiness("http://third")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert sorted(asked) == ["silent0", "silent1"]


async def test_the_cluster_s_key_is_shown() -> None:
    key = ClusterKey("a key of 16 signs")
    shown: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        shown.append(request.headers.get("authorization"))
        return httpx.Response(200, json={})

    async with asker_of(answer, key) as asker:
        await asker.page("http://node", "/v1/statistics", StatisticsPage)
    assert shown == [key.authorization()]


# ---- what is found out once for all


async def test_concurrent_callers_share_one_lookup_of_a_cached_value() -> None:
    looks = 0

    async def find() -> int:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)
        return looks

    known = Cached(find, fresh_s=60)
    assert await asyncio.gather(*[known.get() for _ in range(5)]) == [1] * 5
    assert await known.get() == 1
    assert Cached(find, fresh_s=60).age_s is None


async def test_a_slow_lookup_returns_the_last_known_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cached, "WAIT_S", 0.01)
    monkeypatch.setattr(cached, "LONG_WAIT_S", 0.01)
    may_end = asyncio.Event()
    found = 1

    async def find() -> int:
        await may_end.wait()
        return found

    known = Cached(find, fresh_s=0)
    assert await known.get() is None
    may_end.set()
    assert await known.get() == 1
    may_end.clear()
    found = 2
    assert await known.get() == 1
    may_end.set()
    assert await known.get() == 2
    await known.close()


async def test_a_failed_lookup_keeps_the_cached_value() -> None:
    answers: list[Any] = [1, Unavailable("the master is away"), ZeroDivisionError(), 2]

    async def find() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    known = Cached(find, fresh_s=-1)
    assert await known.get() == 1
    assert await known.get() == 1
    assert known.problem is not None
    assert known.problem.message == "the master is away"
    assert await known.get() == 1
    assert await known.get() == 2
    assert known.problem is None


async def test_no_caller_waits_long_again_after_a_failed_or_slow_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it failed or only took long, and whether there is a value to go by or none."""
    monkeypatch.setattr(cached, "WAIT_S", 0.01)
    monkeypatch.setattr(cached, "OLD_S", -1)

    for known_first in (True, False):
        answers: list[Any] = [1] if known_first else []
        answers.append(Unavailable("the master is away"))

        async def find(answers: list[Any] = answers) -> Any:
            if not answers:
                await asyncio.Event().wait()
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        known = Cached(find, fresh_s=-1)
        monkeypatch.setattr(cached, "LONG_WAIT_S", 86_400)
        async with asyncio.timeout(WAIT_S_MAX):
            for _ in range(4):
                assert await known.get() == (1 if known_first else None)
        await known.close()

        monkeypatch.setattr(cached, "LONG_WAIT_S", 0.01)
        hanging = Cached(find, fresh_s=-1)
        assert await hanging.get() is None
        monkeypatch.setattr(cached, "LONG_WAIT_S", 86_400)
        async with asyncio.timeout(WAIT_S_MAX):
            assert await hanging.get() is None
        await hanging.close()


async def test_a_cached_value_reports_its_age_only_when_the_value_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def find() -> int:
        return 1

    known = Cached(find, fresh_s=60)
    assert known.old_ms is None
    await known.get()
    assert known.old_ms is None
    monkeypatch.setattr(cached, "OLD_S", -1)
    assert known.old_ms is not None
