"""Make the OpenAPI document of the gateway from the table of routes.

Owns: how a row of the table is described. The document is committed
(`docs/reference/openapi.json`), and a test compares it with the one that is served.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dodona_gateway.core.content import TYPES, Form
from dodona_gateway.core.examples import EXAMPLES
from dodona_gateway.shell.routes import Route
from dodona_server.lifecycle import HEALTH, READINESS, STARTUP
from dodona_wire.messages.rest import PROBLEM_TYPE, Problem

REFERENCE: Final = "#/components/schemas/{name}"
DESCRIPTION: Final = """\
Timestamps, tables and transactions of a Dodona cluster, for any language.

Bodies are JSON or MessagePack, as the headers `Content-Type` and `Accept` say. JSON has no \
bytes: `{"$base64": "..."}` stands for bytes that are no text, `{"$double": "NaN"}` for a number \
that is none, and in values of type `any` `{"$dict": {...}}` for a map whose one name is one of \
these three. Whole numbers have 64 bits, timestamps 62.

Every error is `application/problem+json`: `kind` and `code` are for programs, `retryable` says \
whether the whole transaction may be run again, `attributes` say where it happened (table, key, \
lock, winner, ...). docs/reference/errors.md lists them all.
"""
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_PAGES: Final = {
    HEALTH: "The process is well.",
    READINESS: "The process serves.",
    STARTUP: "The process has started.",
}

Schemas = dict[type[Any], dict[str, Any]]


def describe(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """Return the document."""
    kinds = dict.fromkeys(kind for route in routes for kind in (route.request, route.answer))
    found, components = msgspec.json.schema_components([*kinds, Problem], ref_template=REFERENCE)
    schemas: Schemas = dict(zip([*kinds, Problem], found, strict=True))
    for component in components.values():
        component["description"] = " ".join(component.get("description", "").split())
    paths: dict[str, Any] = {}
    for route in routes:
        operations = paths.setdefault(route.path, {})
        operations[route.method.lower()] = _operation(route, schemas, components)
    for path, summary in _PAGES.items():
        paths[path] = {"get": _page(path, summary, schemas)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dodona gateway", "version": version, "description": DESCRIPTION},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": _referred_to(components, paths),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _referred_to(components: dict[str, Any], paths: dict[str, Any]) -> dict[str, Any]:
    """Return the components that `paths` or other components use. The others only have fields that
    are parameters."""
    text = msgspec.json.encode([components, paths]).decode()
    return {
        name: it for name, it in components.items() if f'"{REFERENCE.format(name=name)}"' in text
    }


def _operation(route: Route, schemas: Schemas, components: dict[str, Any]) -> dict[str, Any]:
    example = EXAMPLES[route.name]
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.path.split("/")[2]],
        "description": f"Needs the role {route.role}.",
        "responses": {
            str(route.status): _answer(route, schemas, example.answer),
            "default": _error(schemas),
        },
    }
    parameters = _parameters(route, components, example.request)
    if parameters:
        described["parameters"] = parameters
    if route.takes:
        forms = {TYPES[form]: _BINARY for form in route.takes}
        described["requestBody"] = {"required": True, "content": forms}
    elif not route.is_query and msgspec.structs.fields(route.request):
        described["requestBody"] = _body(route, schemas, example.request)
    return described


def _page(path: str, summary: str, schemas: Schemas) -> dict[str, Any]:
    """Describe a health page, which is open to all."""
    status = {"type": "object", "properties": {"status": {"type": "string"}}}
    answer = {"description": summary, "content": {TYPES["json"]: {"schema": status}}}
    return {
        "operationId": path.removeprefix("/"),
        "summary": summary,
        "tags": ["health"],
        "security": [],
        "responses": {"200": answer, "default": _error(schemas)},
    }


def _error(schemas: Schemas) -> dict[str, Any]:
    content = {PROBLEM_TYPE: {"schema": schemas[Problem]}}
    return {"description": "An error", "content": content}


def _parameters(
    route: Route, components: dict[str, Any], example: dict[str, Any]
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if "{transaction}" in route.path:
        schema = {"type": "string", "pattern": "^[0-9a-f]+(-[0-9a-f]+){3}$"}
        found.append({"name": "transaction", "in": "path", "required": True, "schema": schema})
    if not route.is_query:
        return found
    described = components[route.request.__name__]
    for name, schema in described["properties"].items():
        parameter = {
            "name": name,
            "in": "query",
            "required": name in described.get("required", []),
            "schema": _of_text(schema),
        }
        if name in example:
            parameter["example"] = example[name]
        found.append(parameter)
    return found


def _of_text(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional parameter without null: a query string has no null."""
    kinds = [it for it in schema.get("anyOf", ()) if it != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else schema


def _body(route: Route, schemas: Schemas, example: dict[str, Any]) -> dict[str, Any]:
    is_needed = any(it.required for it in msgspec.structs.fields(route.request))
    as_json = {"schema": schemas[route.request], "example": example}
    forms = {TYPES["json"]: as_json, TYPES["msgpack"]: {"schema": schemas[route.request]}}
    return {"required": is_needed, "content": forms}


def _answer(route: Route, schemas: Schemas, example: dict[str, Any]) -> dict[str, Any]:
    schema = {"schema": schemas[route.answer]}
    known: dict[Form, dict[str, Any]] = {"json": {**schema, "example": example}, "msgpack": schema}
    is_stream = "json" not in route.gives
    forms = {TYPES[it]: _BINARY if is_stream else known.get(it, _BINARY) for it in route.gives}
    return {"description": " ".join((route.answer.__doc__ or "").split()), "content": forms}
