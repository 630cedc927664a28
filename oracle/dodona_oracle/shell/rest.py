"""REST: HTTP requests to messages for a runtime, replies back; health; the OpenAPI document.

Owns: the web application of both processes. Handlers only decode, ask the runtime and encode: they
never touch a core, because the web framework survives an exception and a core must not. Whatever
goes wrong is `application/problem+json`, without a word of the program's insides.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from dodona._core.messages import Failure, Message
from dodona._core.rest import (
    BODY_BYTES_MAX,
    JSON_TYPE,
    OPERATIONS,
    PROBLEM_TYPE,
    Operation,
    Problem,
    decode_request,
    encode_json,
    encode_problem,
    json_schemas,
    problem_of,
)
from dodona._io.runtime import Runtime
from dodona.errors import DodonaError, InvalidRequest, LimitExceeded

BODY_SECONDS_MAX: Final = 30
SCHEMA_TEMPLATE: Final = "#/components/schemas/{name}"

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
Readiness = Callable[[], str | None]
"""Why the process is not ready, or None if it is."""

_logger: Final = logging.getLogger("dodona.rest")


def create_application(title: str, lifespan: Lifespan, readiness: Readiness) -> FastAPI:
    """An application with health checks and problem answers, and no other route yet."""
    application = FastAPI(title=title, lifespan=lifespan, docs_url=None, redoc_url=None)
    application.add_exception_handler(HTTPException, _answer_http_exception)
    application.add_exception_handler(Exception, _answer_surprise)

    @application.get("/healthz", operation_id="get_health", summary="The process runs.")
    async def get_health() -> dict[str, str]:
        return {"status": "ok"}

    @application.get("/readyz", operation_id="get_readiness", summary="The process serves.")
    async def get_readiness() -> Response:
        reason = readiness()
        if reason is not None:
            return problem_response(Failure("unavailable", reason))
        return Response(b'{"status":"ready"}', media_type=JSON_TYPE)

    return application


def add_operations(application: FastAPI, runtime: Runtime) -> None:
    """Serve the catalog's operations, and describe them in /openapi.json."""
    schemas, components = json_schemas(SCHEMA_TEMPLATE)
    for operation in OPERATIONS:
        application.add_api_route(
            operation.path,
            _handler(operation, runtime),
            methods=[operation.method],
            operation_id=operation.name,
            summary=operation.summary,
            status_code=operation.status,
            response_class=Response,
            response_model=None,
            responses={operation.status: _documented_reply(operation, schemas)},
            openapi_extra=_documented_request(operation, schemas, components),
        )
    _describe(application, schemas[Problem], components)


def problem_response(failure: Failure) -> Response:
    """A Failure as an HTTP response."""
    problem = problem_of(failure)
    return Response(encode_problem(problem), status_code=problem.status, media_type=PROBLEM_TYPE)


def _handler(operation: Operation, runtime: Runtime) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        try:
            content = await _read_body(request) if operation.has_body else b""
            message = decode_request(operation, request.query_params, content)
        except DodonaError as error:
            return problem_response(Failure(error.kind, error.message, error.attributes))
        reply: Message = await runtime.ask(message)
        if isinstance(reply, Failure):
            return problem_response(reply)
        return Response(encode_json(reply), status_code=operation.status, media_type=JSON_TYPE)

    return handle


async def _read_body(request: Request) -> bytes:
    """The body, if it is short and comes in time. Raises LimitExceeded, InvalidRequest."""
    parts: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            async for part in request.stream():
                size_bytes += len(part)
                if size_bytes > BODY_BYTES_MAX:
                    text = f"a body has at most {BODY_BYTES_MAX} bytes"
                    raise LimitExceeded(text, bytes_max=BODY_BYTES_MAX)
                parts.append(part)
    except TimeoutError as error:
        raise InvalidRequest(f"the body did not come within {BODY_SECONDS_MAX} s") from error
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


# The OpenAPI document


def _documented_request(
    operation: Operation, schemas: dict[type[Any], Any], components: dict[str, Any]
) -> dict[str, Any]:
    if operation.has_body:
        content = {JSON_TYPE: {"schema": schemas[operation.request]}}
        return {"requestBody": {"required": True, "content": content}}
    described = components[operation.request.__name__]
    required = described.get("required", [])
    parameters = [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in described["properties"].items()
    ]
    return {"parameters": parameters} if parameters else {}


def _documented_reply(operation: Operation, schemas: dict[type[Any], Any]) -> dict[str, Any]:
    content = {JSON_TYPE: {"schema": schemas[operation.reply]}}
    return {"description": operation.reply.__name__, "content": content}


def _describe(application: FastAPI, problem: dict[str, Any], components: dict[str, Any]) -> None:
    """Complete the generated document: components, and what an error looks like."""

    def describe() -> dict[str, Any]:
        if application.openapi_schema is None:
            document = get_openapi(
                title=application.title, version=application.version, routes=application.routes
            )
            document.setdefault("components", {}).setdefault("schemas", {}).update(components)
            error = {"description": "An error", "content": {PROBLEM_TYPE: {"schema": problem}}}
            for methods in document["paths"].values():
                for described in methods.values():
                    described["responses"]["default"] = error
            application.openapi_schema = document
        return application.openapi_schema

    application.openapi = describe  # type: ignore[method-assign]
