"""Open a connection to a server, and give it up again.

Owns: sockets whose connection is not a WebSocket yet. The library of WebSockets leaves such a
socket open when its caller is cancelled. So its caller keeps the socket, and ends it.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from picows.url import WSParsedURL

TURNS_MAX: Final = 10
"""Iterations of the event loop in which a socket that was shut down is closed. It takes three."""


async def connected_socket(host: str, port: int) -> socket.socket:
    """Return a connected socket. Tries all addresses of the name, in order. Raises OSError."""
    loop = asyncio.get_running_loop()
    reasons: list[OSError] = []
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        made = socket.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            await loop.sock_connect(made, address)
        except OSError as error:
            made.close()
            reasons.append(error)
        except BaseException:
            made.close()
            raise
        else:
            return made
    if len(reasons) == 1:
        raise reasons[0]
    raise OSError(f"no address of {host} can be reached: {'; '.join(map(str, reasons))}")


@asynccontextmanager
async def ending_sockets() -> AsyncIterator[Callable[[WSParsedURL], Awaitable[socket.socket]]]:
    """Yield a function that returns a connected socket. If the block raises, the socket ends."""
    opened: list[socket.socket] = []

    async def open_socket(url: WSParsedURL) -> socket.socket:
        opened.append(await connected_socket(url.host, url.port))
        return opened[-1]

    try:
        yield open_socket
    except BaseException:
        for it in opened:
            await _end(it)
        raise


async def _end(opened: socket.socket) -> None:
    """Let the owner of this socket see its end, and wait until it has closed it."""
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
    for _ in range(TURNS_MAX):
        if opened.fileno() < 0:
            return
        await asyncio.sleep(0)
    opened.close()  # it has no owner yet
