"""Dodona in the storage studies: a cluster, and a worker that drives it through the client.

Owns: what "flushed" means. An unmount flushes all stores of a table's tablets. So after a new mount
the table has its rows in chunks only, except later writes.
"""

import asyncio
import json
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import dodona.aio
from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.measure import Sample, measure_operations
from dodona_loadtest.harness.pinger import Pinger, PingKind, Waits
from dodona_loadtest.harness.sample_rows import SampleRows, arrow_table, dicts
from dodona_loadtest.harness.worker_process import Spent, Stopwatch, Worker, WorkerProcess
from dodona_loadtest.peers.dodona import open_cluster
from dodona_local.launcher import LocalCluster
from dodona_wire.errors import DodonaError, TransactionConflict
from dodona_wire.types import Atomicity

SCHEMA: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "amount", "type": "double"},
    {"name": "count", "type": "int64"},
    {"name": "note", "type": "string"},
]
BATCH_ROWS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 8 << 20
BATCHES_AT_ONCE: Final = 4
PATIENCE_S_MAX: Final = 120.0
"""How long a write is tried again if it is refused for now, because stores are full."""
PATIENCE_PAUSE_S: Final = 0.05
MOUNT_MS_MAX: Final = 300_000
AWAIT_S_MAX: Final = 300.0
ATTEMPT_S_MAX: Final = 0.25
ATTEMPT_PAUSE_S: Final = 0.01

Answer = TypeVar("Answer")


@contextmanager
def serve_worker(
    folder: Path, cores: frozenset[int], **options: Any
) -> "Iterator[tuple[LocalCluster, WorkerProcess[DodonaWorker]]]":
    """Start a cluster of one node, and a client process for it."""
    with (
        open_cluster(folder, **options) as cluster,
        WorkerProcess(DodonaWorker(cluster.master_url), cores) as worker,
    ):
        yield cluster, worker


def node_pid(cluster: LocalCluster) -> int:
    """Return the process of the only node. Raises ContenderFailed while it is down."""
    pid = cluster.processes["node 0"].pid
    if pid is None:
        raise ContenderFailed("the node is down")
    return pid


def log_bytes(cluster: LocalCluster) -> int:
    """Return the size of the only node's log, as the node reports it. Raises ContenderFailed."""
    return int(_page(cluster.node_urls[0], "statistics")["log_bytes"])


def check_in_memory(cluster: LocalCluster, path: str) -> None:
    """Check that a table has no chunk yet. Raises ContenderFailed."""
    tablets = [it for url in cluster.node_urls for it in _page(url, "tablets")["tablets"]]
    if sum(it["chunks"] for it in tablets if it["table"] == path):
        raise ContenderFailed(f"{path} was to stay in memory, and is in chunks")


def _page(node_url: str, name: str) -> Any:
    try:
        with urllib.request.urlopen(f"{node_url}/v1/{name}", timeout=30) as answer:
            return json.load(answer)
    except OSError as error:
        raise ContenderFailed(f"the node doesn't tell its {name}: {error}") from error


class DodonaWorker(Worker):
    """One client. Tables have the columns of `sample_rows`."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self._db = await dodona.aio.connect(self._url)

    async def close(self) -> None:
        await self._db.close()

    # ---- tables

    async def create(self, path: str, atomicity: Atomicity = "none") -> None:
        """Make a mounted table of one tablet."""
        await self._db.create_table(path, schema=SCHEMA, atomicity=atomicity, mount=True)

    async def remove(self, path: str) -> None:
        """Remove the table with all its rows."""
        await self._db.unmount_table(path, timeout_ms=MOUNT_MS_MAX)
        await self._db.remove_table(path)

    async def flush(self, path: str) -> Spent:
        """Flush all rows into chunks."""
        watch = Stopwatch()
        await self._db.unmount_table(path, timeout_ms=MOUNT_MS_MAX)
        await self._db.mount_table(path, timeout_ms=MOUNT_MS_MAX)
        return watch.read()

    async def set_atomicity(self, path: str, atomicity: Atomicity) -> None:
        """Change the atomicity. Bulk writes need a table without it; later it can be atomic."""
        await self._db.unmount_table(path, timeout_ms=MOUNT_MS_MAX)
        await self._db.set(f"{path}/@atomicity", atomicity)
        await self._db.mount_table(path, timeout_ms=MOUNT_MS_MAX)

    # ---- writes

    async def write_bulk(self, path: str, rows: SampleRows) -> Spent:
        """Write Arrow data that is in memory. Making the data is not measured."""
        table = arrow_table(rows)
        watch = Stopwatch()
        count = await _patiently(partial(self._db.write_arrow, path, table))
        spent = watch.read()
        if count != rows.count:
            raise ContenderFailed(f"{count} of {rows.count} rows were written")
        await self._check(path, [rows.first, rows.last])
        return spent

    async def write_rows(self, path: str, rows: SampleRows, padding_bytes: int = 0) -> Spent:
        """Write rows as dicts, in batches, a few together. Making the dicts is measured, too."""
        batch_rows = min(BATCH_ROWS_MAX, max(1, BATCH_BYTES_MAX // (100 + padding_bytes)))
        batches = rows.slices(batch_rows)

        async def write() -> None:
            for batch in batches:  # a free task takes the next batch
                found = dicts(batch, padding_bytes)
                await _patiently(partial(self._db.insert_rows, path, found))

        watch = Stopwatch()
        async with asyncio.TaskGroup() as group:
            for _ in range(BATCHES_AT_ONCE):
                group.create_task(write())
        spent = watch.read()
        await self._check(path, [rows.first, rows.last])
        return spent

    async def rewrite(
        self, path: str, rows: SampleRows, rows_per_call: int, callers: int, duration_s: float
    ) -> Sample:
        """Write existing rows again, at random, `rows_per_call` at a time."""
        random = Random(2013)
        pool = dicts(SampleRows(min(rows.count, BATCH_ROWS_MAX), rows.first, rows.step))
        insert = self._db.insert_rows

        async def write() -> None:
            drawn = [pool[int(random.random() * len(pool))] for _ in range(rows_per_call)]
            await insert(path, [{**row, "id": _random_key(random, rows)} for row in drawn])

        tolerated = (TransactionConflict,)
        sample = await measure_operations([write] * callers, duration_s, tolerated)
        await self._check(path, [rows.first, rows.last])
        return sample

    # ---- reads

    async def scan(self, path: str, rows: SampleRows, range_rows: int, duration_s: float) -> float:
        """Read ranges of the table into Arrow, one after another. Return rows a second."""
        random = Random(2013)
        places = SampleRows(max(1, rows.count - range_rows), rows.first, rows.step)
        count = 0
        watch = Stopwatch()
        while (spent := watch.read()).duration_s < duration_s or not count:
            lower = _random_key(random, places)
            upper = lower + range_rows * rows.step
            found = await self._db.read_arrow(path, [lower], [upper])
            if found.num_rows != min(range_rows, rows.count):
                raise ContenderFailed(f"a range of {range_rows} rows had {found.num_rows}")
            count += found.num_rows
        return count / spent.duration_s

    async def look_up(
        self, path: str, rows: SampleRows, keys_per_call: int, duration_s: float
    ) -> Sample:
        """Look up keys of existing rows, at random, by one caller."""
        return await measure_operations([self._lookup(path, rows, keys_per_call)], duration_s)

    def _lookup(self, path: str, rows: SampleRows, keys_per_call: int) -> AsyncOperation:
        random, look_up = Random(2013), self._db.lookup_rows

        async def read() -> None:
            keys = [{"id": _random_key(random, rows)} for _ in range(keys_per_call)]
            if len(await look_up(path, keys)) != keys_per_call:
                raise ContenderFailed(f"of rows {keys} some are not there")

        return read

    async def _check(self, path: str, keys: list[int]) -> None:
        found = await self._db.lookup_rows(path, [{"id": key} for key in keys])
        if [row["id"] for row in found] != keys:
            raise ContenderFailed(f"rows {keys} were acknowledged and aren't all there")

    # ---- a caller every millisecond

    async def start_pinging(self, kind: PingKind, path: str, rows: SampleRows) -> None:
        """Begin single lookups, or single commits. They go on until `stop_pinging`."""
        operation = self._lookup(path, rows, 1) if kind == "lookup" else self._commit(path, rows)
        await operation()  # this connects, as the other contender's clients have by now
        self._pinger = Pinger(operation, (TransactionConflict,))
        self._pinger.start()

    async def stop_pinging(self) -> Waits:
        """Return how long the pings waited since `start_pinging`."""
        return await self._pinger.stop()

    def _commit(self, path: str, rows: SampleRows) -> AsyncOperation:
        random, insert = Random(2013), self._db.insert_rows
        (row,) = dicts(SampleRows(1))

        async def commit() -> None:
            await insert(path, [{**row, "id": _random_key(random, rows)}])

        return commit

    # ---- servers that are starting

    async def await_read(self, path: str, key: int) -> float:
        """Return the instant (`time.monotonic`) at which a new client had the row."""

        async def read(db: dodona.aio.AsyncClient) -> None:
            if len(await db.lookup_rows(path, [{"id": key}])) != 1:
                raise ContenderFailed(f"row {key} was acknowledged and isn't there")

        return await self._await(read)

    async def await_timestamp(self, host: str, port: int) -> tuple[float, float]:
        """Return two instants: when the server at that port took connections, and when a client
        that had just connected got a timestamp."""
        served = asyncio.create_task(_await_port(host, port))
        answered = await self._await(lambda db: db.generate_timestamp())
        return await served, answered

    async def _await(self, ask: Callable[[dodona.aio.AsyncClient], Awaitable[Any]]) -> float:
        """Wait for an answer. A client waits longer at each retry, so each tries briefly."""
        give_up = time.monotonic() + AWAIT_S_MAX
        while time.monotonic() < give_up:
            with suppress(DodonaError, TimeoutError):
                async with asyncio.timeout(ATTEMPT_S_MAX), AsyncExitStack() as stack:
                    db = await stack.enter_async_context(await dodona.aio.connect(self._url))
                    await ask(db)
                    return time.monotonic()
            await asyncio.sleep(ATTEMPT_PAUSE_S)
        raise ContenderFailed(f"it did not serve in {AWAIT_S_MAX:.0f} s")


async def _await_port(host: str, port: int) -> float:
    give_up = time.monotonic() + AWAIT_S_MAX
    while time.monotonic() < give_up:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            served = time.monotonic()
            writer.close()
            return served
        await asyncio.sleep(0.001)
    raise ContenderFailed(f"nobody listened at port {port} in {AWAIT_S_MAX:.0f} s")


async def _patiently(write: Callable[[], Awaitable[Answer]]) -> Answer:
    give_up = time.monotonic() + PATIENCE_S_MAX
    while True:
        try:
            return await write()
        except DodonaError as error:
            if not error.is_retryable or time.monotonic() > give_up:
                raise
            await asyncio.sleep(PATIENCE_PAUSE_S)


def _random_key(random: Random, rows: SampleRows) -> int:
    return rows.first + rows.step * int(random.random() * rows.count)
