"""Read a request's body in pieces, unpacked.

Owns: which header names the packing of a body, and that a body that breaks off is an error.
Unpacked bytes count like received bytes: against the bound of one body, and against the bound of
all bodies that are under way.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from dodona_gateway.core.unpacking import unpacker_of
from dodona_wire.errors import InvalidRequest, LimitExceeded

TAKE_BODY: Final = "take_body"
"""The name in a request's state of the function that takes room for bytes of the body. The function
raises Overloaded."""


async def pieces_of(request: Request) -> AsyncGenerator[bytes]:
    """Yield the body's pieces, unpacked. Raises InvalidRequest, UnsupportedMediaType."""
    unpacker = unpacker_of(request.headers.get("content-encoding"))
    is_empty = True
    try:
        async for part in request.stream():
            is_empty = is_empty and not part
            for piece in unpacker.feed(part) if part else ():
                yield piece
    except ClientDisconnect as error:
        raise InvalidRequest("The connection closed before the end of the body.") from error
    if not is_empty:
        unpacker.finish()


async def whole_body(request: Request, bytes_max: int) -> bytes:
    """Return the whole body, unpacked, of at most `bytes_max` bytes. Raises InvalidRequest,
    UnsupportedMediaType, LimitExceeded, Overloaded."""
    # A body that is not packed is counted in `receive`.
    is_packed = "content-encoding" in request.headers
    take: Callable[[int], None] | None = getattr(request.state, TAKE_BODY, None)
    parts: list[bytes] = []
    size_bytes = 0
    async with aclosing(pieces_of(request)) as pieces:
        async for piece in pieces:
            size_bytes += len(piece)
            if size_bytes > bytes_max:
                text = f"A body has at most {bytes_max} bytes, unpacked. Send less."
                raise LimitExceeded(text, bytes_max=bytes_max)
            if is_packed and take is not None:
                take(len(piece))
            parts.append(piece)
    return b"".join(parts)
