"""Read and write rows over REST, each call in a separate transaction or without one.

Owns: these operations, each a few lines over the client, and the roles that they need.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from fastapi import Response

from dodona._core.protocol.steps import Protocol
from dodona._core.reading.pages import FirstRows
from dodona_gateway.core import answers, requests
from dodona_gateway.core.answer_budget import check_sent
from dodona_gateway.core.content import TYPES, VALUE_FORMS, encode_body
from dodona_gateway.core.query_work import Encoded
from dodona_gateway.shell.routes import Call, route
from dodona_wire.types import SYNC_LAST_COMMITTED, Timestamp


async def insert_rows(call: Call, asked: requests.InsertRows) -> answers.Written:
    """Insert rows, in a separate transaction."""
    call.principal.check("write", asked.table)
    timestamp = await call.service.client.insert_rows(
        asked.table,
        await call.given(asked.table, asked.rows),
        asked.update,
        asked.aggregate,
        asked.durability,
        if_absent=asked.if_absent,
        if_version=asked.if_version,
        expect=await call.given_values(asked.table, asked.expect),
        timeout_ms=asked.timeout_ms,
    )
    return answers.Written(timestamp)


async def delete_rows(call: Call, asked: requests.DeleteRows) -> answers.Written:
    """Delete rows by key, in a separate transaction."""
    call.principal.check("write", asked.table)
    timestamp = await call.service.client.delete_rows(
        asked.table,
        await call.given(asked.table, asked.keys),
        asked.durability,
        if_version=asked.if_version,
        expect=await call.given_values(asked.table, asked.expect),
        timeout_ms=asked.timeout_ms,
    )
    return answers.Written(timestamp)


async def lookup_rows(call: Call, asked: requests.LookupRows) -> answers.FoundRows:
    """Return the rows of these keys."""
    call.principal.check("read", asked.table)
    lookup = call.service.session.lookup_rows(
        asked.table,
        await call.given(asked.table, asked.keys),
        asked.columns,
        asked.keep_missing,
        asked.timestamp,
        asked.retention_timestamp,
    )
    rows = await call.service.look_up(lookup, asked.timeout_ms)
    return answers.FoundRows(await call.shown(asked.table, rows))


async def lookup_versions(call: Call, asked: requests.LookupVersions) -> answers.FoundVersions:
    """Return all versions of the rows of these keys, as far as they are kept."""
    call.principal.check("read", asked.table)
    lookup = call.service.session.lookup_versions(
        asked.table,
        await call.given(asked.table, asked.keys),
        asked.columns,
        asked.keep_missing,
        asked.timestamp,
        asked.since,
        asked.below,
        asked.limit,
    )
    rows = await call.service.look_up(lookup, asked.timeout_ms)
    return answers.FoundVersions(await call.shown_versions(asked.table, rows))


async def select_rows(call: Call, asked: requests.SelectRows) -> Response:
    """Return the first rows of a range of keys, in key order."""
    call.principal.check("read", asked.table)
    lower, upper = await call.given_bounds(asked.table, asked.lower, asked.upper)
    read = partial(
        call.service.session.first_rows,
        lower=lower,
        upper=upper,
        columns=asked.columns,
        retention_timestamp=asked.retention_timestamp,
    )
    return await selected(call, asked, read, asked.timestamp)


async def query_rows(call: Call, asked: requests.Query) -> Response:
    """Return the result of an SQL query, over tables named as [//path], all at one timestamp."""
    query = call.service.query
    content = await query(
        call.principal,
        asked.sql,
        Encoded(call.form),
        parameters=asked.parameters,
        timestamp=asked.timestamp,
        retention_timestamp=asked.retention_timestamp,
        timeout_ms=asked.timeout_ms,
    )
    return Response(content, media_type=TYPES[call.form])


async def selected(
    call: Call,
    asked: requests.SelectRows | requests.SelectInTransaction,
    read: Callable[..., Protocol[tuple[FirstRows, Timestamp]]],
    at: Timestamp,
) -> Response:
    """Return the answer to a select. `read` reads at most so many rows and bytes of a table, at a
    timestamp. If the rows are too long in the format of the answer, fewer rows are read again.
    Raises LimitExceeded if a single row is too long."""
    table, count, bytes_max = asked.table, asked.limit, call.service.settings.answer_bytes_max
    async with call.service.turn_to_select(table, asked.timeout_ms) as run:
        while True:
            (rows, behind), at = await run(read(table, count, bytes_max, timestamp=at))
            shown = await call.shown(table, rows)
            following = None if behind is None else await call.shown_key(table, behind)
            timestamp = None if at == SYNC_LAST_COMMITTED else at
            content = encode_body(answers.SelectedRows(shown, following, timestamp), call.form)
            if len(content) <= bytes_max or len(rows) <= 1:
                break
            count = max(1, len(rows) * bytes_max // (2 * len(content)))
    check_sent(content, bytes_max)
    return Response(content, media_type=TYPES[call.form])


ROUTES: Final = (
    route("POST", "/v1/rows/insert", insert_rows, "write"),
    route("POST", "/v1/rows/delete", delete_rows, "write"),
    route("POST", "/v1/rows/lookup", lookup_rows, "read"),
    route("POST", "/v1/rows/versions", lookup_versions, "read"),
    route("POST", "/v1/rows/select", select_rows, "read", answer=answers.SelectedRows),
    route(
        "POST",
        "/v1/query",
        query_rows,
        "read",
        gives=(*VALUE_FORMS, "arrow"),
        answer=answers.QueryResult,
    ),
)
