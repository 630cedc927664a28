"""What one answer may have, counted as it is sent: text is longer where it is escaped."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from fastapi import FastAPI

import dodona.aio
from dodona_gateway.core.access.principal import ANYBODY
from dodona_gateway.shell.rest import rows, transactions
from dodona_gateway.shell.routes import add_routes
from dodona_gateway.shell.service import Service
from dodona_gateway.shell.settings import GatewaySettings
from dodona_gateway.shell.ytsaurus import add_ytsaurus_api, ytsaurus_service
from dodona_server.settings import parse_settings

pytestmark = pytest.mark.anyio

TABLE = "//t"
SCHEMA: list[dict[str, Any]] = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "string"},
]
BYTES_MAX = 1 << 20
ZEROS = bytes(BYTES_MAX // 4)
"""Of which JSON makes half as much again as an answer may have."""
KEYS = [{"k": 0}]


class Caller(NamedTuple):
    """Of a gateway's routes, over an embedded database."""

    http: httpx.AsyncClient
    db: dodona.aio.AsyncClient

    async def ask(self, path: str, form: str = "json", **fields: Any) -> httpx.Response:
        headers = {"accept": f"application/{form}"}
        return await self.http.post(path, json=fields, headers=headers)

    async def ask_yt(self, command: str, form: str, **fields: Any) -> httpx.Response:
        parameters = {"path": TABLE, "output_format": form, "input_format": "json", **fields}
        headers = {"X-YT-Parameters": json.dumps(parameters)}
        return await self.http.put(f"/api/v4/{command}", content=b'{"k":0}', headers=headers)


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[Caller]:
    options = ["--master-url", "http://127.0.0.1:1", "--insecure"]
    options += ["--answer-mib-max", str(BYTES_MAX >> 20)]
    settings = parse_settings(GatewaySettings, "gateway", options)
    async with await dodona.aio.open(folder) as db:
        service = Service(settings, db, db._session, db._driver.run)
        routes = FastAPI()
        add_routes(routes, (*rows.ROUTES, *transactions.ROUTES), lambda: service)
        ytsaurus = ytsaurus_service(service)
        add_ytsaurus_api(routes, lambda: ytsaurus)

        async def application(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {"principal": ANYBODY, "request_id": "1"}
            await routes(scope, receive, send)

        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            await db.create_table(TABLE, SCHEMA, mount=True)
            yield Caller(http, db)


def check_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 413
    problem = answer.json()
    assert problem["kind"] == "limit_exceeded"
    assert f"more than {BYTES_MAX} bytes" in problem["detail"]


async def test_a_lookup(tmp_path: Path) -> None:
    async with gateway(tmp_path) as it:
        await it.db.insert_rows(TABLE, [{"k": 0, "v": ZEROS}, {"k": 1, "v": b"x" * len(ZEROS)}])
        begun = (await it.ask("/v1/transactions", lease_ms=60_000)).json()["transaction"]
        for place in ("/v1/rows", f"/v1/transactions/{begun}"):
            for operation in ("lookup", "versions", "select"):
                asked: dict[str, Any] = {"table": TABLE}
                asked |= {"upper": [1]} if operation == "select" else {"keys": KEYS}
                check_refused(await it.ask(f"{place}/{operation}", **asked))
                packed = await it.ask(f"{place}/{operation}", "msgpack", **asked)
                assert packed.status_code == 200
                assert len(packed.content) < BYTES_MAX
                asked |= {"lower": [1], "upper": [2]} if "upper" in asked else {"keys": [{"k": 1}]}
                assert (await it.ask(f"{place}/{operation}", **asked)).status_code == 200


async def test_a_select_gives_fewer_rows_and_where_to_go_on(tmp_path: Path) -> None:
    count = 40
    values = [bytes(BYTES_MAX // 50) if number % 2 else b"x" for number in range(count)]
    async with gateway(tmp_path) as it:
        await it.db.insert_rows(
            TABLE, [{"k": place, "v": value} for place, value in enumerate(values)]
        )
        found: list[int] = []
        at: dict[str, Any] = {}
        lower, calls = None, 0
        while True:
            asked = {"table": TABLE, **at, **({} if lower is None else {"lower": lower})}
            answer = await it.ask("/v1/rows/select", columns=["v", "k"], **asked)
            assert answer.status_code == 200
            assert len(answer.content) <= BYTES_MAX
            page = answer.json()
            found += [row["k"] for row in page["rows"]]
            calls, lower, at = calls + 1, page["next"], {"timestamp": page["timestamp"]}
            if lower is None:
                break
        assert found == list(range(count))
        assert calls > 1
        whole = await it.ask("/v1/rows/select", "msgpack", table=TABLE)
        assert len(msgspec.msgpack.decode(whole.content)["rows"]) == count


@pytest.mark.parametrize("options", [{}, {"versioned": True}])
async def test_a_lookup_of_ytsaurus(tmp_path: Path, options: dict[str, Any]) -> None:
    async with gateway(tmp_path) as it:
        await it.db.insert_rows(TABLE, [{"k": 0, "v": ZEROS}])
        look_up = it.ask_yt
        refused = await look_up("lookup_rows", "json", **options)
        assert refused.status_code == 400
        assert refused.json()["code"] == 1717
        assert "Ask for less" in refused.text
        assert (await look_up("lookup_rows", "yson", **options)).status_code == 200
        await it.db.insert_rows(TABLE, [{"k": 0, "v": b"x" * (2 * BYTES_MAX)}])
        refused = await look_up("lookup_rows", "yson", **options)
        assert refused.json()["code"] == 1717
