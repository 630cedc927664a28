"""etcd, a private cluster of one member, through the asyncio client `aetcd`.

Every put is durable and raises the store's revision, which is unique and rises. So etcd is a peer
for timestamps as well as for commits.
"""

import importlib.metadata
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dodona_loadtest.harness.errors import ContenderFailed, ContenderMissing, client_library
from dodona_loadtest.harness.load import AsyncLoad, AsyncOperation
from dodona_loadtest.harness.payload import KEY_BYTES, RowSource
from dodona_loadtest.harness.row import Running
from dodona_loadtest.harness.servers import ServerProcess, command_output, free_port

ONE_KEY: Final = b"timestamp"


@contextmanager
def serve_revisions(folder: Path) -> Iterator[Running]:
    """Start one member, loaded with puts of one key for their revisions."""
    with member(folder) as (port, pid):
        yield Running(RevisionLoad(port), version(), (pid,))


@contextmanager
def serve_puts(folder: Path) -> Iterator[Running]:
    """Start one member, loaded with puts of the benchmark's rows."""
    with member(folder) as (port, pid):
        yield Running(PutLoad(port), version(), (pid,))


@contextmanager
def member(folder: Path) -> Iterator[tuple[int, int]]:
    """Start a member. Yields its client port and its process id."""
    client_library("aetcd")
    port, peer_port = free_port(), free_port()
    client_url, peer_url = (f"http://127.0.0.1:{number}" for number in (port, peer_port))
    command = [_binary(), "--data-dir", str(folder / "data"), "--logger", "zap"]
    command += ["--log-level", "error", "--initial-cluster", f"default={peer_url}"]
    command += ["--listen-client-urls", client_url, "--advertise-client-urls", client_url]
    command += ["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url]
    with ServerProcess(command, folder / "log", lambda: _is_healthy(client_url)) as process:
        yield port, process.pid


def _binary() -> str:
    binary = shutil.which("etcd")
    if binary is None:
        raise ContenderMissing("no etcd on PATH (Debian and Ubuntu: the package etcd-server)")
    return binary


def version() -> str:
    server = command_output([_binary(), "--version"])
    return f"{server}, aetcd {importlib.metadata.version('aetcd')}"


def _is_healthy(client_url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{client_url}/health", timeout=2) as answer:
            return b"true" in answer.read()
    except (urllib.error.URLError, OSError):
        return False


class _EtcdLoad(AsyncLoad):
    """One client, one HTTP/2 connection, the requests of all callers in flight together."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self, callers_max: int) -> None:
        del callers_max  # one connection carries them all
        self._client: Any = client_library("aetcd").Client("127.0.0.1", self._port)
        await self._client.connect()

    async def close(self) -> None:
        await self._client.close()


class RevisionLoad(_EtcdLoad):
    """The revision of a put as a timestamp."""

    def operation(self, caller: int) -> AsyncOperation:
        put = self._client.put

        async def next_revision() -> object:
            return (await put(ONE_KEY, b"")).header.revision

        return next_revision

    async def check(self) -> None:
        first, second = [await self.operation(0)() for _ in range(2)]
        if not isinstance(first, int) or not isinstance(second, int) or first >= second:
            raise ContenderFailed(f"the revision was {first} and then {second}")


class PutLoad(_EtcdLoad):
    """Durable puts of 100-byte rows."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._rows = RowSource()
        self._last_key = b""

    def operation(self, caller: int) -> AsyncOperation:
        put, rows = self._client.put, self._rows

        async def write() -> None:
            key = rows.next_key().to_bytes(KEY_BYTES, "big")
            await put(key, rows.next_value())
            self._last_key = key

        return write

    async def check(self) -> None:
        if await self._client.get(self._last_key) is None:
            raise ContenderFailed(f"key {self._last_key!r} was acknowledged and isn't there")
