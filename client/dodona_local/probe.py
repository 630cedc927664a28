"""Asks a server on this machine whether it is ready.

Owns: one question, `GET /readyz`, bounded in time. Uses bare asyncio, since a HTTP library would
cost the launcher more start-up time than the servers take to answer.
"""

import asyncio
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

ANSWER_S_MAX: Final = 2.0
PAGE_BYTES_MAX: Final = 64 << 10


async def is_ready(url: str) -> bool:
    """Whether `url`/readyz answers 200 now. Never raises for what a server may do."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(ANSWER_S_MAX):
            return b" 200 " in await _status_line(url)
    return False


async def readiness_page(url: str) -> bytes:
    """What `url`/readyz says; nothing if nobody answers."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(ANSWER_S_MAX):
            return (await _ask(url, PAGE_BYTES_MAX)).partition(b"\r\n\r\n")[2]
    return b""


async def _status_line(url: str) -> bytes:
    return await _ask(url, None)


async def _ask(url: str, bytes_max: int | None) -> bytes:
    """The answer's first line, or all of it up to so many bytes."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        request = f"GET /readyz HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        if bytes_max is None:
            return await reader.readuntil(b"\r\n")
        answer = b""
        while len(answer) < bytes_max and (part := await reader.read(bytes_max)):
            answer += part
        return answer
    finally:
        writer.close()
