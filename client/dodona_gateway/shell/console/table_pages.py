"""Show the pages about tables: the tree, one table, and its rows at a timestamp.

Owns: the content of each page, and its bounds. A caller sees the tables that the token may read,
and the directories that have such a table.
"""

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Final

from fastapi import Response

from dodona._core.catalog.tables import TableInfo
from dodona_gateway.core.console.cluster import OLD_US
from dodona_gateway.core.console.keys import format_bound, read_bound
from dodona_gateway.core.console.server_pages import ReportedTablets, TabletCounts
from dodona_gateway.core.console.tree import ENTRIES_MAX, crumbs_of, entries_of
from dodona_gateway.shell.console.cluster_pages import allowed
from dodona_gateway.shell.console.patience import in_time
from dodona_gateway.shell.console.rendering import described, page
from dodona_gateway.shell.console.times import AsOf, read_as_of
from dodona_gateway.shell.console.visits import Visit
from dodona_server.process import read_clock
from dodona_wire.errors import DodonaError
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import SYNC_LAST_COMMITTED, CellId, TabletId

ROOT: Final = "/"
TABLETS_MAX: Final = 200
ROWS_MAX: Final = 50
ROWS_BYTES_MAX: Final = 4 << 20
COLUMNS_MAX: Final = 100
NOW: Final = AsOf("now", "", None)


async def show_tables(visit: Visit) -> Response:
    """Show the content of a directory."""
    visit.principal.check_somewhere("read")
    directory = visit.parameters.get("path", ROOT)
    client = visit.service.client
    known = await in_time(client.list_tables("//"))
    tables = [it for it in known if allowed(visit.principal, it)]
    names: list[str] = []
    if visit.principal.allows("read", directory):
        names = list(await in_time(client.list(directory)))
    entries = [
        it
        for it in entries_of(directory, tables, names)
        if it.table_count or allowed(visit.principal, it.path)
    ]
    return page(
        "tables.html",
        visit.principal,
        directory=directory,
        crumbs=crumbs_of(directory),
        entries=entries[:ENTRIES_MAX],
        entry_count=len(entries),
    )


async def show_table(visit: Visit) -> Response:
    """Show one table: schema, tablets, attributes."""
    path = visit.parameters.get("path", "")
    visit.principal.check("read", path)
    client, observer = visit.service.client, visit.observer
    observer.note_look()
    table, attributes, reported = await asyncio.gather(
        in_time(client.get_table(path)), in_time(client.get(f"{path}/@")), observer.tablets.get()
    )
    counts = _counts_by_tablet(reported or {})
    known = [counts.get(it.tablet) for it in table.tablets]
    return page(
        "table.html",
        visit.principal,
        path=path,
        crumbs=crumbs_of(path),
        table=table,
        tablets=_tablets(table, counts)[:TABLETS_MAX],
        attributes=attributes,
        sums=_sums([it for it in known if it is not None]),
        is_complete=None not in known,
        oldest_us=_oldest_us(table, reported or {}),
    )


def _counts_by_tablet(
    pages: Mapping[CellId, ReportedTablets],
) -> dict[TabletId, TabletCounts]:
    """Return the counts by tablet. A tablet has one cell; another cell that is about to drop it
    does not report it."""
    return {it.tablet: it for reported in pages.values() for it in reported.page.tablets}


def _oldest_us(table: TableInfo, pages: Mapping[CellId, ReportedTablets]) -> int | None:
    """Return the oldest time at which a cell of the table reported; None if that is recent."""
    cells = {it.cell for it in table.tablets}
    oldest_us = min([it.reported_us for cell, it in pages.items() if cell in cells], default=None)
    is_old = oldest_us is not None and read_clock().unix_us - oldest_us > OLD_US
    return oldest_us if is_old else None


def _tablets(
    table: TableInfo, counts: Mapping[TabletId, TabletCounts]
) -> list[tuple[Any, str, TabletCounts | None]]:
    """Return each tablet with its pivot key as text, and the counts that its cell reports."""
    return [
        (it, format_bound(table.schema, it.pivot_key), counts.get(it.tablet))
        for it in table.tablets
    ]


def _sums(counts: list[TabletCounts]) -> dict[str, int]:
    return {
        "rows": sum(it.rows for it in counts),
        "memory_bytes": sum(it.memory_bytes for it in counts),
        "chunks": sum(it.chunks for it in counts),
        "chunk_bytes": sum(it.chunk_bytes for it in counts),
        "retained": max([it.retained_timestamp for it in counts], default=0),
    }


# ---- rows


async def show_rows(visit: Visit) -> Response:
    """Show some rows in key order, at a timestamp. An error in the request is shown beside the
    form."""
    path = visit.parameters.get("path", "")
    visit.principal.check("read", path)
    schema = await in_time(visit.service.schema(path))
    found: dict[str, Any] = {"rows": None, "error": None, "as_of": NOW}
    status = 200
    try:
        found["as_of"] = read_as_of(visit.parameters)
        found.update(await _rows(visit, path, schema, found["as_of"]))
    except DodonaError as error:
        found["error"], status = described(error), error.status
    return page(
        "rows.html",
        visit.principal,
        status=status,
        path=path,
        crumbs=crumbs_of(path),
        schema=schema,
        columns=schema.columns[:COLUMNS_MAX],
        lower=visit.parameters.get("lower", ""),
        upper=visit.parameters.get("upper", ""),
        **found,
    )


async def _rows(visit: Visit, path: str, schema: TableSchema, as_of: AsOf) -> dict[str, Any]:
    service = visit.service
    lower = read_bound(schema, visit.parameters.get("lower", ""), "from key")
    upper = read_bound(schema, visit.parameters.get("upper", ""), "up to key")
    names = [it.name for it in schema.columns[:COLUMNS_MAX]]
    at = SYNC_LAST_COMMITTED if as_of.timestamp is None else as_of.timestamp
    read = service.session.first_rows(path, ROWS_MAX, ROWS_BYTES_MAX, lower, upper, names, at)
    began_s = perf_counter()
    (rows, behind), read_at = await in_time(service.run(read))
    return {
        "rows": [list(it.values()) for it in rows],
        "following": None if behind is None else format_bound(schema, behind),
        "at": None if read_at == SYNC_LAST_COMMITTED else read_at,
        "took_ms": (perf_counter() - began_s) * 1000,
    }
