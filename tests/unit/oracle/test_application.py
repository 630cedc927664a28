"""The REST application over a real core: what callers get for good and for bad requests."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.records import Record
from dodona_oracle.shell.rest import add_operations
from dodona_server.lifecycle import Lifecycle
from dodona_server.pages import create_application
from dodona_server.process import read_clock
from dodona_server.runtime import Runtime
from dodona_wire.messages.rest import BODY_BYTES_MAX, OPERATIONS

pytestmark = pytest.mark.anyio

COLUMNS = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "any"},
]


class MemoryLog:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, records: Any) -> None:
        self.records += records


class Rest:
    """A client of an application, without a socket."""

    def __init__(self, application: FastAPI) -> None:
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://master")
        self.not_ready: str | None = None

    async def send(self, method: str, target: str, body: Any = None) -> httpx.Response:
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        return await self.http.request(method, target, content=content)

    async def problem(self, method: str, target: str, body: Any = None) -> dict[str, Any]:
        response = await self.send(method, target, body)
        assert response.headers["content-type"] == "application/problem+json"
        assert "Traceback" not in response.text
        problem: dict[str, Any] = response.json()
        assert problem["status"] == response.status_code
        return problem


@asynccontextmanager
async def no_lifespan(application: FastAPI) -> AsyncIterator[None]:
    yield


@pytest.fixture
async def rest() -> AsyncIterator[Rest]:
    runtime = Runtime(MasterCore.recover([], read_clock()), MemoryLog())
    runtime.start()
    application = create_application("test", no_lifespan, Lifecycle(lambda: client.not_ready))
    add_operations(application, runtime)

    @application.get("/broken")
    async def broken() -> None:
        raise ValueError("the insides")

    client = Rest(application)
    yield client
    await client.http.aclose()
    await runtime.close()


async def test_a_table_is_created_mounted_unmounted_and_removed_over_rest(rest: Rest) -> None:
    made = await rest.send("POST", "/v1/tables", {"path": "//a", "columns": COLUMNS})
    assert made.status_code == 201
    table = made.json()
    assert table["tablets"] == [
        {"tablet": 2, "pivot_key": "", "state": "unmounted", "cell": None, "revision": 0}
    ]
    assert (await rest.send("GET", "/v1/table?path=//a")).json() == table
    assert (await rest.send("GET", "/v1/tables")).json() == {"paths": ["//a"]}
    beat: dict[str, object] = {"cell": 0, "address": "http://c", "mounted": [], "sequence": 1}
    first = (await rest.send("POST", "/v1/cells/heartbeat", beat)).json()
    assert first == {
        "tablets": [],
        "addresses": {"0": "http://c"},
        "sequence": 1,
        "revision": 0,
        "cluster": first["cluster"],
        "dropped": [],
        "is_short": False,
        "may_be_short": False,
    }
    beat["cluster"] = first["cluster"]
    mounted = (await rest.send("POST", "/v1/table/mount?path=//a")).json()
    assert mounted["tablets"][0]["state"] == "mounting"
    assigned = (await rest.send("POST", "/v1/cells/heartbeat", beat)).json()["tablets"]
    assert [(each["tablet"], each["path"]) for each in assigned] == [(2, "//a")]
    assert (await rest.problem("DELETE", "/v1/node?path=//b"))["status"] == 404
    served = [{"tablet": 2, "revision": 1}]
    await rest.send("POST", "/v1/cells/heartbeat", {**beat, "mounted": served, "revision": 1})
    await rest.send("POST", "/v1/table/unmount?path=//a")
    await rest.send("POST", "/v1/cells/heartbeat", {**beat, "revision": 2})
    unmounted = (await rest.send("GET", "/v1/table?path=//a")).json()["tablets"]
    assert [each["state"] for each in unmounted] == ["unmounted"]
    gone = await rest.send("DELETE", "/v1/node?path=//a")
    assert (gone.status_code, gone.json()) == (200, {})
    assert (await rest.send("GET", "/v1/tables?prefix=//")).json() == {"paths": []}


async def test_the_tree_and_its_transactions_work_over_rest(rest: Rest) -> None:
    begun = await rest.send(
        "POST", "/v1/master-transactions", {"timeout_ms": 60_000, "title": "load"}
    )
    assert begun.status_code == 201
    transaction = begun.json()["transaction"]
    body = {"path": "//d/e", "is_recursive": True, "transaction": transaction}
    made = await rest.send("POST", "/v1/directories", {**body, "attributes": {"owner": ["me", 1]}})
    assert made.status_code == 201
    inside = f"&transaction={transaction}"
    owner = await rest.send("GET", f"/v1/node?path=//d/e/@owner{inside}")
    assert owner.json() == {"value": ["me", 1]}
    assert (await rest.send("GET", "/v1/node/exists?path=//d")).json() == {"value": False}
    assert (await rest.problem("GET", "/v1/node?path=//d"))["kind"] == "node_not_found"
    problem = await rest.problem("POST", "/v1/directories", {"path": "//d"})
    assert (problem["status"], problem["kind"], problem["retryable"]) == (409, "node_locked", True)
    assert problem["attributes"]["title"] == "load"
    ended = await rest.send("POST", f"/v1/master-transaction/commit?transaction={transaction}")
    assert (ended.status_code, ended.json()) == (200, {})
    assert (await rest.send("GET", "/v1/node/list?path=//d")).json() == {"names": ["e"]}
    assert (await rest.send("GET", "/v1/node?path=/")).json() == {"value": {"d": {"e": {}}}}
    await rest.send("POST", "/v1/node", {"path": "//d/e/@owner", "value": None})
    assert (await rest.send("GET", "/v1/node?path=//d/e/@owner")).json() == {"value": None}
    await rest.send("POST", "/v1/node/move", {"source": "//d/e", "destination": "//f"})
    gone = await rest.send("DELETE", "/v1/node?path=//d&is_recursive=true")
    assert (gone.status_code, gone.json()) == (200, {})
    assert (await rest.send("GET", "/v1/node?path=/")).json() == {"value": {"f": {}}}
    problem = await rest.problem("POST", "/v1/master-transaction/ping?transaction=99")
    assert (problem["status"], problem["kind"]) == (404, "transaction_not_found")


async def test_proxies_and_cells_are_shown(rest: Rest) -> None:
    assert (await rest.send("POST", "/v1/proxies", {"address": "http://p"})).json() == {}
    assert (await rest.send("GET", "/v1/cluster")).json() == {"proxies": ["http://p"], "cells": []}


async def test_timestamps_are_available_over_rest(rest: Rest) -> None:
    first = (await rest.send("POST", "/v1/timestamps", {"count": 10})).json()
    second = (await rest.send("POST", "/v1/timestamps", {"count": 1})).json()
    assert first["count"] == 10
    assert second["first"] >= first["first"] + 10


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "kind"),
    [
        ("GET", "/v1/table?path=//a", None, 404, "table_not_found"),
        ("GET", "/v1/table", None, 400, "invalid_request"),
        ("POST", "/v1/tables", {"path": "a", "columns": COLUMNS}, 400, "invalid_request"),
        ("POST", "/v1/tables", {"path": "//a", "columns": []}, 400, "schema_violation"),
        ("POST", "/v1/tables", {"columns": []}, 400, "invalid_request"),
        ("POST", "/v1/tables", b"{", 400, "invalid_request"),
        ("POST", "/v1/tables", b"", 400, "invalid_request"),
        ("POST", "/v1/timestamps", {"count": 0}, 400, "invalid_request"),
        ("POST", "/v1/timestamps", {"count": 1 << 70}, 400, "invalid_request"),
        ("POST", "/v1/timestamps", {"count": 1.5}, 400, "invalid_request"),
        ("POST", "/v1/table/mount?path=//a", None, 404, "table_not_found"),
        ("GET", "/v1/nothing", None, 404, "invalid_request"),
        ("PATCH", "/v1/tables", None, 405, "invalid_request"),
        ("GET", "/broken", None, 500, "internal"),
    ],
)
async def test_an_error_over_rest_is_a_typed_problem(
    rest: Rest, method: str, target: str, body: Any, status: int, kind: str
) -> None:
    problem = await rest.problem(method, target, body)
    assert (problem["status"], problem["kind"]) == (status, kind)
    assert problem["detail"]
    assert "insides" not in problem["detail"]


async def test_an_existing_table_and_a_missing_cell_are_reported_as_problems(rest: Rest) -> None:
    await rest.send("POST", "/v1/tables", {"path": "//a", "columns": COLUMNS})
    problem = await rest.problem("POST", "/v1/tables", {"path": "//a", "columns": COLUMNS})
    assert (problem["status"], problem["code"], problem["retryable"]) == (409, 501, False)
    assert problem["attributes"] == {"path": "//a"}
    problem = await rest.problem("POST", "/v1/table/mount?path=//a")
    assert (problem["status"], problem["retryable"]) == (503, True)


async def test_a_too_long_body_is_refused_whole_or_as_a_stream(rest: Rest) -> None:
    problem = await rest.problem("POST", "/v1/tables", bytes(BODY_BYTES_MAX + 1))
    assert (problem["status"], problem["kind"]) == (413, "limit_exceeded")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield bytes(1 << 20)

    response = await rest.http.post("/v1/tables", content=endless())
    assert response.status_code == 413


async def test_health_and_readiness(rest: Rest) -> None:
    assert (await rest.send("GET", "/healthz")).json() == {"status": "ok"}
    assert (await rest.send("GET", "/readyz")).json() == {"status": "ready"}
    rest.not_ready = "the disk hangs"
    problem = await rest.problem("GET", "/readyz")
    assert (problem["status"], problem["detail"]) == (503, "the disk hangs")
    assert (await rest.send("GET", "/healthz")).status_code == 200


async def test_the_openapi_document_describes_every_operation(rest: Rest) -> None:
    document = (await rest.send("GET", "/openapi.json")).json()
    for operation in OPERATIONS:
        described = document["paths"][operation.path][operation.method.lower()]
        assert described["operationId"] == operation.name
        assert str(operation.status) in described["responses"]
        assert "application/problem+json" in described["responses"]["default"]["content"]
        assert ("requestBody" in described) == operation.has_body
        names = [each["name"] for each in described.get("parameters", [])]
        fields = () if operation.has_body else operation.request.__struct_fields__
        assert names == list(fields)
    text = json.dumps(document)
    components = document["components"]["schemas"]
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.split('"')[0] in components
