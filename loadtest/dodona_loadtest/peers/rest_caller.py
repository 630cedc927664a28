"""Callers of a REST server, each on a connection of its own: the same bytes to each contender.

Owns: the requests, in the form of Dodona's gateway, and an HTTP client that costs next to nothing.
It reads an answer whole. A status other than 200 ends the measurement.
"""

import asyncio
import json
from functools import partial
from random import Random
from typing import Any, Final, Self

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.measure import Sample, measure_operations
from dodona_loadtest.harness.worker_process import Worker

TABLE: Final = "//bench/rows"
INSERT: Final = "/v1/rows/insert"
LOOKUP: Final = "/v1/rows/lookup"
KEYS: Final = 100_000
NOTE: Final = "x" * 64
BODIES: Final = 64
"""Large bodies that are made beforehand, and sent again and again."""


class Connection:
    """One connection, with one request at a time."""

    def __init__(
        self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to a server on this machine."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        return cls(f"127.0.0.1:{port}", reader, writer)

    async def post(self, path: str, content: bytes) -> bytes:
        """Send a request, and return the body of the answer. Raises ContenderFailed."""
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        (length,) = [
            int(line[len(b"content-length:") :])
            for line in answer.split(b"\r\n")
            if line.startswith(b"content-length:")
        ]
        body = await self._reader.readexactly(length)
        if not answer.startswith(b"http/1.1 200 "):
            raise ContenderFailed(f"{path} was answered with {body[:500].decode()}")
        return body

    def close(self) -> None:
        self._writer.close()


def row(key: int) -> dict[str, Any]:
    """Return a row of about a hundred bytes."""
    return {"id": key, "amount": key / 7, "count": key * 3, "note": NOTE}


def insert_body(keys: range) -> bytes:
    return json.dumps({"table": TABLE, "rows": [row(key) for key in keys]}).encode()


def lookup_body(key: int) -> bytes:
    return json.dumps({"table": TABLE, "keys": [{"id": key}]}).encode()


class RestCaller(Worker):
    """All callers of one server."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        self._random = Random(1)

    async def close(self) -> None:
        """Do nothing. Connections last for one measurement, because servers close idle ones."""

    async def fill(self) -> None:
        """Give all keys a row, and check that a row comes back as it is."""
        connection = await Connection.open(self._port)
        for start in range(0, KEYS, 1_000):
            await connection.post(INSERT, insert_body(range(start, start + 1_000)))
        found = json.loads(await connection.post(LOOKUP, lookup_body(77)))
        if found != {"rows": [row(77)]}:
            raise ContenderFailed(f"another row was found: {found}")
        connection.close()

    async def insert(self, callers: int, rows: int, duration_s: float) -> Sample:
        """Write rows of existing keys, so many a request."""
        bodies = [
            insert_body(range(start, start + rows))
            for start in (self._random.randrange(KEYS - rows + 1) for _ in range(BODIES))
        ]
        return await self._measure(callers, INSERT, bodies if rows > 1 else None, duration_s)

    async def look_up(self, callers: int, duration_s: float) -> Sample:
        """Look up one key a request."""
        return await self._measure(callers, LOOKUP, None, duration_s)

    async def _measure(
        self, callers: int, path: str, bodies: list[bytes] | None, duration_s: float
    ) -> Sample:
        connections = [await Connection.open(self._port) for _ in range(callers)]
        operations = [partial(self._call, it, path, bodies) for it in connections]
        called: list[AsyncOperation] = list(operations)
        sample = await measure_operations(called, duration_s)
        for connection in connections:
            connection.close()
        return sample

    async def _call(self, connection: Connection, path: str, bodies: list[bytes] | None) -> None:
        key = self._random.randrange(KEYS)
        if bodies is not None:
            content = bodies[key % len(bodies)]
        elif path == LOOKUP:
            content = lookup_body(key)
        else:
            content = insert_body(range(key, key + 1))
        await connection.post(path, content)
