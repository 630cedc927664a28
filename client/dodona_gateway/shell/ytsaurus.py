"""Serve YTsaurus's HTTP API and its query language at a gateway.

Owns: all that the gateway knows of `dodona_ytsaurus`, which no other module of the gateway imports,
and all that its commands know of the gateway.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from fastapi import Request

from dodona._core.protocol.steps import Protocol
from dodona._core.writing.transaction import TransactionBuffer
from dodona.aio import AsyncTransaction
from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.answer_budget import check_sent
from dodona_gateway.core.holdings import LEASE_MS, LEASE_MS_MAX
from dodona_gateway.core.query_work import TypedRows
from dodona_gateway.shell.audit import AuditedCall, UnauditedCall
from dodona_gateway.shell.bodies import pieces_of
from dodona_gateway.shell.service import Result, Service
from dodona_gateway.shell.transactions import buffer_of
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import (
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    Atomicity,
    Durability,
    Timestamp,
)
from dodona_ytsaurus.commands.api import add_ytsaurus_api, error_response
from dodona_ytsaurus.commands.service import Service as YtsaurusService
from dodona_ytsaurus.gateway import WantedRows
from dodona_ytsaurus.query.parser import parse
from dodona_ytsaurus.query.translation import to_sql
from dodona_ytsaurus.terms.errors import error_headers, yt_error

__all__ = [
    "YTSAURUS_PREFIXES",
    "YtsaurusService",
    "add_ytsaurus_api",
    "error_response",
    "headers_of",
    "sql_of",
    "ytsaurus_service",
]

YTSAURUS_PREFIXES: Final = ("/api/", "/auth/", "/hosts")


def headers_of(error: DodonaError) -> Mapping[str, str]:
    """Return the headers in which YTsaurus's clients find an error."""
    return error_headers(yt_error(error))


async def sql_of(
    service: Service, principal: Principal, text: str, placeholders: Mapping[str, Any]
) -> str:
    """Translate a query in YTsaurus's language, in which `{name}` stands for the value of a
    placeholder. The principal must have `read` on its tables."""
    query = await asyncio.to_thread(parse, text, placeholders)
    schemas = {}
    for path in query.paths:
        principal.check("read", path)
        schemas[path] = (await service.client.get_table(path)).schema.stored
    return (await asyncio.to_thread(to_sql, query, schemas)).sql


def ytsaurus_service(service: Service) -> YtsaurusService:
    """Return the service of YTsaurus's API at a gateway with this service."""
    return YtsaurusService(_Gateway(service))


class _Caller:
    """The sender of a request. The edge has authenticated the sender, and named the request."""

    def __init__(self, service: Service, request: Request) -> None:
        self._service = service
        self._request = request
        self.principal: Principal = request.state.principal
        self.request_id: str = request.state.request_id

    def pieces(self) -> AsyncGenerator[bytes]:
        return pieces_of(self._request)

    def audited(self, operation: str, path: str | None) -> AuditedCall | UnauditedCall:
        client = self._request.client
        return self._service.audited(
            self.principal,
            request_id=self.request_id,
            operation=operation,
            path=path,
            remote=None if client is None else client.host,
        )

    async def query(
        self,
        sql: str,
        wanted: WantedRows,
        transaction: AsyncTransaction | None = None,
        *,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
    ) -> bytes:
        return await self._service.query(
            self.principal,
            sql,
            TypedRows(wanted.types, wanted.rows_max, wanted.is_cut),
            transaction,
            timestamp=timestamp,
            retention_timestamp=retention_timestamp,
            is_stored=True,
        )


class _Gateway:
    """A gateway, as the commands know it: see `dodona_ytsaurus.gateway`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.number = service.number
        self.address = service.settings.address
        self.body_bytes_max = service.settings.body_mib_max << 20
        self.client = service.client
        self.session = service.session
        self.run = service.run
        self.transactions = service.transactions

    def caller(self, request: Request) -> _Caller:
        return _Caller(self._service, request)

    async def begin(
        self, owner: str, atomicity: Atomicity, durability: Durability, lease_ms: int | None
    ) -> str:
        lease_ms = LEASE_MS if lease_ms is None else min(lease_ms, LEASE_MS_MAX)
        begin = self._service.transactions.begin
        text, _ = await begin(owner, atomicity, durability, False, lease_ms)
        return text

    def buffer_of(self, transaction: AsyncTransaction) -> TransactionBuffer:
        return buffer_of(transaction)

    async def schema(self, path: str) -> TableSchema:
        return await self._service.schema(path)

    async def look_up(self, lookup: Protocol[Result]) -> Result:
        return await self._service.look_up(lookup)

    def check_sent(self, content: bytes) -> None:
        check_sent(content, self._service.settings.answer_bytes_max)
