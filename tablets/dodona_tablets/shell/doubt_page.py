"""The REST page that lists what is prepared in this cell and not decided.

Owns: the path, the JSON, and how much of it there is. It looks at the core and changes nothing.
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
    """The oldest transactions, and how many there are."""

    count: int
    transactions: tuple[InDoubt, ...]


def add_doubt_page(pages: FastAPI, core: NodeCore) -> None:
    """Serve it."""

    @pages.get("/v1/in-doubt", operation_id="list_in_doubt")
    async def list_in_doubt() -> Response:
        """The transactions that are prepared in this cell and not decided, as far as it knows,
        oldest first. The `coordinator` decides; until then their rows are locked."""
        found = core.in_doubt(read_clock())
        page = DoubtPage(len(found), tuple(found[:LISTED_MAX]))
        return Response(msgspec.json.encode(page), media_type=JSON_TYPE)
