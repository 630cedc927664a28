"""The edge: who gets through to a pretended application, and by which id a request is known."""

from typing import Any

import pytest

from dodona.errors import Unavailable
from dodona_gateway.core.access.principal import ANYBODY, Principal
from dodona_gateway.shell.edge import OPEN_PATHS, Edge
from dodona_gateway.shell.gateway import refusal
from unit.gateway.exchanges import TOKEN, Exchange, Limits, answer, edge_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_nothing_behind_it_runs_for_somebody_unknown() -> None:
    ran: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        ran.append(scope["path"])
        await answer(scope, receive, send)

    edge = edge_of(application)
    for headers in ([], [(b"authorization", b"Bearer bad")], [(b"authorization", b"\xff")]):
        refused = await Exchange(b"body").go(edge, "/v1/x", *headers)
        assert refused.status == 401
        assert refused.problem["kind"] == "unauthenticated"
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.headers["connection"] == "close"  # the body was not read
    assert ran == []
    assert (await Exchange().go(edge, "/v1/x", TOKEN)).status == 200
    assert ran == ["/v1/x"]


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
async def test_a_few_pages_are_open_to_all(path: str) -> None:
    assert (await Exchange().go(edge_of(answer), path)).status == 200


async def test_the_principal_is_there_for_the_routes() -> None:
    seen: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["state"]["principal"])
        await answer(scope, receive, send)

    await Exchange().go(edge_of(application), "/v1/x", TOKEN)
    assert seen == [ANYBODY]


async def test_tokens_that_can_t_be_looked_up_are_no_401() -> None:
    async def fail(text: str | None) -> Principal:
        raise Unavailable("tokens can't be looked up")

    edge = Edge(answer, fail, Limits(), lambda scope: False, refusal=refusal, is_local=False)
    refused = await Exchange().go(edge)
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("host", "origin", "is_let_in"),
    [
        (b"127.0.0.1:8502", None, True),
        (b"localhost:8502", None, True),
        (b"LocalHost", None, True),
        (b"[::1]:8502", None, True),
        (b"127.0.0.1:8502", b"http://127.0.0.1:8502", True),
        (b"localhost:8502", b"http://LOCALHOST:8502", True),
        (b"localhost", b"https://localhost", True),
        (b"localhost:8502", b"http://localhost:3000", False),
        (b"localhost:8502", b"http://127.0.0.1:8502", False),
        (b"localhost:8502", b"http://evil.example", False),
        (b"localhost:8502", b"null", False),
        (b"localhost:8502", b"", False),
        (b"localhost:8502", b"http://[", False),
        (b"evil.example", None, False),
        (b"localhost.evil.example", None, False),
        (b"127.0.0.1.evil.example", None, False),
        (b"evil.example:127", None, False),
        (b"10.0.0.1", None, False),
        (b"0.0.0.0", None, False),
        (b"evil.example@127.0.0.1", b"http://evil.example", False),
        (b"127.0.0.1@evil.example", None, False),
        (b"[::1", None, False),
        (b"[", None, False),
        (b"\xff", None, False),
        (b"", None, False),
    ],
)
async def test_without_tokens_it_is_for_this_machine_only(
    host: bytes, origin: bytes | None, is_let_in: bool
) -> None:
    edge = Edge(
        answer,
        lambda text: _anybody(),
        Limits(),
        lambda scope: False,
        refusal=refusal,
        is_local=True,
    )
    headers = [(b"host", host)] + ([] if origin is None else [(b"origin", origin)])
    exchange = await Exchange().go(edge, "/v1/x", *headers)
    assert exchange.status == (200 if is_let_in else 403)
    if not is_let_in:
        assert exchange.problem["kind"] == "forbidden"


async def _anybody() -> Principal:
    return ANYBODY


async def test_with_tokens_any_name_will_do() -> None:
    exchange = await Exchange().go(edge_of(answer), "/v1/x", (b"host", b"db.example"), TOKEN)
    assert exchange.status == 200


async def test_what_is_no_request_passes() -> None:
    seen: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    await edge_of(application)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen == [{"type": "lifespan"}]


# ---- ids


@pytest.mark.parametrize("given", [b"abc", b"A-b_c.d:9", b"x" * 64])
async def test_a_request_keeps_the_id_that_it_came_with(given: bytes) -> None:
    for headers in ([TOKEN], []):
        exchange = await Exchange().go(edge_of(answer), "/v1/x", (b"x-request-id", given), *headers)
        assert exchange.headers["x-request-id"] == given.decode()


@pytest.mark.parametrize("given", [None, b"", b"x" * 65, b"a b", b"a\xff", b"<script>", b"a\r\nb"])
async def test_or_it_gets_one_of_its_own(given: bytes | None) -> None:
    headers = [] if given is None else [(b"x-request-id", given)]
    seen: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["state"]["request_id"])
        await answer(scope, receive, send)

    edge = edge_of(application)
    ids = [
        (await Exchange().go(edge, "/v1/x", TOKEN, *headers)).headers["x-request-id"]
        for _ in range(3)
    ]
    assert ids == seen
    assert len(set(ids)) == 3
    assert all(len(it) == 16 for it in ids)
