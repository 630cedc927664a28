"""The REST page with the book of a server's starts.

Owns: the path and the form. Only servers' pages import this module: it needs FastAPI.
"""

import msgspec
from fastapi import FastAPI, Response

from dodona_server.recovery_book import RecoveryBook
from dodona_wire.cores.recoveries import RecoveryPage
from dodona_wire.messages.rest import JSON_TYPE


def add_recoveries_page(pages: FastAPI, book: RecoveryBook) -> None:
    """Add the page to the application."""

    @pages.get("/v1/recoveries", operation_id="list_recoveries")
    async def list_recoveries() -> Response:
        """List the last starts of this server. Each says how the run before it ended, how long the
        replay took, and what became of the transactions that were undecided then."""
        page = RecoveryPage(book.recoveries)
        return Response(msgspec.json.encode(page), media_type=JSON_TYPE)
