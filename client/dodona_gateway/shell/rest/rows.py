"""Rows over REST, each call by itself: a transaction of its own, or none.

Owns: what these operations do, each a few lines over the client, and who may ask for them.
"""

from typing import Any, Final

from fastapi import Response

from dodona.types import SYNC_LAST_COMMITTED, Timestamp
from dodona_gateway.core import answers, requests
from dodona_gateway.core.content import TYPES, VALUE_FORMS
from dodona_gateway.core.query_work import Encoded
from dodona_gateway.shell.routes import Call, route


async def insert_rows(call: Call, asked: requests.InsertRows) -> answers.Written:
    """Insert rows, in a transaction of their own."""
    call.principal.check("write", asked.table)
    timestamp = await call.service.client.insert_rows(
        asked.table,
        asked.rows,
        asked.update,
        asked.aggregate,
        asked.durability,
        timeout_ms=asked.timeout_ms,
    )
    return answers.Written(timestamp)


async def delete_rows(call: Call, asked: requests.DeleteRows) -> answers.Written:
    """Delete rows by key, in a transaction of their own."""
    call.principal.check("write", asked.table)
    timestamp = await call.service.client.delete_rows(
        asked.table, asked.keys, asked.durability, timeout_ms=asked.timeout_ms
    )
    return answers.Written(timestamp)


async def lookup_rows(call: Call, asked: requests.LookupRows) -> answers.FoundRows:
    """The rows of these keys."""
    call.principal.check("read", asked.table)
    lookup = call.service.session.lookup_rows(
        asked.table,
        asked.keys,
        asked.columns,
        asked.keep_missing,
        asked.timestamp,
        asked.retention_timestamp,
    )
    rows = await call.service.look_up(lookup, asked.timeout_ms)
    return answers.FoundRows(await call.shown(asked.table, rows))


async def lookup_versions(call: Call, asked: requests.LookupVersions) -> answers.FoundVersions:
    """All that ever became of the rows of these keys, as far as it is kept."""
    call.principal.check("read", asked.table)
    lookup = call.service.session.lookup_versions(
        asked.table,
        asked.keys,
        asked.columns,
        asked.keep_missing,
        asked.timestamp,
        asked.since,
        asked.below,
        asked.limit,
    )
    rows = await call.service.look_up(lookup, asked.timeout_ms)
    return answers.FoundVersions(await call.shown_versions(asked.table, rows))


async def select_rows(call: Call, asked: requests.SelectRows) -> answers.SelectedRows:
    """The first rows of a range of keys, in key order."""
    call.principal.check("read", asked.table)
    read = call.service.session.first_rows(
        asked.table,
        asked.limit,
        call.service.settings.answer_bytes_max,
        asked.lower,
        asked.upper,
        asked.columns,
        asked.timestamp,
        asked.retention_timestamp,
    )
    async with call.service.turn_to_select(asked.table, asked.timeout_ms) as run:
        (rows, behind), at = await run(read)
        return await selected(call, asked.table, rows, behind, at)


async def query_rows(call: Call, asked: requests.Query) -> Response:
    """What an SQL query gives, over tables named as [//path], all at one timestamp."""
    query = call.service.query
    content = await query(
        call.principal,
        asked.sql,
        Encoded(call.form),
        timestamp=asked.timestamp,
        retention_timestamp=asked.retention_timestamp,
        timeout_ms=asked.timeout_ms,
    )
    return Response(content, media_type=TYPES[call.form])


async def selected(
    call: Call, table: str, rows: Any, behind: tuple[Any, ...] | None, at: Timestamp
) -> answers.SelectedRows:
    """The answer to a select."""
    shown = await call.shown(table, rows)
    following = None if behind is None else await call.shown_key(table, behind)
    return answers.SelectedRows(shown, following, None if at == SYNC_LAST_COMMITTED else at)


ROUTES: Final = (
    route("POST", "/v1/rows/insert", insert_rows, "write"),
    route("POST", "/v1/rows/delete", delete_rows, "write"),
    route("POST", "/v1/rows/lookup", lookup_rows, "read"),
    route("POST", "/v1/rows/versions", lookup_versions, "read"),
    route("POST", "/v1/rows/select", select_rows, "read"),
    route(
        "POST",
        "/v1/query",
        query_rows,
        "read",
        gives=(*VALUE_FORMS, "arrow"),
        answer=answers.QueryResult,
    ),
)
