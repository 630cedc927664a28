"""Where the answers of a runtime go: to a connection, or to a caller inside this process.

Owns: what takes an answer, and the taker of a request that this process made itself.
"""

import asyncio
from typing import Protocol

from dodona_wire.messages.families import Reply


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
