"""Requests to an edge without sockets, and pretended applications behind it.

Owns: `Exchange`, one request and what was answered, and `edge_of`, an edge with its own limits.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from dodona.errors import Unauthenticated
from dodona_gateway.core.access.principal import ANYBODY, Principal
from dodona_gateway.shell.edge import Authenticate, Edge, Message
from dodona_gateway.shell.gateway import refusal

Application = Callable[[Any, Any, Any], Awaitable[None]]
HOST = (b"host", b"127.0.0.1:8502")
FOREVER = 3600.0


class Limits(msgspec.Struct, frozen=True):
    """As settings, but in fractions of a second."""

    request_count_max: int = 10
    bodies_mib_max: int = 1
    answers_mib_max: int = 1
    request_seconds_max: Any = FOREVER
    stream_seconds_max: Any = FOREVER
    stream_idle_seconds_max: Any = FOREVER


class Exchange:
    """One request: what is still to come of it, and what was answered."""

    def __init__(self, *bodies: bytes, is_whole: bool = True) -> None:
        self._to_come: list[Message] = [
            {"type": "http.request", "body": body, "more_body": True} for body in bodies
        ] or [{"type": "http.request", "body": b"", "more_body": True}]
        if is_whole:
            self._to_come[-1]["more_body"] = False
        self._framing = [(b"transfer-encoding", b"chunked")] if bodies else []
        self.messages: list[Message] = []
        self.may_be_taken = asyncio.Event()
        self.may_be_taken.set()

    async def receive(self) -> Message:
        if not self._to_come:
            await asyncio.Event().wait()
        return self._to_come.pop(0)

    async def send(self, message: Message) -> None:
        await self.may_be_taken.wait()
        self.messages.append(message)

    @property
    def status(self) -> int:
        status: int = self.messages[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def problem(self) -> Any:
        assert self.headers["content-type"] == "application/problem+json"
        (body,) = [it["body"] for it in self.messages[1:]]
        assert int(self.headers["content-length"]) == len(body)
        problem = json.loads(body)
        assert problem["status"] == self.status
        return problem

    async def go(
        self, edge: Edge, path: str = "/v1/x", *headers: tuple[bytes, bytes]
    ) -> "Exchange":
        its_headers = [*headers, *self._framing]
        if not any(name == b"host" for name, _ in headers):
            its_headers.append(HOST)
        scope = {"type": "http", "method": "POST", "path": path, "headers": its_headers}
        await edge(scope, self.receive, self.send)
        return self


async def admit(text: str | None) -> Principal:
    if text == "Bearer good":
        return ANYBODY
    raise Unauthenticated("The token is unknown.")


def edge_of(
    application: Application,
    *,
    is_local: bool = False,
    authenticate: Authenticate = admit,
    **limits: Any,
) -> Edge:
    return Edge(
        application,
        authenticate,
        Limits(**limits),
        lambda scope: scope["path"].startswith("/stream"),
        refusal=refusal,
        is_local=is_local,
    )


TOKEN = (b"authorization", b"Bearer good")
START = {"type": "http.response.start", "status": 200, "headers": []}
BODY = {"type": "http.response.body", "body": b"done"}


async def read_all(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        part: bytes = message["body"]
        body += part
        if not message["more_body"]:
            return body


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads all and answers."""
    await read_all(receive)
    await send(dict(START))
    await send(dict(BODY))
