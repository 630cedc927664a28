"""Dodona's loads for the rows of writes without atomicity, of lookups, and of hot rows.

The cluster is the one of `peers.dodona`. Transactions write the rows that the loads read later.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock

import dodona
import dodona.aio
from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.load import AsyncLoad, AsyncOperation, ThreadLoad, ThreadOperation
from dodona_loadtest.harness.payload import RowSource
from dodona_loadtest.harness.row import Running
from dodona_loadtest.peers.dodona import SCHEMA, TABLE, open_cluster, pids_of, version
from dodona_loadtest.peers.shapes import HOT_ROWS, READ_ROWS, batches, check_sum
from dodona_wire.errors import TransactionConflict

RERUN_MS_MAX = 10_000
"""The longest time of an operation. The wait for the client process is longer."""
COUNTERS: list[dict[str, object]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "count", "type": "int64"},
]


@contextmanager
def serve_async_writes(folder: Path) -> Iterator[Running]:
    """Write rows without atomicity, one a call, acknowledged from memory."""
    with open_cluster(folder) as cluster:
        yield Running(AsyncWriteLoad(cluster.master_url, 1), version(), pids_of(cluster))


@contextmanager
def serve_async_batches(folder: Path) -> Iterator[Running]:
    """Write as `serve_async_writes` does, 100 rows a call."""
    with open_cluster(folder) as cluster:
        yield Running(AsyncWriteLoad(cluster.master_url, 100), version(), pids_of(cluster))


@contextmanager
def serve_lookups(folder: Path) -> Iterator[Running]:
    """Look up one key at a snapshot's timestamp."""
    with open_cluster(folder) as cluster:
        yield Running(LookupLoad(cluster.master_url, 1), version(), pids_of(cluster))


@contextmanager
def serve_wide_lookups(folder: Path) -> Iterator[Running]:
    """Look up as `serve_lookups` does, 100 keys a call."""
    with open_cluster(folder) as cluster:
        yield Running(LookupLoad(cluster.master_url, 100), version(), pids_of(cluster))


@contextmanager
def serve_hot_rows(folder: Path) -> Iterator[Running]:
    """Increment a few rows, each in a transaction that reads before it writes."""
    with open_cluster(folder) as cluster:
        yield Running(HotRowLoad(cluster.master_url), version(), pids_of(cluster))


@contextmanager
def serve_hot_lines(folder: Path) -> Iterator[Running]:
    """Increment a few rows, each in a transaction that locks its row before it begins."""
    with open_cluster(folder) as cluster:
        yield Running(LineLoad(cluster.master_url, HOT_ROWS), version(), pids_of(cluster))


@contextmanager
def serve_hot_reruns(folder: Path) -> Iterator[Running]:
    """Increment a few rows, and run each increment again until it commits."""
    with open_cluster(folder) as cluster:
        yield Running(RerunLoad(cluster.master_url, HOT_ROWS), version(), pids_of(cluster))


@contextmanager
def serve_one_line(folder: Path) -> Iterator[Running]:
    """Increment one row, in transactions that lock it before they begin."""
    with open_cluster(folder) as cluster:
        yield Running(LineLoad(cluster.master_url, 1), version(), pids_of(cluster))


@contextmanager
def serve_one_row(folder: Path) -> Iterator[Running]:
    """Increment one row, and run each increment again until it commits."""
    with open_cluster(folder) as cluster:
        yield Running(RerunLoad(cluster.master_url, 1), version(), pids_of(cluster))


@contextmanager
def open_one_row(folder: Path) -> Iterator[Running]:
    """Increment as `serve_one_row` does, by threads of one process."""
    yield Running(EmbeddedOneRowLoad(folder / "dodona"), version())


class ClusterLoad(AsyncLoad):
    """A load with one client. All callers share its connection to each server."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self, callers_max: int) -> None:
        del callers_max
        self._db = await dodona.aio.connect(self._url)

    async def close(self) -> None:
        await self._db.close()


class _CounterLoad(ClusterLoad):
    """A load that increments counters, from zero."""

    def __init__(self, url: str, row_count: int = HOT_ROWS) -> None:
        super().__init__(url)
        self.row_count = row_count
        self._random = random.Random(2013).random
        self._done_count = 0

    def draw_key(self) -> dict[str, int]:
        """Return the key of any counter."""
        return {"id": int(self._random() * self.row_count)}

    def tolerated(self) -> tuple[type[Exception], ...]:
        return (TransactionConflict,)

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        await self._db.create_table(TABLE, schema=COUNTERS, mount=True)
        await self._db.insert_rows(TABLE, [{"id": it, "count": 0} for it in range(self.row_count)])

    async def check(self) -> None:
        rows = await self._db.lookup_rows(TABLE, [{"id": it} for it in range(self.row_count)])
        check_sum([row["count"] for row in rows], self._done_count)


class AsyncWriteLoad(ClusterLoad):
    """insert_rows with durability `async` into a table without atomicity."""

    def __init__(self, url: str, rows_per_call: int) -> None:
        super().__init__(url)
        self._rows_per_call = rows_per_call
        self._rows = RowSource()
        self._last_key = 0

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        await self._db.create_table(TABLE, schema=SCHEMA, atomicity="none", mount=True)

    def operation(self, caller: int) -> AsyncOperation:
        db, rows, places = self._db, self._rows, range(self._rows_per_call)

        async def write() -> None:
            batch = [{"id": rows.next_key(), "payload": rows.next_value()} for _ in places]
            await db.insert_rows(TABLE, batch, durability="async")
            self._last_key = batch[-1]["id"]  # type: ignore[assignment]

        return write

    async def check(self) -> None:
        if len(await self._db.lookup_rows(TABLE, [{"id": self._last_key}])) != 1:
            raise ContenderFailed(f"row {self._last_key} was acknowledged and isn't there")


class LookupLoad(ClusterLoad):
    """lookup_rows at one timestamp, of random keys of a table that is in memory."""

    def __init__(self, url: str, keys_per_call: int) -> None:
        super().__init__(url)
        self._keys_per_call = keys_per_call
        self._random = random.Random(2013).random
        self._found_count = 0

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        await self._db.create_table(TABLE, schema=SCHEMA, mount=True)
        for batch in batches():
            await self._db.insert_rows(TABLE, batch)
        self._timestamp = await self._db.generate_timestamp()

    def operation(self, caller: int) -> AsyncOperation:
        db, at, draw, places = self._db, self._timestamp, self._random, range(self._keys_per_call)

        async def read() -> None:
            keys = [{"id": int(draw() * READ_ROWS)} for _ in places]
            self._found_count = len(await db.lookup_rows(TABLE, keys, timestamp=at))

        return read

    async def check(self) -> None:
        if self._found_count != self._keys_per_call:
            raise ContenderFailed(f"{self._found_count} of {self._keys_per_call} rows were found")


class HotRowLoad(_CounterLoad):
    """begin, lookup_rows, insert_rows, commit. A late caller fails, and tries another row."""

    def operation(self, caller: int) -> AsyncOperation:
        db = self._db

        async def increment() -> None:
            key = self.draw_key()
            async with db.begin() as tx:
                await _increment(tx, key)
            self._done_count += 1

        return increment


class LineLoad(_CounterLoad):
    """begin with a lock, lookup_rows, insert_rows, commit. Callers wait in line, and none fails."""

    def operation(self, caller: int) -> AsyncOperation:
        db = self._db

        async def increment() -> None:
            key = self.draw_key()
            async with db.begin(locks={TABLE: [key]}, wait_ms=RERUN_MS_MAX) as tx:
                await _increment(tx, key)
            self._done_count += 1

        return increment


class RerunLoad(_CounterLoad):
    """`run_in_transaction` with a function that reads the row and writes it. An operation takes as
    long as all its attempts. One that runs out of time has failed."""

    def operation(self, caller: int) -> AsyncOperation:
        db = self._db

        async def increment() -> None:
            attempt = partial(_increment, key=self.draw_key())
            await db.run_in_transaction(attempt, deadline_ms=RERUN_MS_MAX)
            self._done_count += 1

        return increment


async def _increment(tx: dodona.aio.AsyncTransaction, key: dict[str, int]) -> None:
    (row,) = await tx.lookup_rows(TABLE, [key])
    await tx.insert_rows(TABLE, [{**key, "count": row["count"] + 1}])


class EmbeddedOneRowLoad(ThreadLoad):
    """The work of `RerunLoad` on one row, inside the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done_count = 0

    def tolerated(self) -> tuple[type[Exception], ...]:
        return (TransactionConflict,)

    def open(self, callers_max: int) -> None:
        del callers_max
        self._counting = Lock()
        self._db = dodona.open(str(self._folder))
        self._db.create_table(TABLE, schema=COUNTERS, mount=True)
        self._db.insert_rows(TABLE, [{"id": 0, "count": 0}])

    def operation(self, caller: int) -> ThreadOperation:
        db = self._db

        def attempt(tx: dodona.Transaction) -> None:
            (row,) = tx.lookup_rows(TABLE, [{"id": 0}])
            tx.insert_rows(TABLE, [{"id": 0, "count": row["count"] + 1}])

        def increment() -> None:
            db.run_in_transaction(attempt, deadline_ms=RERUN_MS_MAX)
            with self._counting:
                self._done_count += 1

        return increment

    def check(self) -> None:
        rows = self._db.lookup_rows(TABLE, [{"id": 0}])
        check_sum([row["count"] for row in rows], self._done_count)

    def close(self) -> None:
        self._db.close()
