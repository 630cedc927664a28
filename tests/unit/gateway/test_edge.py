"""The edge, before a pretended application: who gets through, for how long, and what is said."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import pytest

from dodona.errors import DodonaError, InvalidRequest, Unavailable
from dodona_gateway.core.access.principal import ANYBODY, Principal
from dodona_gateway.shell.edge import BROKEN_OFF, OPEN_PATHS
from suite.waiting import until
from unit.gateway.exchange import (
    BODY,
    FOREVER,
    START,
    TOKEN,
    Exchange,
    answer,
    edge_of,
    read_all,
)

pytestmark = pytest.mark.anyio


# ---- who gets through


async def test_the_edge_passes_no_request_without_a_valid_token() -> None:
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

    edge = edge_of(answer, authenticate=fail)
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
async def test_the_edge_without_tokens_accepts_only_local_hosts_and_same_origins(
    host: bytes, origin: bytes | None, is_let_in: bool
) -> None:
    edge = edge_of(answer, is_local=True, authenticate=lambda text: _anybody())
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


async def test_the_edge_passes_lifespan_events_unchanged() -> None:
    seen: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    await edge_of(application)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen == [{"type": "lifespan"}]


# ---- ids


@pytest.mark.parametrize("given", [b"abc", b"A-b_c.d:9", b"x" * 64])
async def test_a_valid_request_id_of_the_caller_is_kept(given: bytes) -> None:
    for headers in ([TOKEN], []):
        exchange = await Exchange().go(edge_of(answer), "/v1/x", (b"x-request-id", given), *headers)
        assert exchange.headers["x-request-id"] == given.decode()


@pytest.mark.parametrize("given", [None, b"", b"x" * 65, b"a b", b"a\xff", b"<script>", b"a\r\nb"])
async def test_a_missing_or_invalid_request_id_is_replaced(given: bytes | None) -> None:
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


# ---- deadlines


async def test_a_slow_answer_is_cancelled_with_status_503(
    caplog: pytest.LogCaptureFixture,
) -> None:
    was_cancelled: list[bool] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await read_all(receive)
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError:
            was_cancelled.append(True)
            raise

    edge = edge_of(application, request_seconds_max=0.05)
    exchange = await Exchange(b"body").go(edge, "/v1/x", TOKEN)
    assert exchange.status == 503
    assert "may have been done" in exchange.problem["detail"]
    assert "connection" not in exchange.headers
    assert was_cancelled == [True]
    (record,) = caplog.records
    assert record.fields["status"] == 503  # type: ignore[attr-defined]
    assert record.fields["path"] == "/v1/x"  # type: ignore[attr-defined]


@pytest.mark.parametrize("framing", [(), ((b"content-length", b"0"),)])
async def test_a_request_without_a_body_has_come_whole(framing: Any) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(FOREVER)

    edge = edge_of(application, request_seconds_max=0.05)
    exchange = await Exchange().go(edge, "/v1/x", TOKEN, *framing)
    assert exchange.status == 503
    assert "connection" not in exchange.headers


async def test_an_answer_before_the_body_s_end_ends_the_connection() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(dict(START))
        await send(dict(BODY))

    framings = [(b"content-length", b"4"), (b"transfer-encoding", b"chunked")]
    for framing in framings:
        exchange = await Exchange().go(edge_of(application), "/v1/x", TOKEN, framing)
        assert exchange.headers["connection"] == "close"
    assert "connection" not in (await Exchange().go(edge_of(application), "/v1/x", TOKEN)).headers
    read = await Exchange(b"body").go(edge_of(answer), "/v1/x", TOKEN)
    assert "connection" not in read.headers


async def test_a_body_that_arrives_too_slowly_is_refused_with_status_408() -> None:
    edge = edge_of(answer, request_seconds_max=0.05)
    exchange = await Exchange(b"part", is_whole=False).go(edge, "/v1/x", TOKEN)
    assert exchange.status == 408
    assert exchange.problem["kind"] == "request_timed_out"
    assert exchange.headers["connection"] == "close"


async def test_an_answer_that_the_caller_reads_too_slowly_ends_in_the_middle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exchange = Exchange()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(dict(START))
        await send({**BODY, "more_body": True})
        exchange.may_be_taken.clear()
        await send(dict(BODY))

    await exchange.go(edge_of(application, request_seconds_max=0.05), "/v1/x", TOKEN)
    assert len(exchange.messages) == 2
    (record,) = caplog.records
    assert "passed during the answer" in record.message


async def test_a_stream_may_take_longer_but_not_be_silent() -> None:
    edge = edge_of(answer, request_seconds_max=0.01, stream_idle_seconds_max=0.05)
    exchange = await Exchange(b"part", is_whole=False).go(edge, "/stream", TOKEN)
    assert exchange.status == 408
    assert "The caller sent no byte of the body for 0.05 s" in exchange.problem["detail"]

    exchange = Exchange()
    exchange.may_be_taken.clear()
    errors: list[DodonaError] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send(dict(START))
            await send(dict(BODY))
        except DodonaError as error:
            errors.append(error)

    await exchange.go(edge_of(application, stream_idle_seconds_max=0.05), "/stream", TOKEN)
    assert "The caller read no byte of the answer for 0.05 s" in errors[0].message


async def test_a_stream_has_a_deadline_for_its_whole_duration() -> None:
    edge = edge_of(answer, stream_seconds_max=0.05)
    assert (await Exchange(b"part", is_whole=False).go(edge, "/stream", TOKEN)).status == 408


async def test_a_stream_that_waits_for_its_caller_to_leave_is_not_idle() -> None:
    """As streams do while they answer: a whole body has nothing more to come."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await read_all(receive)
        waiting = asyncio.create_task(receive())
        await send(dict(START))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await send(dict(BODY))

    edge = edge_of(application, stream_idle_seconds_max=0.02)
    exchange = await Exchange().go(edge, "/stream", TOKEN)
    assert [it["type"] for it in exchange.messages][-1] == "http.response.body"


# ---- how many, and how much


async def test_the_edge_bounds_the_number_of_concurrent_requests() -> None:
    may_go_on = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await may_go_on.wait()
        if scope["path"] == "/v1/fail":
            raise ZeroDivisionError
        await answer(scope, receive, send)

    edge = edge_of(application, request_count_max=2)
    paths = ["/v1/x", "/v1/fail"]
    under_way = [asyncio.create_task(Exchange().go(edge, it, TOKEN)) for it in paths]
    await until(lambda: edge.request_count == 2)
    refused = await Exchange().go(edge, "/v1/x", TOKEN)
    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.problem["retryable"] is True
    probe = asyncio.create_task(Exchange().go(edge, "/healthz"))  # being busy is no illness
    may_go_on.set()
    assert (await probe).status == 200
    assert [(await it).status for it in under_way] == [200, 500]
    assert edge.request_count == 0
    assert (await Exchange().go(edge, "/v1/x", TOKEN)).status == 200


async def test_bodies_have_a_bound_together() -> None:
    half = bytes(1 << 19)
    may_go_on = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await read_all(receive)
        if scope["path"] != "/v1/quick":
            await may_go_on.wait()
        await send(dict(START))
        await send(dict(BODY))

    edge = edge_of(application)
    first = asyncio.create_task(Exchange(half).go(edge, "/v1/x", TOKEN))
    second = asyncio.create_task(Exchange(half).go(edge, "/v1/x", TOKEN))
    await until(lambda: edge._budgets.bodies._used_bytes == 2 * len(half))
    refused = await Exchange(b"x").go(edge, "/v1/quick", TOKEN)
    assert refused.status == 429
    assert "1048576 bytes of bodies" in refused.problem["detail"]
    assert (await Exchange().go(edge, "/v1/quick", TOKEN)).status == 200
    may_go_on.set()
    for task in (first, second):
        assert (await task).status == 200
    assert (await Exchange(half, half).go(edge, "/v1/quick", TOKEN)).status == 200
    # Streams let go of what they read, and have bounds of their own.
    assert (await Exchange(half, half, half).go(edge, "/stream", TOKEN)).status == 200


async def test_long_answers_leave_piece_by_piece_and_have_a_bound_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    content = bytes(range(256)) * (700 << 2)  # 700 KiB, where there is room for 1 MiB

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(dict(START))
        await send({**BODY, "body": content if scope["path"] == "/v1/long" else b"short"})

    edge = edge_of(application)
    slow = Exchange()
    slow.may_be_taken.clear()
    under_way = asyncio.create_task(slow.go(edge, "/v1/long", TOKEN))
    await until(lambda: edge._budgets.answers._used_bytes)
    refused = await Exchange().go(edge, "/v1/long", TOKEN)
    assert refused.status == 429
    assert "bytes of answers that callers have not read yet" in refused.problem["detail"]
    assert (await Exchange().go(edge, "/v1/short", TOKEN)).status == 200
    slow.may_be_taken.set()
    await under_way
    for exchange in (slow, await Exchange().go(edge, "/v1/long", TOKEN)):
        pieces = [bytes(it["body"]) for it in exchange.messages[1:]]
        assert b"".join(pieces) == content
        assert max(map(len, pieces)) == 256 << 10
        assert [it.get("more_body", False) for it in exchange.messages[1:]] == [True, True, False]
    assert caplog.records == []


async def test_an_answer_that_is_not_read_in_time_releases_its_memory_budget() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(dict(START))
        await send({**BODY, "body": bytes(700 << 10)})

    edge = edge_of(application, request_seconds_max=0.05)
    slow = Exchange()
    slow.may_be_taken.clear()
    task = asyncio.create_task(slow.go(edge, "/v1/x", TOKEN))
    await asyncio.wait([task])
    assert slow.messages == []
    assert (await Exchange().go(edge, "/v1/x", TOKEN)).status == 200


async def test_a_failure_before_anything_left_is_a_problem_though_an_answer_had_begun() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(dict(START))
        if scope["path"] == "/v1/fail":
            raise ZeroDivisionError

    assert (await Exchange().go(edge_of(application), "/v1/fail", TOKEN)).status == 500
    nothing = await Exchange().go(edge_of(application), "/v1/x", TOKEN)
    assert nothing.status == 503
    assert "There is no answer" in nothing.problem["detail"]


# ---- what is said


async def test_a_mistake_of_ours_is_a_problem_without_our_insides(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError("a secret of ours")

    exchange = await Exchange(b"body").go(edge_of(application), "/v1/x", TOKEN)
    assert exchange.status == 500
    assert exchange.problem["kind"] == "internal"
    assert "secret" not in str(exchange.messages)
    assert "ZeroDivision" not in str(exchange.messages)
    assert caplog.records[0].exc_info is not None
    assert "good" not in caplog.text  # nor the token


async def test_an_error_of_the_application_is_answered_with_its_own_status() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise InvalidRequest("that is wrong", path="//t")

    exchange = await Exchange().go(edge_of(application), "/v1/x", TOKEN)
    assert exchange.status == 400
    assert exchange.problem["attributes"] == {"path": "//t"}


@pytest.mark.parametrize("error", [None, ZeroDivisionError(), Unavailable("the node is away")])
async def test_an_answer_that_breaks_off_is_logged(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(dict(START))
        await send({**BODY, "more_body": True})
        if error is not None:
            raise error
        scope["state"][BROKEN_OFF] = "the node is away"

    exchange = await Exchange().go(edge_of(application), "/stream", TOKEN)
    assert len(exchange.messages) == 2
    (record,) = caplog.records
    assert record.message.startswith("an answer broke off")
    assert record.fields["status"] == 200  # type: ignore[attr-defined]
    if not isinstance(error, ZeroDivisionError):
        assert "the node is away" in record.message


async def test_a_gateway_that_is_not_ready_yet_does_not_log_each_question(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({**START, "status": 503})
        await send(dict(BODY))

    edge = edge_of(application)
    await Exchange().go(edge, "/readyz")
    assert caplog.records == []
    await Exchange().go(edge, "/v1/x", TOKEN)
    assert len(caplog.records) == 1


async def test_successful_and_unauthenticated_requests_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    await Exchange(b"body").go(edge_of(answer), "/v1/x", TOKEN)
    await Exchange(b"body").go(edge_of(answer), "/v1/x")
    assert caplog.records == []
