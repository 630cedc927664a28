"""Queries in YTsaurus's language.

Owns: `select_rows` and `explain_query`. A query is translated to SQL, which is run as any other;
what its columns are called, and their types, the translation says.
"""

from typing import Any, Final

import msgspec

from dodona_gateway.core.query.parser import parse
from dodona_gateway.core.query.translation import Translated, to_sql
from dodona_gateway.core.ytsaurus.parameters import plain
from dodona_gateway.shell.ytsaurus.commands import RowsOut, YtCall, command
from dodona_gateway.shell.ytsaurus.rows import read_timestamp
from dodona_gateway.shell.ytsaurus.transactions import tablet_transaction


async def select_rows(call: YtCall) -> RowsOut:
    translated = await _translate(call)
    its_id = tablet_transaction(call)
    query = call.service.query
    if its_id is not None:
        async with call.service.transactions.use(its_id, call.owner) as transaction:
            table = await query(call.principal, translated.sql, transaction)
    else:
        table = await query(call.principal, translated.sql, timestamp=read_timestamp(call))
    columns: list[tuple[str, Any]] = [(it.name, it.type) for it in translated.columns]
    values = [
        _values(column, it.type)
        for column, it in zip(table.columns, translated.columns, strict=True)
    ]
    return RowsOut(columns, list(zip(*values, strict=True)))


async def explain_query(call: YtCall) -> Any:
    """What is run for it."""
    translated = await _translate(call)
    return {"dialect": "duckdb", "query": translated.sql}


async def _translate(call: YtCall) -> Translated:
    text = plain(call.parameters.raw("query"))
    query = parse(call.parameters.text("query") if isinstance(text, str) else text)
    schemas = {}
    for path in query.paths:
        call.principal.check("read", path)
        schemas[path] = (await call.client.get_table(path)).schema
    return to_sql(query, schemas)


def _values(column: Any, kind: str) -> list[Any]:
    """Of type any they are JSON."""
    values: list[Any] = column.to_pylist()
    if kind != "any":
        return values
    return [None if it is None else msgspec.json.decode(it) for it in values]


COMMANDS: Final = (
    command(select_rows, "read", gives="tabular", is_heavy=True),
    command(explain_query, "read", is_heavy=True),
)
