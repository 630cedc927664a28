"""The catalog over REST, and the OpenAPI document.

Owns: the routes of the catalog's calls. A handler decodes a request, asks the runtime, and encodes
the reply. It never touches a core: the web framework goes on after an exception, and a core must
not.
"""

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from dodona_server.pages import problem_response, read_body
from dodona_server.runtime import Runtime
from dodona_wire.errors import DodonaError
from dodona_wire.messages.base import Failure, Message, failure_of
from dodona_wire.messages.rest import (
    JSON_TYPE,
    OPERATIONS,
    PROBLEM_TYPE,
    Operation,
    Problem,
    decode_request,
    encode_json,
    json_schemas,
)

SCHEMA_TEMPLATE: Final = "#/components/schemas/{name}"


def add_operations(application: FastAPI, runtime: Runtime) -> None:
    """Serve the catalog's calls, and describe them in /openapi.json."""
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


def _handler(operation: Operation, runtime: Runtime) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        try:
            content = await read_body(request) if operation.has_body else b""
            message = decode_request(operation, request.query_params.multi_items(), content)
        except DodonaError as error:
            return problem_response(failure_of(error))
        reply: Message = await runtime.ask(message)
        if isinstance(reply, Failure):
            return problem_response(reply)
        return Response(encode_json(reply), status_code=operation.status, media_type=JSON_TYPE)

    return handle


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
    """Complete the generated document with the components and the form of errors."""

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
