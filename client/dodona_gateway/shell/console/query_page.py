"""The query box: SQL, or YTsaurus's language, at a timestamp, and a bounded table of what it gives.

Owns: which languages there are, how much of a result is shown, and how long it took. It reads and
never writes: there is no statement that would. What a query may cost is `Service.query`'s.
"""

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec
from fastapi import Response

from dodona_gateway.core.query.parser import parse
from dodona_gateway.core.query.translation import to_sql
from dodona_gateway.core.query_work import FirstRows, Shown
from dodona_gateway.shell.console.patience import in_time, unless_gone
from dodona_gateway.shell.console.rendering import described, page
from dodona_gateway.shell.console.times import AsOf, read_as_of
from dodona_gateway.shell.console.visits import Visit, read_form
from dodona_server.process import read_clock
from dodona_wire.errors import DodonaError, InvalidRequest
from dodona_wire.types import Timestamp

LANGUAGES: Final = {"sql": "SQL", "yt": "YTsaurus’s query language"}
ROWS_MAX: Final = 200
COLUMNS_MAX: Final = 100
LATE_SECONDS: Final = 5
"""So much longer than the gateway takes the browser waits: it is told why there is no answer."""


class Result(NamedTuple):
    """What a query gave: the first rows and columns of it."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    is_cut: bool
    """Whether there are more rows."""
    column_count: int
    took_ms: int
    at: int | None


async def show_query(visit: Visit) -> Response:
    """The box, with what the address puts into it, and nothing run yet."""
    visit.principal.check_somewhere("read")
    table = visit.parameters.get("table", "")
    fields = {"query": f"select *\nfrom [{table}]\nlimit 50" if table else ""}
    return _page("query.html", visit, fields, None, None)


async def run_query(visit: Visit) -> Response:
    """The same page with a result."""
    return await _run(visit, "query.html")


async def run_query_part(visit: Visit) -> Response:
    """The result alone. An error is one as well: what failed is the query, not the asking."""
    answer = await _run(visit, "parts/result.html")
    answer.status_code = 200
    return answer


async def _run(visit: Visit, name: str) -> Response:
    fields = await read_form(visit.request, visit.service.settings.address)
    try:
        return _page(name, visit, fields, await _result(visit, fields), None)
    except DodonaError as error:
        return _page(name, visit, fields, None, error)


async def _result(visit: Visit, fields: Mapping[str, str]) -> Result:
    text, as_of = fields.get("query", ""), read_as_of(fields)
    if not text.strip():
        raise InvalidRequest("there is no query: write one, such as select 1 as one")
    began_s = perf_counter()
    at = await _at(visit, as_of)
    sql = await _sql(visit, fields.get("language", "sql"), text)
    found = await unless_gone(visit.request, _first_rows(visit, sql, at))
    took_ms = round((perf_counter() - began_s) * 1000)
    return Result(
        found.columns,
        found.types,
        found.rows,
        found.row_count > ROWS_MAX,
        found.column_count,
        took_ms,
        at,
    )


async def _at(visit: Visit, as_of: AsOf) -> int:
    """A fresh timestamp for now, so that it can be said."""
    if as_of.timestamp is not None:
        return as_of.timestamp
    return await in_time(visit.service.client.generate_timestamp())


async def _first_rows(visit: Visit, sql: str, at: int) -> Shown:
    """One more than are shown, so that it is known whether there are more."""
    shape = FirstRows(ROWS_MAX, COLUMNS_MAX)
    query = visit.service.query
    content = await query(
        visit.principal, sql, shape, timestamp=Timestamp(at), rows_max=ROWS_MAX + 1
    )
    return msgspec.msgpack.decode(content, type=Shown)


async def _sql(visit: Visit, language: str, text: str) -> str:
    """The query in the language that is run."""
    if language == "sql":
        return text
    if language != "yt":
        raise InvalidRequest(f"a language is {' or '.join(LANGUAGES)}, not {language[:40]!r}")
    query = await asyncio.to_thread(parse, text, {})
    schemas = {}
    for path in query.paths:
        visit.principal.check("read", path)
        schemas[path] = (await visit.service.client.get_table(path)).schema
    return (await asyncio.to_thread(to_sql, query, schemas)).sql


def _page(
    name: str,
    visit: Visit,
    fields: Mapping[str, str],
    result: Result | None,
    error: DodonaError | None,
) -> Response:
    return page(
        name,
        visit.principal,
        status=200 if error is None else error.status,
        languages=LANGUAGES,
        language=fields.get("language", "sql"),
        query=fields.get("query", ""),
        as_of=_chosen(fields),
        result=result,
        timeout_ms=(visit.service.settings.request_seconds_max + LATE_SECONDS) * 1000,
        error=None if error is None else described(error),
        now_us=read_clock().unix_us,
    )


def _chosen(fields: Mapping[str, str]) -> AsOf:
    """As it was filled in, even if it means nothing."""
    try:
        return read_as_of(fields)
    except DodonaError:
        choice = fields.get("as_of")
        if choice == "time":
            return AsOf("time", fields.get("time", ""), None)
        if choice == "timestamp":
            return AsOf("timestamp", fields.get("timestamp", ""), None)
        return AsOf("now", "", None)
