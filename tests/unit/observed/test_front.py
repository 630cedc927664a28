"""What a server answers before its pages are made, while they are, and if they can't be."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dodona_server.answers import status_answer
from dodona_server.front import MAKING, Front
from dodona_server.lifecycle import Lifecycle
from suite.waiting import WAIT_S_MAX

Message = dict[str, Any]


@asynccontextmanager
async def no_lifespan() -> AsyncIterator[None]:
    yield


async def pages(scope: Any, receive: Any, send: Any) -> None:
    await status_answer(scope["path"]).send(send)


async def get(front: Front, path: str, method: str = "GET") -> tuple[int, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await front({"type": "http", "path": path, "method": method}, receive, send)
    head, body = sent
    return head["status"], body["body"]


def test_health_is_answered_while_pages_are_made_and_page_requests_wait() -> None:
    may_go_on = threading.Event()
    made: list[int] = []

    def make() -> Any:
        made.append(threading.get_ident())
        assert may_go_on.wait(WAIT_S_MAX)
        return pages

    reasons = ["waiting for the oracle"]
    front = Front(Lifecycle(lambda: reasons[0] if reasons else None), no_lifespan, make)

    async def ask() -> None:
        waiting = [asyncio.create_task(get(front, f"/v1/{name}")) for name in "ab"]
        assert (await get(front, "/healthz"))[0] == 200
        status, body = await get(front, "/readyz")
        assert (status, b"waiting for the oracle" in body) == (503, True)
        reasons.clear()
        assert await get(front, "/readyz") == (200, b'{"status":"ready"}')
        assert (await get(front, "/startupz"))[0] == 200
        assert not any(it.done() for it in waiting)
        may_go_on.set()
        assert [body for _, body in await asyncio.gather(*waiting)] == [
            b'{"status":"/v1/a"}',
            b'{"status":"/v1/b"}',
        ]
        assert (await get(front, "/healthz", "POST"))[1] == b'{"status":"/healthz"}'

    asyncio.run(ask())
    assert len(made) == 1
    assert made[0] != threading.get_ident(), "the loop goes on meanwhile"


def test_an_error_while_pages_are_made_is_reported_and_health_is_still_answered() -> None:
    def fail() -> Any:
        raise ImportError("secret insides")

    front = Front(Lifecycle(), no_lifespan, fail)

    async def ask() -> None:
        for _ in range(2):
            status, body = await get(front, "/v1/tables")
            assert (status, b"Its log shows the error" in body, b"secret" in body) == (
                500,
                True,
                False,
            )
        assert (await get(front, "/healthz"))[0] == 200

    asyncio.run(ask())


async def nothing() -> None:
    pass


async def live(front: Front, between: Callable[[], Awaitable[None]] = nothing) -> list[str]:
    """→ what the server is told between its start and its end."""
    told: list[str] = []
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Message:
        if told:
            await between()
        return {"type": next(messages)}

    async def send(message: Any) -> None:
        told.append(message["type"].removeprefix("lifespan."))

    await front({"type": "lifespan"}, receive, send)
    return told


def test_a_lifespan_is_entered_before_the_first_request_and_left_after_the_last() -> None:
    happened: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        happened.append("entered")
        yield
        happened.append("left")

    lifecycle = Lifecycle()
    front = Front(lifecycle, lifespan, lambda: pages)
    reasons: list[str | None] = []

    async def ask() -> None:
        reasons.append(lifecycle.why_not_ready())
        await get(front, "/v1/tables")
        reasons.append(lifecycle.why_not_ready())

    assert asyncio.run(live(front, ask)) == ["startup.complete", "shutdown.complete"]
    assert happened == ["entered", "left"]
    assert reasons == [MAKING, None], "ready is who has all pages"


def test_a_start_that_fails_ends_the_server() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise OSError("no")
        yield

    with pytest.raises(OSError, match="no"):
        asyncio.run(live(Front(Lifecycle(), lifespan, lambda: pages)))
