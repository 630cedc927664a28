"""The REST page that lists the tablets of this cell.

Owns: the path, the JSON, and how much of it there is. It looks at the core and changes nothing.
"""

from typing import Final

import msgspec
from fastapi import FastAPI, Response

from dodona_tablets.core.cell.tablet_counts import TabletCounts, count_tablets
from dodona_tablets.core.node import NodeCore
from dodona_wire.messages.rest import JSON_TYPE

LISTED_MAX: Final = 10_000


class TabletsPage(msgspec.Struct, frozen=True):
    """The first tablets, and how many there are."""

    count: int
    tablets: tuple[TabletCounts, ...]


def add_tablets_page(pages: FastAPI, core: NodeCore) -> None:
    """Serve it."""

    @pages.get("/v1/tablets", operation_id="list_tablets")
    async def list_tablets() -> Response:
        """The tablets of this cell, those included of which it only keeps the rows: their states,
        rows, memory and chunks."""
        found = tuple(count_tablets(core.cell, LISTED_MAX))
        page = TabletsPage(len(core.cell.tablets), found)
        return Response(msgspec.json.encode(page), media_type=JSON_TYPE)
