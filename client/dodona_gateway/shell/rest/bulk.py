"""Read and write whole tables over REST, as streams of which one piece is in memory.

Owns: how a body becomes batches for a table, and how a table becomes a body. For a table with
atomicity, a body is one load: all of its rows become visible at one commit timestamp, or none. For
a table without atomicity, each row counts when it arrives, and an error says how many rows were
written. A body that breaks off is an error. An answer that breaks off has no end, which its reader
sees.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Any, Final, NamedTuple

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Send

from dodona._core.writing.row_tables import table_of_rows
from dodona.aio import AsyncClient
from dodona.aio_loads import AsyncLoad
from dodona_gateway.core.answers import BulkWritten, StreamedRows
from dodona_gateway.core.batch_encoders import encoder_of
from dodona_gateway.core.content import STREAM_FORMS, TYPES, Form, form_of
from dodona_gateway.core.json_values import given_bound, given_rows
from dodona_gateway.core.requests import BulkRead, BulkWrite, parse_bound
from dodona_gateway.core.row_stream import reader_of
from dodona_gateway.shell.bodies import pieces_of
from dodona_gateway.shell.routes import Call, route
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError, InvalidRequest, SchemaViolation
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Atomicity

BATCH_ROWS: Final = 20_000
"""The number of rows in one batch, for forms in which rows come one by one."""


class _Target(NamedTuple):
    """The table that a body is for."""

    path: str
    schema: TableSchema
    atomicity: Atomicity


async def bulk_write(call: Call, asked: BulkWrite) -> BulkWritten:
    """Write a stream of rows. With atomicity, all rows get one commit timestamp, or none is
    written."""
    call.principal.check("write", asked.table)
    service = call.service
    table = await service.client.get_table(asked.table)
    form = form_of(call.request.headers.get("content-type"), STREAM_FORMS)
    target = _Target(asked.table, table.schema, table.atomicity)
    batches = _batches(call.request, form, target, is_update=asked.mode == "update")
    async with service.streams.take(), aclosing(batches):
        if target.atomicity == "full":
            return await _load(service.client, target, asked, batches)
        return await _write(service.client, target, asked, batches)


async def _load(
    client: AsyncClient, target: _Target, asked: BulkWrite, batches: AsyncIterator[Any]
) -> BulkWritten:
    begun = await client.loads.begin(
        [target.path],
        mode=asked.mode,
        application=asked.application,
        version=asked.version,
        owner="gateway",
        timeout_ms=asked.timeout_ms,
    )
    if begun.is_recorded:
        return BulkWritten(0, None, is_skipped=True)
    try:
        async for batch in batches:
            await begun.write(target.path, batch)
        published = await begun.publish()
    except BaseException as error:
        await _abort(begun, error)
        raise
    return BulkWritten(published.row_count, published.timestamp, published.is_skipped)


async def _abort(load: AsyncLoad, error: BaseException) -> None:
    """Abort the load, unless it may have been published. If the abort fails too, the load's lease
    ends the load."""
    if isinstance(error, CommitOutcomeUnknown):
        return
    with suppress(DodonaError):
        await asyncio.shield(load.abort(f"{type(error).__name__}: {error}"))


async def _write(
    client: AsyncClient, target: _Target, asked: BulkWrite, batches: AsyncIterator[Any]
) -> BulkWritten:
    if asked.mode != "upsert" or asked.application is not None or asked.version is not None:
        raise InvalidRequest(
            "The table has atomicity none. Leave out mode, application and version.",
            table=target.path,
        )
    row_count = 0
    try:
        async for batch in batches:
            row_count += await client.write_arrow(
                target.path, batch, asked.durability, timeout_ms=asked.timeout_ms
            )
    except DodonaError as error:
        error.attributes["row_count"] = row_count + error.attributes.get("row_count", 0)
        raise
    return BulkWritten(row_count, None)


async def _batches(
    request: Request, form: Form, target: _Target, *, is_update: bool
) -> AsyncGenerator[Any]:
    """Yield the body in pieces, as record batches or tables of Arrow."""
    reader, rows, first = reader_of(form), [], 0
    is_json = form == "ndjson"
    async with aclosing(pieces_of(request)) as pieces:
        async for piece in pieces:
            found = reader.feed(piece)
            if form == "arrow":
                for batch in found:
                    yield batch
                continue
            rows += found
            while len(rows) >= BATCH_ROWS:
                part = rows[:BATCH_ROWS]
                yield _table(target, part, first, is_update=is_update, is_json=is_json)
                first += BATCH_ROWS
                del rows[:BATCH_ROWS]
    rest = reader.finish()
    if form == "arrow":
        for batch in rest:
            yield batch
        return
    rows += rest
    if rows:
        yield _table(target, rows, first, is_update=is_update, is_json=is_json)


def _table(target: _Target, rows: list[Any], first: int, *, is_update: bool, is_json: bool) -> Any:
    try:
        given = given_rows(target.schema, rows, target.path, is_json=is_json)
    except SchemaViolation as error:
        error.attributes["row_index"] += first
        raise
    return table_of_rows(target.schema, given, first, is_update=is_update)


async def bulk_read(call: Call, asked: BulkRead) -> Response:
    """Read a table, or a range of its keys, as a stream. All rows are as of one timestamp."""
    call.principal.check("read", asked.table)
    parts = _parts(call, asked)
    try:
        first = await anext(parts)  # an error in the request then gets an error answer
    except BaseException:
        await parts.aclose()
        raise
    return _StreamOut(first, parts, TYPES[call.form])


async def _parts(call: Call, asked: BulkRead) -> AsyncGenerator[bytes]:
    """Yield the pieces of the body. The slot and the snapshot are held until this generator is
    closed."""
    client = call.service.client
    lower, upper = parse_bound("lower", asked.lower), parse_bound("upper", asked.upper)
    columns = None if asked.columns is None else asked.columns.split(",")
    schema = (await client.get_table(asked.table)).schema
    lower, upper = given_bound(schema, lower), given_bound(schema, upper)
    encoder = encoder_of(call.form, schema, columns)
    async with (
        call.service.streams.take(),
        client.hold_snapshot(
            [asked.table], asked.timestamp, timeout_ms=asked.timeout_ms
        ) as snapshot,
    ):
        async for batch in snapshot.read_batches(asked.table, lower, upper, columns):
            yield encoder.encode(batch)
        yield encoder.end()


class _StreamOut(StreamingResponse):
    """A body whose generator is closed at its end, even if the connection breaks."""

    def __init__(self, first: bytes, parts: AsyncGenerator[bytes], media_type: str) -> None:
        super().__init__(parts, media_type=media_type)
        self._first = first
        self._parts = parts

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._parts):
            headers = self.raw_headers
            start = {"type": "http.response.start", "status": self.status_code, "headers": headers}
            await send(start)
            await send(_part(self._first))
            async for part in self._parts:
                await send(_part(part))
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _part(content: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": True}


ROUTES: Final = (
    route("POST", "/v1/bulk/write", bulk_write, "write", takes=STREAM_FORMS),
    route("GET", "/v1/bulk/read", bulk_read, "read", gives=STREAM_FORMS, answer=StreamedRows),
)
