"""Parameters of queries in bodies of REST and on the console's page."""

import asyncio
import math
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI, Request

from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import Column, TableSchema
from dodona.types import Timestamp
from dodona_gateway.core.access.principal import ANYBODY
from dodona_gateway.core.content import decode_body, encode_body
from dodona_gateway.core.query_work import Shown
from dodona_gateway.core.requests import Query, QueryInTransaction
from dodona_gateway.shell.console.query_page import parameters_of, run_query
from dodona_gateway.shell.console.visits import Visit
from dodona_gateway.shell.rest import transactions
from dodona_gateway.shell.rest.rows import query_rows
from dodona_gateway.shell.routes import Call

SCHEMA = TableSchema.parse([Column("k", "int64", "ascending"), Column("v", "int64")])

# ---- REST


@pytest.mark.parametrize("body", [Query, QueryInTransaction])
def test_a_body_has_parameters_in_an_object_or_in_a_list(body: Any) -> None:
    text = rb'{"sql": "", "parameters": {"a": 18446744073709551615, "b": {"$base64": "/w=="}}}'
    assert decode_body(text, "json", body).parameters == {"a": 2**64 - 1, "b": b"\xff"}
    text = b'{"sql": "", "parameters": [null, true, 1.5, "x", [1, 2], {"$double": "Infinity"}]}'
    expected = [None, True, 1.5, "x", [1, 2], float("inf")]
    assert decode_body(text, "json", body).parameters == expected
    text = rb'{"sql": "", "parameters": {"a": {"b": [{"$base64": "/w=="}, {"$double": "NaN"}]}}}'
    nested = decode_body(text, "json", body).parameters["a"]["b"]
    assert nested[0] == b"\xff"
    assert math.isnan(nested[1])
    given = [b"\xff", {5: {"a": [2**64 - 1]}}, datetime(2013, 1, 2, tzinfo=UTC)]
    packed = encode_body({"sql": "", "parameters": given}, "msgpack")
    assert decode_body(packed, "msgpack", body).parameters == given
    assert decode_body(b'{"sql": ""}', "json", body).parameters is None


@pytest.mark.parametrize("value", ['"x"', "5", "true"])
def test_other_parameters_are_refused_with_their_place(value: str) -> None:
    with pytest.raises(InvalidRequest, match="parameters"):
        decode_body(b'{"sql": "", "parameters": %s}' % value.encode(), "json", Query)


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(SchemaViolation, match="'a' is named twice"):
        decode_body(b'{"sql": "", "parameters": {"a": 1, "a": 2}}', "json", Query)


class Transactions:
    """Hold one transaction."""

    def use(self, *_: Any) -> Any:
        return asyncio.timeout(None)


class Service:
    """Keep what a query is asked with."""

    settings = type(
        "Settings", (), {"address": "http://g", "insecure": True, "request_seconds_max": 60}
    )()
    transactions = Transactions()

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.texts: list[str] = []
        self.client = self

    async def query(
        self, _: Any, sql: str, *rest: Any, parameters: Any = None, **more: Any
    ) -> bytes:
        self.asked.append(parameters)
        self.texts.append(sql)
        return msgspec.msgpack.encode(Shown(["x"], ["int64"], [[5]], 1, 1))

    async def get_table(self, path: str) -> Any:
        return type("Table", (), {"schema": SCHEMA})()

    async def generate_timestamp(self) -> Timestamp:
        return Timestamp(7)


@pytest.mark.anyio
async def test_a_call_passes_parameters_on() -> None:
    service: Any = Service()
    call = Call(service, ANYBODY, "json", "", Request({"type": "http"}))
    await query_rows(call, Query("select $x", parameters={"x": 1}))
    in_one = QueryInTransaction("select ?", parameters=[2])
    await transactions.query_rows_in_transaction(call, in_one)
    assert service.asked == [{"x": 1}, [2]]


# ---- the console


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        (" \n", None),
        ('{"day": 1}', {"day": 1}),
        ('[1, {"$base64": "/w=="}]', [1, b"\xff"]),
        ('{"of": {"a": [{"$base64": "/w=="}]}}', {"of": {"a": [b"\xff"]}}),
    ],
)
def test_the_field_of_the_page_is_json(text: str, found: Any) -> None:
    assert parameters_of(text) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("day=1", "The parameters are not JSON"),
        ('{"day": 1, "day": 2}', "'day' is named twice"),
        ('{"day": {"$base64": "?"}}', "is not base64"),
        ("1", "must be an object or a list in JSON"),
        ("[" * 5_000, "The parameters are not JSON"),
    ],
)
def test_another_field_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parameters_of(text)


async def page_of(service: Any, fields: dict[str, str]) -> httpx.Response:
    app = FastAPI()

    @app.post("/")
    async def answer(request: Request) -> Any:
        return await run_query(Visit(service, None, ANYBODY, request))  # type: ignore[arg-type]

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://g") as http:
        return await http.post("/", data=fields, headers={"origin": "http://g"})


@pytest.mark.anyio
async def test_the_page_passes_parameters_on_and_keeps_the_field() -> None:
    service = Service()
    page = await page_of(service, {"query": "select $x", "parameters": '{"x": "<a>"}'})
    assert page.status_code == 200
    assert service.asked == [{"x": "<a>"}]
    assert '<label class="wide" for="parameters">' in page.text
    assert "{&#34;x&#34;: &#34;&lt;a&gt;&#34;}</textarea>" in page.text
    page = await page_of(service, {"query": "select $x", "parameters": "x"})
    assert page.status_code == InvalidRequest.status
    assert "The parameters are not JSON" in page.text
    assert len(service.asked) == 1


@pytest.mark.anyio
async def test_the_page_replaces_placeholders_of_the_other_language() -> None:
    service = Service()
    fields = {"query": "k from [//t] where k = {day}", "language": "yt"}
    page = await page_of(service, {**fields, "parameters": '{"day": 41}'})
    assert page.status_code == 200, page.text
    assert "41" in service.texts[0]
    assert service.asked == [None]
    for parameters, message in (("[41]", "must be an object"), ("", "has no value")):
        page = await page_of(service, {**fields, "parameters": parameters})
        assert (page.status_code, message in page.text) == (InvalidRequest.status, True)
