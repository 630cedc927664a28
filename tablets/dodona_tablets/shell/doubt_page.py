"""Serve the REST page that lists the transactions that are in doubt in this cell.

Owns: the path, the JSON, and the limit of the list. The page reads the core and changes nothing.
"""

from typing import Final

import msgspec
from fastapi import FastAPI, Response

from dodona_server.process import read_clock
from dodona_tablets.core.counts import InDoubt
from dodona_tablets.core.node import NodeCore
from dodona_wire.messages.rest import JSON_TYPE

LISTED_MAX: Final = 1_000


class DoubtPage(msgspec.Struct, frozen=True):
    """The oldest transactions in doubt, and the number of all."""

    count: int
    transactions: tuple[InDoubt, ...]


def add_doubt_page(pages: FastAPI, core: NodeCore) -> None:
    """Add the page."""

    @pages.get("/v1/in-doubt", operation_id="list_in_doubt")
    async def list_in_doubt() -> Response:
        """List the transactions that are prepared in this cell and not decided, as far as it knows,
        oldest first. The `coordinator` decides. Until then their rows are locked."""
        found = core.in_doubt(read_clock())
        page = DoubtPage(len(found), tuple(found[:LISTED_MAX]))
        return Response(msgspec.json.encode(page), media_type=JSON_TYPE)
