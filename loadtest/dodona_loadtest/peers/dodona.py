"""Dodona itself: a local cluster of real processes, or an embedded database.

The cluster is the one that `dodona up` starts: master, proxy and nodes, all durable, the client
over loopback. All settings are those that a user gets.
"""

import asyncio
import importlib.metadata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import dodona
import dodona.aio
from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.load import AsyncLoad, AsyncOperation, ThreadLoad, ThreadOperation
from dodona_loadtest.harness.payload import KEYS_COUNT, RowSource
from dodona_loadtest.harness.row import Running
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import Replicas
from dodona_local.restart import BACK_OFF_S_MAX
from dodona_wire.errors import DodonaError, TransactionConflict

TABLE: Final = "//bench/rows"
SCHEMA: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "payload", "type": "string"},
]
TIMESTAMPS_CHECKED: Final = 1_000


@contextmanager
def serve_timestamps(folder: Path) -> Iterator[Running]:
    """Start master, proxy and a node; the client asks the proxy."""
    with open_cluster(folder, node_count=1) as cluster:
        yield Running(TimestampLoad(cluster.master_url), version(), pids_of(cluster))


@contextmanager
def serve_commits(folder: Path) -> Iterator[Running]:
    """Start one node with one tablet."""
    with open_cluster(folder, node_count=1) as cluster:
        yield Running(CommitLoad(cluster.master_url, node_count=1), version(), pids_of(cluster))


@contextmanager
def serve_transactions(folder: Path) -> Iterator[Running]:
    """Start as `serve_commits` does; each commit's transaction is begun first."""
    with open_cluster(folder, node_count=1) as cluster:
        load = TransactionLoad(cluster.master_url, node_count=1)
        yield Running(load, version(), pids_of(cluster))


@contextmanager
def serve_two_node_commits(folder: Path) -> Iterator[Running]:
    """Start two nodes with a tablet each: the halves of the keys."""
    with open_cluster(folder, node_count=2) as cluster:
        yield Running(CommitLoad(cluster.master_url, node_count=2), version(), pids_of(cluster))


@contextmanager
def open_embedded(folder: Path) -> Iterator[Running]:
    """Open the same cores inside the client's process."""
    yield Running(EmbeddedLoad(folder / "dodona"), version())


@contextmanager
def open_cluster(
    folder: Path,
    node_count: int = 1,
    back_off_s_max: float = BACK_OFF_S_MAX,
    gateway_count: int = 0,
    replicas: Replicas | None = None,
) -> Iterator[LocalCluster]:
    """Start a cluster as a user gets it, with gateways that ask for no tokens. With
    `replicas`, logs have copies. Raises ContenderFailed for Dodona's own errors."""
    try:
        with LocalCluster(
            folder / "dodona",
            node_count=node_count,
            gateway_count=gateway_count,
            is_insecure=True,
            back_off_s_max=back_off_s_max,
            replicas=replicas,
        ) as cluster:
            yield cluster
    except DodonaError as error:
        raise ContenderFailed(str(error)) from error


def pids_of(cluster: LocalCluster) -> tuple[int, ...]:
    """Return the ids of all servers that are up."""
    return tuple(status.pid for status in cluster.processes.values() if status.pid is not None)


def version() -> str:
    """Return the version for the report."""
    try:
        return f"Dodona {importlib.metadata.version('dodona')}"
    except importlib.metadata.PackageNotFoundError:
        return "Dodona, not installed"


class TimestampLoad(AsyncLoad):
    """One timestamp for each await of a caller."""

    latency_every = 16

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self, callers_max: int) -> None:
        del callers_max  # the client batches them all
        self._db = await dodona.aio.connect(self._url)

    def operation(self, caller: int) -> AsyncOperation:
        return self._db.generate_timestamp

    async def check(self) -> None:
        generate = self._db.generate_timestamp
        batches = [
            await asyncio.gather(*(generate() for _ in range(TIMESTAMPS_CHECKED))) for _ in range(2)
        ]
        if len({*batches[0], *batches[1]}) != 2 * TIMESTAMPS_CHECKED:
            raise ContenderFailed("a timestamp was issued twice")
        if max(batches[0]) >= min(batches[1]):
            raise ContenderFailed("a later timestamp isn't greater")

    async def close(self) -> None:
        await self._db.close()


class CommitLoad(AsyncLoad):
    """Atomic durable transactions that write one row on each node, each in one call."""

    def __init__(self, url: str, node_count: int) -> None:
        self._url = url
        self._node_count = node_count
        self._rows = RowSource()
        self._last_key = 0

    def tolerated(self) -> tuple[type[Exception], ...]:
        return (TransactionConflict,)

    async def open(self, callers_max: int) -> None:
        del callers_max  # one connection to each server carries them all
        self._db = await dodona.aio.connect(self._url)
        stride = KEYS_COUNT // self._node_count
        pivots = [[], *([number * stride] for number in range(1, self._node_count))]
        await self._db.create_table(TABLE, schema=SCHEMA, pivot_keys=pivots, mount=True)
        self._offsets = [number * stride for number in range(self._node_count)]

    def operation(self, caller: int) -> AsyncOperation:
        db, rows, offsets, below = self._db, self._rows, self._offsets, KEYS_COUNT
        below //= self._node_count

        async def write() -> None:
            key, payload = rows.next_key(below), rows.next_value()
            await db.insert_rows(TABLE, [{"id": key + o, "payload": payload} for o in offsets])
            self._last_key = key

        return write

    async def check(self) -> None:
        keys = [{"id": self._last_key + offset} for offset in self._offsets]
        if len(await self._db.lookup_rows(TABLE, keys)) != len(keys):
            raise ContenderFailed(f"rows {keys} were acknowledged and aren't all there")

    async def close(self) -> None:
        await self._db.close()


class TransactionLoad(CommitLoad):
    """The same in three calls: begin (a snapshot, though nothing is read), insert, commit."""

    def operation(self, caller: int) -> AsyncOperation:
        db, rows = self._db, self._rows

        async def write() -> None:
            key, payload = rows.next_key(), rows.next_value()
            transaction = await db.begin()
            await transaction.insert_rows(TABLE, [{"id": key, "payload": payload}])
            await transaction.commit()
            self._last_key = key

        return write


class EmbeddedLoad(ThreadLoad):
    """Atomic durable single-row transactions, all threads through one database object."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = RowSource()
        self._last_key = 0

    def tolerated(self) -> tuple[type[Exception], ...]:
        return (TransactionConflict,)

    def open(self, callers_max: int) -> None:
        del callers_max
        self._db = dodona.open(str(self._path))
        self._db.create_table(TABLE, schema=SCHEMA, mount=True)

    def operation(self, caller: int) -> ThreadOperation:
        db, rows = self._db, self._rows

        def write() -> None:
            key = rows.next_key()
            db.insert_rows(TABLE, [{"id": key, "payload": rows.next_value()}])
            self._last_key = key

        return write

    def check(self) -> None:
        if len(self._db.lookup_rows(TABLE, [{"id": self._last_key}])) != 1:
            raise ContenderFailed(f"row {self._last_key} was acknowledged and isn't there")

    def close(self) -> None:
        self._db.close()
