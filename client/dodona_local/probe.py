"""Ask a server on this machine whether it is ready.

Owns: one request, such as `GET /readyz`, bounded in time. Uses bare asyncio. To import an HTTP
library, the launcher would need longer than the servers need to start.
"""

import asyncio
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

ANSWER_S_MAX: Final = 2.0
PAGE_BYTES_MAX: Final = 64 << 10


async def is_ready(url: str, path: str = "/readyz") -> bool:
    """Return whether this page answers 200 now. Raises nothing for any answer of a server."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(ANSWER_S_MAX):
            return b" 200 " in await _ask(url, path, None)
    return False


async def readiness_page(url: str) -> bytes:
    """Return the content of `url`/readyz; empty if no server answers."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(ANSWER_S_MAX):
            return (await _ask(url, "/readyz", PAGE_BYTES_MAX)).partition(b"\r\n\r\n")[2]
    return b""


async def _ask(url: str, path: str, bytes_max: int | None) -> bytes:
    """Return the answer's first line, or with `bytes_max` the whole answer up to that size."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        request = f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        if bytes_max is None:
            return await reader.readuntil(b"\r\n")
        answer = b""
        while len(answer) < bytes_max and (part := await reader.read(bytes_max)):
            answer += part
        return answer
    finally:
        writer.close()
