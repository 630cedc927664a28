"""Run queries in YTsaurus's language.

Owns: `select_rows` and `explain_query`. A query is translated to SQL, which runs like any other
query. The translation decides the names and types of the result's columns.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from dodona_wire.errors import InvalidRequest
from dodona_ytsaurus.commands.commands import RowsOut, Value, YtCall, command
from dodona_ytsaurus.commands.rows import read_mode, read_timestamp, retention_timestamp
from dodona_ytsaurus.commands.transactions import tablet_transaction
from dodona_ytsaurus.gateway import WantedRows
from dodona_ytsaurus.query.parser import parse
from dodona_ytsaurus.query.translation import Translated, to_sql
from dodona_ytsaurus.terms.parameters import plain

BYTES_AT_ONCE: Final = 64 << 10
"""The size in bytes of a result that is decoded in the event loop, at most."""
SHORT_LENGTH_MAX: Final = 8_000
"""The length of a query that is parsed in the event loop, at most."""

Made = TypeVar("Made")
_rows_of: Final = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
"""Decodes rows as tuples, in the order of the columns."""


async def select_rows(call: YtCall) -> RowsOut:
    if read_mode(call) != "default":
        raise InvalidRequest(
            "The rows of a query have no timestamps. Use lookup_rows for timestamps."
        )
    tablet_transaction(call)  # refuses a master transaction early
    translated = await _translate(call)
    columns: list[tuple[str, Any]] = [(it.name, it.type) for it in translated.columns]
    wanted = _wanted(call, [it.type for it in translated.columns])
    content = await _answer(call, translated.sql, wanted)
    if len(content) <= BYTES_AT_ONCE:
        return RowsOut(columns, _rows_of(content))
    return RowsOut(columns, await asyncio.to_thread(_rows_of, content))


def _wanted(call: YtCall, types: list[str]) -> WantedRows:
    is_cut = not call.parameters.flag("fail_on_incomplete_result", default=True)
    return WantedRows(tuple(types), call.parameters.number("output_row_limit"), is_cut)


async def _answer(call: YtCall, sql: str, wanted: WantedRows) -> bytes:
    its_id, retention = tablet_transaction(call), retention_timestamp(call)
    query = partial(call.caller.query, sql, wanted, retention_timestamp=retention)
    if its_id is None:
        return await query(timestamp=read_timestamp(call))
    async with call.gateway.transactions.use(its_id, call.owner) as transaction:
        if retention:  # the transaction's own writes are not visible either way
            return await query(timestamp=call.gateway.buffer_of(transaction).read_timestamp())
        return await call.caller.query(sql, wanted, transaction)


async def explain_query(call: YtCall) -> Value:
    """Return the SQL that would run for a query."""
    translated = await _translate(call)
    return Value({"dialect": "duckdb", "query": translated.sql})


async def _translate(call: YtCall) -> Translated:
    text = _text(call)
    query = await _compute(text, parse, text, _placeholders(call))
    schemas = {}
    for path in query.paths:
        call.principal.check("read", path)
        schemas[path] = (await call.client.get_table(path)).schema.stored
    return await _compute(text, to_sql, query, schemas)


async def _compute(text: str | bytes, function: Callable[..., Made], *arguments: Any) -> Made:
    """Call the function, in a thread if the query is long, so that other callers are answered
    meanwhile."""
    if len(text) <= SHORT_LENGTH_MAX:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def _text(call: YtCall) -> str | bytes:
    text = plain(call.parameters.raw("query"))
    return text if isinstance(text, bytes) else call.parameters.text("query")


def _placeholders(call: YtCall) -> Mapping[str, Any]:
    """Return the values of names in braces."""
    given = call.parameters.map("placeholder_values")
    return {name: _without_attributes(it) for name, it in given.items()}


def _without_attributes(value: Any) -> Any:
    value = plain(value)
    return [_without_attributes(it) for it in value] if isinstance(value, list) else value


COMMANDS: Final = (
    command(select_rows, "read", gives="tabular", is_heavy=True),
    command(explain_query, "read", is_heavy=True),
)
