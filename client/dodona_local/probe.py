"""Asks a server on this machine whether it is ready.

Owns: one question, `GET /readyz`, bounded in time. Uses bare asyncio, since a HTTP library would
cost the launcher more start-up time than the servers take to answer.
"""

import asyncio
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

ANSWER_S_MAX: Final = 2.0


async def is_ready(url: str) -> bool:
    """Whether `url`/readyz answers 200 now. Never raises for what a server may do."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(ANSWER_S_MAX):
            return b" 200 " in await _status_line(url)
    return False


async def _status_line(url: str) -> bytes:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        request = f"GET /readyz HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        return await reader.readuntil(b"\r\n")
    finally:
        writer.close()
