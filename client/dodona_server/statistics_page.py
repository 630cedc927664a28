"""The REST page with what a server counts. Owns the path and the form; what is counted, servers
say. Only servers import this: it needs FastAPI.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import FastAPI, Response

from dodona_wire.messages.rest import JSON_TYPE


def add_statistics_page(pages: FastAPI, collect: Callable[[], dict[str, Any]]) -> None:
    """Serve what `collect` gives, by the name of each part."""

    @pages.get("/v1/statistics", operation_id="get_statistics")
    async def get_statistics() -> Response:
        """What the server counts, since its start."""
        return Response(msgspec.json.encode(collect()), media_type=JSON_TYPE)
