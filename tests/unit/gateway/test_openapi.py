"""The OpenAPI document is what is served, is committed, and its examples are what it says."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from dodona_gateway.core.content import decode_body
from dodona_gateway.core.examples import EXAMPLES
from dodona_gateway.shell.gateway import ROUTES, openapi_document, openapi_text
from dodona_gateway.shell.routes import Route
from dodona_wire.messages.rest import decode_query

DOCUMENT: Final = Path(__file__).resolve().parents[3] / "docs" / "reference" / "openapi.json"
METHODS: Final = {"get", "post", "delete"}

each_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)


def operations() -> dict[str, dict[str, Any]]:
    """By name."""
    paths = openapi_document()["paths"]
    found = [operation for its in paths.values() for operation in its.values()]
    return {operation["operationId"]: operation for operation in found}


def test_the_committed_document_is_the_code_s() -> None:
    said = "python -m dodona_gateway openapi > docs/reference/openapi.json"
    assert DOCUMENT.read_text() == openapi_text(), f"if the API was meant to change: {said}"


def test_a_command_prints_the_openapi_document() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "dodona_gateway", "openapi"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert printed.stdout == openapi_text()


def test_the_openapi_document_has_each_route_once_with_an_example() -> None:
    names = [route.name for route in ROUTES]
    assert len(set(names)) == len(names)
    assert len({(route.method, route.path) for route in ROUTES}) == len(names)
    assert set(operations()) == {*names, "healthz", "readyz", "startupz"}
    assert set(EXAMPLES) == set(names)
    for path, its in openapi_document()["paths"].items():
        assert set(its) <= METHODS
        assert {it.method.lower() for it in ROUTES if it.path == path} <= set(its)


@each_route
def test_each_example_request_is_valid_for_its_route(route: Route) -> None:
    request = EXAMPLES[route.name].request
    asked: Any
    if route.is_query:
        given_as_text = [(name, str(it)) for name, it in request.items()]
        asked = decode_query(route.request, given_as_text)
    else:
        asked = decode_body(msgspec.json.encode(request), "json", route.request)
        assert decode_body(msgspec.msgpack.encode(request), "msgpack", route.request) == asked
    given = {name: getattr(asked, name) for name in request}
    assert {**msgspec.to_builtins(asked), **request} == msgspec.to_builtins(asked)
    assert msgspec.to_builtins(given) == request


@each_route
def test_each_example_answer_is_valid_for_its_route(route: Route) -> None:
    answer = EXAMPLES[route.name].answer
    if "json" not in route.gives:
        assert answer == {}
        return
    assert msgspec.to_builtins(msgspec.convert(answer, route.answer)) == answer


@each_route
def test_the_document_lists_role_responses_and_parameters_of_each_operation(route: Route) -> None:
    operation = operations()[route.name]
    assert operation["summary"]
    assert route.role in operation["description"]
    assert {str(route.status), "default"} == set(operation["responses"])
    named = {it["name"] for it in operation.get("parameters", []) if it["in"] == "query"}
    fields = {it.name for it in msgspec.structs.fields(route.request)}
    assert named == (fields if route.is_query else set())
    for parameter in operation.get("parameters", []):
        assert "null" not in str(parameter)
    has_body = bool(route.takes) or (not route.is_query and bool(fields))
    assert ("requestBody" in operation) is has_body


def test_every_schema_that_is_referred_to_is_there() -> None:
    schemas = openapi_document()["components"]["schemas"]
    text = openapi_text()
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.partition('"')[0] in schemas
    for name, schema in schemas.items():
        assert schema["description"], name
        assert f'schemas/{name}"' in text, f"nothing refers to {name}"
