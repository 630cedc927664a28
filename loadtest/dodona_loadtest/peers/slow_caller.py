"""Callers that send or read as slowly as they can.

Owns: the bytes of each habit. A drip is one byte or a few. A server that waits for the whole
request waits for a day, and only its own deadline ends that.
"""

import asyncio
import socket
import time
from contextlib import suppress
from typing import Final

from dodona_loadtest.harness.worker_process import Worker
from dodona_loadtest.peers.rest_caller import INSERT, LOOKUP, lookup_body

READ_BYTES: Final = 512
BUFFER_BYTES: Final = 4096
"""The buffer at the caller's own end: the system must not read on its behalf."""
DRIP_S: Final = 1.0
"""Seconds between drips of the many callers. They keep servers waiting, and not busy."""
RETRY_S: Final = 0.5
JSON: Final = "content-type: application/json"


def request(method: str, target: str, *headers: str) -> bytes:
    """Return the beginning of a request, up to its body."""
    lines = [f"{method} {target} HTTP/1.1", "host: 127.0.0.1", *headers, "", ""]
    return "\r\n".join(lines).encode()


def _whole(target: str, body: bytes) -> bytes:
    return request("POST", target, JSON, f"content-length: {len(body)}") + body


HEADERS: Final = b"GET /v1/cluster HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: "
HABITS: Final[tuple[tuple[bytes, bytes | None], ...]] = (
    (HEADERS, b"x"),
    (request("POST", INSERT, JSON, "content-length: 100000"), b" "),
    (request("POST", LOOKUP, JSON, "content-length: 100000"), b" "),
    (_whole(LOOKUP, lookup_body(7)), b"\r\n"),
)
"""Slow headers, two slow bodies, and a connection that asks nothing more. Each habit has the bytes
before the drips, and the drip."""


class SlowCaller:
    """One connection. It sends a drip again and again, or reads slowly if `drop` is None. It ends
    when the other end closes it."""

    def __init__(
        self, place: tuple[str, int], begin: bytes, drop: bytes | None, drip_s: float = DRIP_S
    ) -> None:
        self._place = place
        self._begin = begin
        self._drop = drop
        self._drip_s = drip_s
        self.is_open = False
        self.lasted_s = 0.0

    async def run(self) -> None:
        """Run from the first byte to the end of the connection."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        with connection, suppress(ConnectionError):
            await loop.sock_connect(connection, self._place)
            await loop.sock_sendall(connection, self._begin)
            self.is_open = True
            is_wanted = True
            while is_wanted:
                is_wanted = await self._drip(connection, loop)
                await asyncio.sleep(self._drip_s)
        self.is_open = False
        self.lasted_s = time.monotonic() - began

    async def _drip(self, connection: socket.socket, loop: asyncio.AbstractEventLoop) -> bool:
        if self._drop is None:
            return bool(await loop.sock_recv(connection, READ_BYTES))
        await loop.sock_sendall(connection, self._drop)
        with suppress(BlockingIOError):
            return bool(connection.recv(BUFFER_BYTES))
        return True

    async def run_again_and_again(self) -> None:
        """Run again and again until it is cancelled."""
        while True:
            await self.run()
            await asyncio.sleep(RETRY_S)


class SlowCallers(Worker):
    """Many slow callers, of all habits. A caller whose connection ends opens another one."""

    def __init__(self, port: int, count: int) -> None:
        self._place = ("127.0.0.1", port)
        self._count = count

    async def open(self) -> None:
        self._callers = [
            SlowCaller(self._place, *HABITS[number % len(HABITS)]) for number in range(self._count)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def close(self) -> None:
        """Cancel all callers, without a goodbye."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def start(self, within_s: float) -> None:
        """Begin, one after the other."""
        for caller in self._callers:
            self._tasks.append(asyncio.create_task(caller.run_again_and_again()))
            await asyncio.sleep(within_s / self._count)

    async def open_count(self) -> int:
        """Return how many connections are open now."""
        return sum(it.is_open for it in self._callers)
