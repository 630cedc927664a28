"""Serve the REST page that lists the tablets of this cell.

Owns: the path, the JSON, and the limit of the list. The page reads the core and changes nothing.
"""

from typing import Final

import msgspec
from fastapi import FastAPI, Response

from dodona_tablets.core.cell.tablet_counts import TabletCounts, count_tablets
from dodona_tablets.core.node import NodeCore
from dodona_wire.messages.rest import JSON_TYPE

LISTED_MAX: Final = 10_000


class TabletsPage(msgspec.Struct, frozen=True):
    """The first tablets, and the number of all."""

    count: int
    tablets: tuple[TabletCounts, ...]


def add_tablets_page(pages: FastAPI, core: NodeCore) -> None:
    """Add the page."""

    @pages.get("/v1/tablets", operation_id="list_tablets")
    async def list_tablets() -> Response:
        """List the tablets of this cell: their states, rows, memory and chunks. The list includes
        tablets of which the cell only keeps the rows."""
        found = tuple(count_tablets(core.cell, LISTED_MAX))
        page = TabletsPage(len(core.cell.tablets), found)
        return Response(msgspec.json.encode(page), media_type=JSON_TYPE)
