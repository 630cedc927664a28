"""The REST page with the counts of a server.

Owns: the path and the form. Each server chooses its counts. Only servers import this module: it
needs FastAPI.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import FastAPI, Response

from dodona_wire.messages.rest import JSON_TYPE


def add_statistics_page(pages: FastAPI, collect: Callable[[], dict[str, Any]]) -> None:
    """Serve the values that `collect` returns, by the name of each part."""

    @pages.get("/v1/statistics", operation_id="get_statistics")
    async def get_statistics() -> Response:
        """Return what the server has counted since its start."""
        return Response(msgspec.json.encode(collect()), media_type=JSON_TYPE)
