"""Queries in YTsaurus's language.

Owns: `select_rows` and `explain_query`. A query is translated to SQL, which is run as any other;
what its columns are called, and their types, the translation says.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from dodona_gateway.core.query.parser import parse
from dodona_gateway.core.query.translation import Translated, to_sql
from dodona_gateway.core.query_work import TypedRows
from dodona_gateway.core.ytsaurus.parameters import plain
from dodona_gateway.shell.transactions import buffer_of
from dodona_gateway.shell.ytsaurus.commands import RowsOut, Value, YtCall, command
from dodona_gateway.shell.ytsaurus.rows import read_mode, read_timestamp, retention_timestamp
from dodona_gateway.shell.ytsaurus.transactions import tablet_transaction
from dodona_wire.errors import InvalidRequest

BYTES_AT_ONCE: Final = 64 << 10
"""Of a result that becomes rows in no time."""
SHORT_LENGTH_MAX: Final = 8_000
"""Of a query that takes no time to be read."""

Made = TypeVar("Made")
_rows_of: Final = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
"""Rows in the order of the columns are tuples, others by name."""


async def select_rows(call: YtCall) -> RowsOut:
    if read_mode(call) != "default":
        raise InvalidRequest("a query's rows have no timestamps: look rows up instead")
    tablet_transaction(call)  # who asks under a master transaction is told at once
    translated = await _translate(call)
    columns: list[tuple[str, Any]] = [(it.name, it.type) for it in translated.columns]
    shape = _shape(call, [it.type for it in translated.columns])
    content = await _answer(call, translated.sql, shape)
    if len(content) <= BYTES_AT_ONCE:
        return RowsOut(columns, _rows_of(content))
    return RowsOut(columns, await asyncio.to_thread(_rows_of, content))


def _shape(call: YtCall, types: list[str]) -> TypedRows:
    is_cut = not call.parameters.flag("fail_on_incomplete_result", default=True)
    return TypedRows(tuple(types), call.parameters.number("output_row_limit"), is_cut)


async def _answer(call: YtCall, sql: str, shape: TypedRows) -> bytes:
    its_id, retention = tablet_transaction(call), retention_timestamp(call)
    query = partial(call.service.query, call.principal, sql, shape, retention_timestamp=retention)
    if its_id is None:
        return await query(timestamp=read_timestamp(call))
    async with call.service.transactions.use(its_id, call.owner) as transaction:
        if retention:  # what the transaction itself has written is not seen either way
            return await query(timestamp=buffer_of(transaction).read_timestamp())
        return await call.service.query(call.principal, sql, shape, transaction)


async def explain_query(call: YtCall) -> Value:
    """What is run for it."""
    translated = await _translate(call)
    return Value({"dialect": "duckdb", "query": translated.sql})


async def _translate(call: YtCall) -> Translated:
    text = _text(call)
    query = await _compute(text, parse, text, _placeholders(call))
    schemas = {}
    for path in query.paths:
        call.principal.check("read", path)
        schemas[path] = (await call.client.get_table(path)).schema
    return await _compute(text, to_sql, query, schemas)


async def _compute(text: str | bytes, function: Callable[..., Made], *arguments: Any) -> Made:
    """In a thread if the query is long, so that others are answered meanwhile."""
    if len(text) <= SHORT_LENGTH_MAX:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def _text(call: YtCall) -> str | bytes:
    text = plain(call.parameters.raw("query"))
    return text if isinstance(text, bytes) else call.parameters.text("query")


def _placeholders(call: YtCall) -> Mapping[str, Any]:
    """What names in braces stand for."""
    given = call.parameters.map("placeholder_values")
    return {name: _without_attributes(it) for name, it in given.items()}


def _without_attributes(value: Any) -> Any:
    value = plain(value)
    return [_without_attributes(it) for it in value] if isinstance(value, list) else value


COMMANDS: Final = (
    command(select_rows, "read", gives="tabular", is_heavy=True),
    command(explain_query, "read", is_heavy=True),
)
