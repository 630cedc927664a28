"""Open a connection to a server, and give it up again.

Owns: sockets whose connection is not a WebSocket yet. The library of WebSockets leaves such a
socket open when its caller is cancelled. So its caller keeps the socket, and ends it.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from picows.url import WSParsedURL

TURNS_MAX: Final = 10
"""Iterations of the event loop in which a socket that was shut down is closed. It takes three."""


async def connected_socket(host: str, port: int) -> socket.socket:
    """Return a connected socket. Tries all addresses of the name, in order. Raises OSError."""
    loop = asyncio.get_running_loop()
    reasons: list[OSError] = []
    for family, address in await _addresses(host, port):
        made = socket.socket(family, socket.SOCK_STREAM)
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


async def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """Return the family and the address for each address of a name. An address is its own: looking
    it up would need a thread, and there are no new threads after the end of the main thread."""
    try:
        is_new = ipaddress.ip_address(host).version == 6
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]
    return [(socket.AF_INET6 if is_new else socket.AF_INET, (host, port))]


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
