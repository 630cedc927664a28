"""Redis, a private server with an append-only file, through redis-py's asyncio client and hiredis.

The file is always synced, so a SET is durable before its answer. INCR of one key gives numbers that
are unique and rise, so it is a peer for timestamps. Up to 64 callers have a connection each; more
callers share these.
"""

import importlib.metadata
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dodona_loadtest.harness.errors import ContenderFailed, ContenderMissing, client_library
from dodona_loadtest.harness.load import AsyncLoad, AsyncOperation
from dodona_loadtest.harness.payload import KEY_BYTES, RowSource
from dodona_loadtest.harness.row import Running
from dodona_loadtest.harness.servers import ServerProcess, command_output, free_port

CONNECTIONS_MAX: Final = 64
ONE_KEY: Final = "timestamp"


@contextmanager
def serve_increments(folder: Path) -> Iterator[Running]:
    """Start a server, loaded with INCR of one key, synced before its answer."""
    with _server(folder) as (port, pid):
        yield Running(IncrementLoad(port), _version(), (pid,))


@contextmanager
def serve_sets(folder: Path) -> Iterator[Running]:
    """Start a server, loaded with SET of the benchmark's rows, synced before its answer."""
    with _server(folder) as (port, pid):
        yield Running(SetLoad(port), _version(), (pid,))


@contextmanager
def _server(folder: Path) -> Iterator[tuple[int, int]]:
    """Start a server. Yields its port and its process id."""
    client_library("redis.asyncio")
    client_library("hiredis")
    port = free_port()
    command = [_binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    with ServerProcess(command, folder / "log", lambda: _answers(port)) as process:
        yield port, process.pid


def _binary() -> str:
    binary = shutil.which("redis-server")
    if binary is None:
        raise ContenderMissing("no redis-server on PATH (Debian and Ubuntu: the same package)")
    return binary


def _version() -> str:
    server = command_output([_binary(), "--version"]).partition(" sha=")[0]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("redis", "hiredis")]
    return f"{server}, {', '.join(versions)}"


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


class _RedisLoad(AsyncLoad):
    """A load whose callers each keep to one connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self, callers_max: int) -> None:
        library = client_library("redis.asyncio")
        self._clients: list[Any] = [
            library.Redis(port=self._port, single_connection_client=True)
            for _ in range(min(callers_max, CONNECTIONS_MAX))
        ]
        for client in self._clients:
            await client.initialize()

    def client(self, caller: int) -> Any:
        """Return the client of that caller."""
        return self._clients[caller % len(self._clients)]

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


class IncrementLoad(_RedisLoad):
    """A rising number as a timestamp."""

    def operation(self, caller: int) -> AsyncOperation:
        increment = self.client(caller).incr
        return lambda: increment(ONE_KEY)

    async def check(self) -> None:
        first, second = [await self.operation(0)() for _ in range(2)]
        if not isinstance(first, int) or not isinstance(second, int) or first >= second:
            raise ContenderFailed(f"the number was {first} and then {second}")


class SetLoad(_RedisLoad):
    """Writes of 100-byte rows."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._rows = RowSource()
        self._last_key = b""

    def operation(self, caller: int) -> AsyncOperation:
        put, rows = self.client(caller).set, self._rows

        async def write() -> None:
            key = rows.next_key().to_bytes(KEY_BYTES, "big")
            await put(key, rows.next_value())
            self._last_key = key

        return write

    async def check(self) -> None:
        if await self.client(0).get(self._last_key) is None:
            raise ContenderFailed(f"key {self._last_key!r} was acknowledged and isn't there")
