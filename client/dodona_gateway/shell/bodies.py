"""A request's body as it comes, unpacked.

Owns: which header says how a body is packed, and that one which breaks off is an error. What is
unpacked counts as what came does: against the bound of one body, and of all that are under way.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from dodona_gateway.core.unpacking import unpacker_of
from dodona_wire.errors import InvalidRequest, LimitExceeded

TAKE_BODY: Final = "take_body"
"""In a request's state: what takes room for bytes of its body. Raises Overloaded."""


async def pieces_of(request: Request) -> AsyncGenerator[bytes]:
    """Raises InvalidRequest, UnsupportedMediaType."""
    unpacker = unpacker_of(request.headers.get("content-encoding"))
    is_empty = True
    try:
        async for part in request.stream():
            is_empty = is_empty and not part
            for piece in unpacker.feed(part) if part else ():
                yield piece
    except ClientDisconnect as error:
        raise InvalidRequest("the connection ended within the body") from error
    if not is_empty:
        unpacker.finish()


async def whole_body(request: Request, bytes_max: int) -> bytes:
    """Raises InvalidRequest, UnsupportedMediaType, LimitExceeded, Overloaded."""
    is_packed = "content-encoding" in request.headers  # its parts are counted as they come else
    take: Callable[[int], None] | None = getattr(request.state, TAKE_BODY, None)
    parts: list[bytes] = []
    size_bytes = 0
    async with aclosing(pieces_of(request)) as pieces:
        async for piece in pieces:
            size_bytes += len(piece)
            if size_bytes > bytes_max:
                text = f"a body has at most {bytes_max} bytes, unpacked"
                raise LimitExceeded(text, bytes_max=bytes_max)
            if is_packed and take is not None:
                take(len(piece))
            parts.append(piece)
    return b"".join(parts)
