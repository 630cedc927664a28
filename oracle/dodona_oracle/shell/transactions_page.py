"""The REST page that lists the open master transactions.

Owns: the path and the JSON. It reads the core and changes nothing.
"""

import msgspec
from fastapi import FastAPI, Response

from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.tree_transactions import OpenTransaction
from dodona_server.process import read_clock
from dodona_wire.messages.rest import JSON_TYPE


class TransactionsPage(msgspec.Struct, frozen=True):
    """All open master transactions. There are at most 1,000."""

    transactions: tuple[OpenTransaction, ...]


def add_transactions_page(pages: FastAPI, core: MasterCore) -> None:
    """Add the page to the application."""

    @pages.get("/v1/master-transactions", operation_id="list_transactions")
    async def list_transactions() -> Response:
        """List the open master transactions, oldest first. Each shows how long it stays open if no
        client pings it."""
        page = TransactionsPage(tuple(core.open_transactions(read_clock())))
        return Response(msgspec.json.encode(page), media_type=JSON_TYPE)
