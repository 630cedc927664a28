"""Show the query page: SQL, or YTsaurus's language, at a timestamp, with a bounded table of
results.

Owns: the languages, how much of a result is shown, and how long the query took. A query reads and
never writes: neither language has a statement that writes. `Service.query` bounds the cost of a
query.
"""

from collections.abc import Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec
from fastapi import Response

from dodona._core.protocol.arguments import Parameters
from dodona_gateway.core.query_work import FirstRows, Shown
from dodona_gateway.shell.console.patience import in_time, unless_gone
from dodona_gateway.shell.console.rendering import described, page
from dodona_gateway.shell.console.times import AsOf, read_as_of
from dodona_gateway.shell.console.visits import Visit, read_form
from dodona_gateway.shell.ytsaurus import sql_of
from dodona_server.process import read_clock
from dodona_wire.errors import DodonaError, InvalidRequest
from dodona_wire.rows.json_text import decode_json
from dodona_wire.rows.text_format import unmarked
from dodona_wire.types import Timestamp

LANGUAGES: Final = {"sql": "SQL", "yt": "YTsaurus’s query language"}
ROWS_MAX: Final = 200
COLUMNS_MAX: Final = 100
LATE_SECONDS: Final = 5
"""How much longer than the gateway's deadline the browser waits, so that it gets the gateway's
error."""


class Result(NamedTuple):
    """The first rows and columns of a query's result."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    is_cut: bool
    """Whether there are more rows."""
    column_count: int
    took_ms: int
    at: int | None


async def show_query(visit: Visit) -> Response:
    """Show the form, with the table that the address names, and without a result."""
    visit.principal.check_somewhere("read")
    table = visit.parameters.get("table", "")
    fields = {"query": f"select *\nfrom [{table}]\nlimit 50" if table else ""}
    return _page("query.html", visit, fields, None, None)


async def run_query(visit: Visit) -> Response:
    """Show the same page with a result."""
    return await _run(visit, "query.html")


async def run_query_part(visit: Visit) -> Response:
    """Show the result alone. An error of the query has status 200 too, because the request itself
    worked."""
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
        raise InvalidRequest("The query is empty. Write a query, such as: select 1 as one")
    began_s = perf_counter()
    at = await _at(visit, as_of)
    given = parameters_of(fields.get("parameters", ""))
    sql, parameters = await _sql(visit, fields.get("language", "sql"), text, given)
    found = await unless_gone(visit.request, _first_rows(visit, sql, parameters, at))
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
    """Return the timestamp to read at. For now it is a fresh one, so that the page can show it."""
    if as_of.timestamp is not None:
        return as_of.timestamp
    return await in_time(visit.service.client.generate_timestamp())


async def _first_rows(visit: Visit, sql: str, parameters: Parameters | None, at: int) -> Shown:
    """Read one row more than the page shows, to know whether there are more rows."""
    shape = FirstRows(ROWS_MAX, COLUMNS_MAX)
    query = visit.service.query
    content = await query(
        visit.principal,
        sql,
        shape,
        parameters=parameters,
        timestamp=Timestamp(at),
        rows_max=ROWS_MAX + 1,
    )
    return msgspec.msgpack.decode(content, type=Shown)


def parameters_of(text: str) -> Parameters | None:
    """Return the parameters that a person wrote as JSON, None for an empty field. Raises
    InvalidRequest."""
    if not text.strip():
        return None
    try:
        found = unmarked(decode_json(text), "parameters")
    except (msgspec.MsgspecError, UnicodeError, RecursionError, DodonaError) as error:
        raise InvalidRequest(f"The parameters are not JSON: {error}") from error
    if isinstance(found, dict | list):
        return found
    raise InvalidRequest('The parameters must be an object or a list in JSON, such as {"day": 1}.')


async def _sql(
    visit: Visit, language: str, text: str, given: Parameters | None
) -> tuple[str, Parameters | None]:
    """Return the query in SQL, which is the language that runs, and its parameters. Placeholders of
    YTsaurus's language are replaced by then."""
    if language == "sql":
        return text, given
    if language != "yt":
        raise InvalidRequest(
            f"The language must be {' or '.join(LANGUAGES)}, not {language[:40]!r}."
        )
    if isinstance(given, list):
        raise InvalidRequest('The values of {name} must be an object in JSON, such as {"day": 1}.')
    placeholders = given if isinstance(given, dict) else {}
    return await sql_of(visit.service, visit.principal, text, placeholders), None


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
        parameters=fields.get("parameters", ""),
        as_of=_chosen(fields),
        result=result,
        timeout_ms=(visit.service.settings.request_seconds_max + LATE_SECONDS) * 1000,
        error=None if error is None else described(error),
        now_us=read_clock().unix_us,
    )


def _chosen(fields: Mapping[str, str]) -> AsOf:
    """Return the choice as it was filled in, even if it is not valid."""
    try:
        return read_as_of(fields)
    except DodonaError:
        choice = fields.get("as_of")
        if choice == "time":
            return AsOf("time", fields.get("time", ""), None)
        if choice == "timestamp":
            return AsOf("timestamp", fields.get("timestamp", ""), None)
        return AsOf("now", "", None)
