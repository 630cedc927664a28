"""Where the answers of a runtime go: to a connection, or to a caller inside this process.

Owns: what takes an answer, the taker of a request that this process made itself, and the answers
that a runtime gives without its core.
"""

import asyncio
from typing import Final, Protocol

from dodona_wire.messages.base import Failure
from dodona_wire.messages.families import Reply

OVERLOADED: Final = Failure(
    "overloaded", "Too many requests wait for the log. Wait, then repeat the call."
)
CLOSING: Final = Failure(
    "unavailable", "The server is shutting down. Wait, then repeat the call.", {"is_sent": False}
)
"""The core never sees a refused request. For its sender the request counts as not sent."""
NO_CELL: Final = Failure(
    "invalid_request", "This server has no cell. Send the request to a tablet node."
)


class Replier(Protocol):
    """Takes answers. A route is `(replier, request id)`."""

    def reply(self, request_id: int, body: Reply) -> None: ...


class Asker:
    """The replier of one request that was made inside this process."""

    __slots__ = ("future",)

    def __init__(self, future: "asyncio.Future[Reply]") -> None:
        self.future = future

    def reply(self, request_id: int, body: Reply) -> None:
        if not self.future.done():  # the caller may have stopped waiting
            self.future.set_result(body)
