"""The isolation of transactions that a gateway holds, by REST and by YTsaurus's API."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import FastAPI

import dodona.aio
from dodona_gateway.core.access.principal import ANYBODY
from dodona_gateway.shell.rest import transactions
from dodona_gateway.shell.routes import add_routes
from dodona_gateway.shell.service import Service
from dodona_gateway.shell.settings import GatewaySettings
from dodona_gateway.shell.transactions import buffer_of
from dodona_gateway.shell.ytsaurus import add_ytsaurus_api, ytsaurus_service
from dodona_server.settings import parse_settings

pytestmark = pytest.mark.anyio

TABLE = "//t"
SCHEMA: list[dict[str, Any]] = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
VALUES = (None, "snapshot", "serializable")


class Gateway(NamedTuple):
    """The routes of a gateway over an embedded database, in which one table has an isolation."""

    http: httpx.AsyncClient
    service: Service

    async def ask(self, path: str, **fields: Any) -> Any:
        answer = await self.http.post(path, json=fields)
        answer.raise_for_status()
        return answer.json()

    async def ask_yt(self, method: str, command: str, content: bytes, **fields: Any) -> Any:
        fields |= {"output_format": "json", "input_format": "json"}
        headers = {"X-YT-Parameters": json.dumps(fields)}
        url = f"/api/v4/{command}"
        answer = await self.http.request(method, url, content=content, headers=headers)
        answer.raise_for_status()
        return answer

    async def recorded(self, transaction: str) -> list[str]:
        """The tables whose reads the commit has validated."""
        async with self.service.transactions.use(transaction, ANYBODY.owner) as found:
            reads = buffer_of(found).reads
            return [] if reads is None else [*reads.tables]


@asynccontextmanager
async def gateway(folder: Path, of_table: str | None) -> AsyncIterator[Gateway]:
    options = ["--master-url", "http://127.0.0.1:1", "--insecure"]
    settings = parse_settings(GatewaySettings, "gateway", options)
    async with await dodona.aio.open(folder) as db:
        attributes = {"isolation": of_table}
        await db.create_table(TABLE, SCHEMA, mount=True, attributes=attributes)
        service = Service(settings, db, db._session, db._driver.run)
        routes = FastAPI()
        add_routes(routes, transactions.ROUTES, lambda: service)
        ytsaurus = ytsaurus_service(service)
        add_ytsaurus_api(routes, lambda: ytsaurus)

        async def application(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {"principal": ANYBODY, "request_id": "1"}
            await routes(scope, receive, send)

        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            yield Gateway(http, service)


@pytest.mark.parametrize(("asked", "of_table"), [*product(VALUES, VALUES)])
async def test_begin_over_rest_counts_more_than_the_table(
    tmp_path: Path, asked: str | None, of_table: str | None
) -> None:
    is_validated = (asked or of_table) == "serializable"
    async with gateway(tmp_path, of_table) as it:
        begun = await it.ask("/v1/transactions", lease_ms=60_000, isolation=asked)
        transaction = begun["transaction"]
        read = f"/v1/transactions/{transaction}/lookup"
        await it.ask(read, table=TABLE, keys=[{"k": 1}])
        assert await it.recorded(transaction) == ([TABLE] if is_validated else [])


@pytest.mark.parametrize("of_table", VALUES)
async def test_transactions_of_ytsaurus_s_api_have_that_of_the_table(
    tmp_path: Path, of_table: str | None
) -> None:
    async with gateway(tmp_path, of_table) as it:
        asked = {"type": "tablet", "timeout": 60_000}
        begun = await it.ask_yt("POST", "start_transaction", b"", **asked)
        transaction = begun.json()["transaction_id"]
        at = {"path": TABLE, "transaction_id": transaction}
        await it.ask_yt("PUT", "lookup_rows", b'{"k":1}', **at)
        expected = [TABLE] if of_table == "serializable" else []
        assert await it.recorded(transaction) == expected
