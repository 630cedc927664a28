"""What all REST servers have in common: health pages, metrics, bodies that are bounded, errors as
problems.

Owns: the web application that a server adds its routes to. Whatever goes wrong is
`application/problem+json`, without a word of the program's insides. Only servers import this: it
needs FastAPI.
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

from dodona._core.messages import Failure
from dodona._core.rest import (
    BODY_BYTES_MAX,
    JSON_TYPE,
    PROBLEM_TYPE,
    Problem,
    encode_problem,
    problem_of,
)
from dodona._io.cluster_key import ClusterKey, MetricsKey
from dodona._io.life import HEALTH, HEALTH_PATHS, METRICS, READINESS, STARTUP, Life
from dodona._io.metrics import Metrics
from dodona.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    RequestTimedOut,
    Unauthenticated,
)

BODY_SECONDS_MAX: Final = 30

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_logger: Final = logging.getLogger("dodona.rest")


def create_application(
    title: str,
    lifespan: Lifespan,
    life: Life,
    key: ClusterKey | None = None,
    metrics_key: MetricsKey | None = None,
) -> FastAPI:
    """An application with health checks and problem answers, and no other route yet. With a `key`
    all but the health checks are for those who show it; a `metrics_key` opens the metrics, too."""
    application = FastAPI(title=title, lifespan=lifespan, docs_url=None, redoc_url=None)
    if key is not None or metrics_key is not None:
        application.add_middleware(_KeyGuard, key=key, metrics_key=metrics_key)
    application.add_exception_handler(HTTPException, _answer_http_exception)
    application.add_exception_handler(Exception, _answer_surprise)

    @application.get(HEALTH, operation_id="get_health", summary="The process is well.")
    async def get_health() -> Response:
        return _status(life.why_not_well(), "ok")

    @application.get(READINESS, operation_id="get_readiness", summary="The process serves.")
    async def get_readiness() -> Response:
        return _status(life.why_not_ready(), "ready")

    @application.get(STARTUP, operation_id="get_startup", summary="The process has started.")
    async def get_startup() -> Response:
        return _status(None, "started")

    return application


def _status(reason: str | None, status: str) -> Response:
    if reason is not None:
        return problem_response(Failure("unavailable", reason))
    return status_response(status)


def status_response(status: str) -> Response:
    """What a health page says if all is well."""
    return Response(b'{"status":"%s"}' % status.encode(), media_type=JSON_TYPE)


def add_metrics(application: FastAPI, metrics: Metrics) -> None:
    """Serve them, for those whom the application lets in."""

    @application.get(METRICS, operation_id="get_metrics", summary="What Prometheus scrapes.")
    async def get_metrics(request: Request) -> Response:
        return metrics_response(metrics, request)


def metrics_response(metrics: Metrics, request: Request) -> Response:
    """A scrape's answer."""
    content, content_type = metrics.text(request.headers.get("accept", ""))
    return Response(content, headers={"content-type": content_type})


class _KeyGuard:
    """Refuses what does not show the cluster's key, or to scrapers that of the metrics."""

    def __init__(
        self, app: ASGIApp, key: ClusterKey | None, metrics_key: MetricsKey | None
    ) -> None:
        self._app = app
        self._key = key
        self._metrics_key = metrics_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["path"] in HEALTH_PATHS
            or self._admits(scope["path"], Headers(scope=scope).get("authorization"))
        ):
            await self._app(scope, receive, send)
        else:
            refused = Unauthenticated("this is not the cluster's key")
            await problem_response(failure_of(refused))(scope, receive, send)

    def _admits(self, path: str, shown: str | None) -> bool:
        if self._key is not None and self._key.admits(shown):
            return True
        if path == METRICS:
            return self._metrics_key is not None and self._metrics_key.admits(shown)
        return self._key is None


def problem_response(failure: Failure) -> Response:
    """A Failure as an HTTP response."""
    problem = problem_of(failure)
    return Response(encode_problem(problem), status_code=problem.status, media_type=PROBLEM_TYPE)


def failure_of(error: DodonaError) -> Failure:
    """What an error says, as it travels."""
    return Failure(error.kind, error.message, error.attributes)


async def read_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The body, if it is short and comes in time. Raises LimitExceeded, RequestTimedOut,
    InvalidRequest."""
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await collect_body(request, bytes_max)
    except TimeoutError as error:
        raise RequestTimedOut(f"the body did not come within {BODY_SECONDS_MAX} s") from error


async def collect_body(request: Request, bytes_max: int) -> bytes:
    """The body, if it is short, for those who bound its time themselves. Raises LimitExceeded,
    InvalidRequest."""
    parts: list[bytes] = []
    size_bytes = 0
    try:
        async for part in request.stream():
            size_bytes += len(part)
            if size_bytes > bytes_max:
                raise LimitExceeded(f"a body has at most {bytes_max} bytes", bytes_max=bytes_max)
            parts.append(part)
    except ClientDisconnect as error:
        raise InvalidRequest("the connection ended within the body") from error
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
    return problem_response(Failure("internal", "the server failed; its log says how"))


def _with_status(problem: Problem, status: int) -> Problem:
    return Problem(
        status=status,
        detail=problem.detail,
        kind=problem.kind,
        code=problem.code,
        retryable=problem.retryable,
        title=HTTPStatus(status).phrase,
    )
