"""The REST page that lists the master transactions that are open.

Owns: the path and the JSON. It looks at the core and changes nothing.
"""

import msgspec
from fastapi import FastAPI, Response

from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.tree_transactions import OpenTransaction
from dodona_server.process import read_clock
from dodona_wire.messages.rest import JSON_TYPE


class TransactionsPage(msgspec.Struct, frozen=True):
    """All that are open: there are at most a thousand."""

    transactions: tuple[OpenTransaction, ...]


def add_transactions_page(pages: FastAPI, core: MasterCore) -> None:
    """Serve it."""

    @pages.get("/v1/master-transactions", operation_id="list_transactions")
    async def list_transactions() -> Response:
        """The master transactions that are open, oldest first, and for how long each is kept if
        nobody pings it."""
        page = TransactionsPage(tuple(core.open_transactions(read_clock())))
        return Response(msgspec.json.encode(page), media_type=JSON_TYPE)
