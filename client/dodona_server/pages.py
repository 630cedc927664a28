"""The common part of all REST servers: health pages, metrics, limits of bodies, errors as problems.

Owns: the web application to which a server adds its routes. Every error is
`application/problem+json`, and shows nothing of the program's inside. Only servers import this
module: it needs FastAPI.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from dodona_server.answers import Answer, health_answer, problem_answer
from dodona_server.exposition import Metrics
from dodona_server.lifecycle import HEALTH, HEALTH_PATHS, METRICS, READINESS, STARTUP, Lifecycle
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    RequestTimedOut,
    UnsupportedMediaType,
)
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.rest import (
    BODY_BYTES_MAX,
    PROBLEM_TYPE,
    Problem,
    encode_problem,
    problem_of,
)
from dodona_wire.net.callers import Header, check_body, check_program
from dodona_wire.net.cluster_key import Admission

BODY_SECONDS_MAX: Final = 30

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_logger: Final = logging.getLogger("dodona.rest")


def create_application(
    title: str,
    lifespan: Lifespan | None,
    lifecycle: Lifecycle,
    admission: Admission | None = None,
) -> FastAPI:
    """Return an application with health checks and problem answers, and no other route yet. All
    paths but the health checks need what `admission` asks for. Without `admission` every request is
    let through: the caller must check it."""
    application = FastAPI(title=title, lifespan=lifespan, docs_url=None, redoc_url=None)
    if admission is not None:
        application.add_middleware(_Guard, admission=admission)
    application.add_exception_handler(HTTPException, _answer_http_exception)
    application.add_exception_handler(Exception, _answer_surprise)

    @application.head(HEALTH, include_in_schema=False)
    @application.get(HEALTH, operation_id="get_health", summary="The process is well.")
    async def get_health() -> Response:
        return _response(health_answer(lifecycle.why_not_well(), "ok"))

    @application.head(READINESS, include_in_schema=False)
    @application.get(READINESS, operation_id="get_readiness", summary="The process serves.")
    async def get_readiness() -> Response:
        return _response(health_answer(lifecycle.why_not_ready(), "ready"))

    @application.head(STARTUP, include_in_schema=False)
    @application.get(STARTUP, operation_id="get_startup", summary="The process has started.")
    async def get_startup() -> Response:
        return _response(health_answer(None, "started"))

    return application


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status_code, media_type=answer.content_type)


def add_metrics(application: FastAPI, metrics: Metrics) -> None:
    """Serve the metrics, for callers that the application admits. (A HEAD request gets the headers:
    uvicorn leaves the body out.)"""

    @application.head(METRICS, include_in_schema=False)
    @application.get(METRICS, operation_id="get_metrics", summary="What Prometheus scrapes.")
    async def get_metrics(request: Request) -> Response:
        return metrics_response(metrics, request)


def metrics_response(metrics: Metrics, request: Request) -> Response:
    """Return the answer to a scrape."""
    content, content_type = metrics.text(request.headers.get("accept", ""))
    return Response(content, headers={"content-type": content_type})


class _Guard:
    """Refuses pages in browsers, and requests without the required key."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in HEALTH_PATHS:
            try:
                self._check(scope["method"], scope["path"], Headers(scope=scope).get)
            except DodonaError as error:
                await problem_response(failure_of(error))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, method: str, path: str, header: Header) -> None:
        check_program(header, is_open=self._admission.is_open)
        is_scrape = path == METRICS and self._admission.metrics_key is not None
        if not self._admission.admits(header("authorization"), is_scrape=is_scrape):
            raise self._admission.refusal(header("host"))
        check_body(method, header)


def problem_response(failure: Failure) -> Response:
    """Return a Failure as an HTTP response."""
    return _response(problem_answer(failure))


async def read_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return the body, if it is short and comes in time. Raises LimitExceeded, RequestTimedOut,
    InvalidRequest, UnsupportedMediaType."""
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await collect_body(request, bytes_max)
    except TimeoutError as error:
        raise RequestTimedOut(f"The body did not arrive within {BODY_SECONDS_MAX} s.") from error


async def collect_body(request: Request, bytes_max: int) -> bytes:
    """Return the body, if it is short. The caller limits the time. Raises LimitExceeded,
    InvalidRequest, UnsupportedMediaType."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        text = f"Send the body without Content-Encoding, not as {encoding[:40]}."
        raise UnsupportedMediaType(text)
    parts: list[bytes] = []
    size_bytes = 0
    try:
        async for part in request.stream():
            size_bytes += len(part)
            if size_bytes > bytes_max:
                raise LimitExceeded(f"A body has at most {bytes_max} bytes.", bytes_max=bytes_max)
            parts.append(part)
    except ClientDisconnect as error:
        raise InvalidRequest("The connection ended before the end of the body.") from error
    return b"".join(parts)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    failure = Failure("invalid_request", str(error.detail))
    content = encode_problem(_with_status(problem_of(failure), error.status_code))
    return Response(
        content, error.status_code, headers=dict(error.headers or {}), media_type=PROBLEM_TYPE
    )


async def _answer_surprise(request: Request, error: Exception) -> Response:
    _logger.error("a REST handler failed", exc_info=error)
    return problem_response(
        Failure("internal", "The server failed with an unexpected error. Its log shows the error.")
    )


def _with_status(problem: Problem, status: int) -> Problem:
    return Problem(
        status=status,
        detail=problem.detail,
        kind=problem.kind,
        code=problem.code,
        retryable=problem.retryable,
        title=HTTPStatus(status).phrase,
    )
