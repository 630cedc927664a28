"""PostgreSQL's loads for the rows of writes from memory, of lookups, and of hot rows.

The writes are acknowledged from memory. The server is the one of `peers.postgres`, with a
connection for each caller.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.errors import ContenderFailed, client_library
from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.row import Running
from dodona_loadtest.peers.postgres import (
    CREATE_TABLE,
    UPSERT,
    ConnectionsLoad,
    UpsertLoad,
    server,
    version,
)
from dodona_loadtest.peers.shapes import HOT_ROWS, READ_ROWS, batches, check_sum

REPEATABLE_READ: Final = "SET default_transaction_isolation = 'repeatable read'"
ASYNC: Final = "SET synchronous_commit = off"
UPSERT_ROWS: Final = (
    "INSERT INTO bench (id, payload) SELECT DISTINCT ON (id) id, payload "
    "FROM unnest($1::bigint[], $2::bytea[]) AS it (id, payload) "
    "ON CONFLICT (id) DO UPDATE SET payload = excluded.payload"
)
CREATE_COUNTERS: Final = "CREATE TABLE bench (id bigint PRIMARY KEY, count bigint)"


@contextmanager
def serve_async_writes(folder: Path) -> Iterator[Running]:
    """Upsert one row, acknowledged before it is on disk."""
    with server(folder) as served:
        yield Running(AsyncUpsertLoad(served.port), version(), (served.pid,))


@contextmanager
def serve_async_batches(folder: Path) -> Iterator[Running]:
    """Upsert as `serve_async_writes` does, 100 rows in a statement."""
    with server(folder) as served:
        yield Running(AsyncBatchLoad(served.port), version(), (served.pid,))


@contextmanager
def serve_lookups(folder: Path) -> Iterator[Running]:
    """Look up one key."""
    with server(folder) as served:
        yield Running(LookupLoad(served.port, 1), version(), (served.pid,))


@contextmanager
def serve_wide_lookups(folder: Path) -> Iterator[Running]:
    """Look up 100 keys."""
    with server(folder) as served:
        yield Running(LookupLoad(served.port, 100), version(), (served.pid,))


@contextmanager
def serve_hot_rows(folder: Path) -> Iterator[Running]:
    """Increment a few rows at REPEATABLE READ."""
    with server(folder) as served:
        yield Running(HotRowLoad(served.port), version(), (served.pid,))


@contextmanager
def serve_hot_lines(folder: Path) -> Iterator[Running]:
    """Increment a few rows, which each caller locks before it reads."""
    with server(folder) as served:
        yield Running(LineLoad(served.port, HOT_ROWS), version(), (served.pid,))


@contextmanager
def serve_one_row(folder: Path) -> Iterator[Running]:
    """Increment one row, which each caller locks before it reads."""
    with server(folder) as served:
        yield Running(LineLoad(served.port, 1), version(), (served.pid,))


class AsyncUpsertLoad(UpsertLoad):
    """The same upserts as elsewhere, without a wait for the disk."""

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        for connection in self._connections:
            await connection.execute(ASYNC)


class AsyncBatchLoad(AsyncUpsertLoad):
    """100 rows in one prepared statement: keys and values are an array each."""

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        self._statements = await self.prepare(UPSERT_ROWS)

    def operation(self, caller: int) -> AsyncOperation:
        upsert, rows = self._statements[caller].fetchval, self._rows

        async def write() -> None:
            keys = [rows.next_key() for _ in range(100)]
            await upsert(keys, [rows.next_value() for _ in keys])
            self._last_key = keys[-1]

        return write


class LookupLoad(ConnectionsLoad):
    """A prepared SELECT by primary key, of rows that are in the server's memory."""

    def __init__(self, port: int, keys_per_call: int) -> None:
        super().__init__(port)
        self._keys_per_call = keys_per_call
        self._random = random.Random(2013).random
        self._found_count = 0

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        first = self._connections[0]
        await first.execute(CREATE_TABLE)
        for batch in batches():
            await first.executemany(UPSERT, [(row["id"], row["payload"]) for row in batch])
        await first.execute("VACUUM ANALYZE bench")
        which = "id = $1" if self._keys_per_call == 1 else "id = ANY($1::bigint[])"
        query = f"SELECT id, payload FROM bench WHERE {which}"
        self._statements = await self.prepare(query)

    def operation(self, caller: int) -> AsyncOperation:
        fetch, draw = self._statements[caller].fetch, self._random
        count = self._keys_per_call

        async def read_one() -> None:
            self._found_count = len(await fetch(int(draw() * READ_ROWS)))

        async def read() -> None:
            keys = [int(draw() * READ_ROWS) for _ in range(count)]
            self._found_count = len(await fetch(keys)) + len(keys) - len(set(keys))

        return read_one if count == 1 else read

    async def check(self) -> None:
        if self._found_count != self._keys_per_call:
            raise ContenderFailed(f"{self._found_count} of {self._keys_per_call} rows were found")


class _CounterLoad(ConnectionsLoad):
    """A load that increments counters, from zero."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._done_count = 0

    async def check(self) -> None:
        rows = await self._connections[0].fetch("SELECT count FROM bench")
        check_sum([row["count"] for row in rows], self._done_count)


class HotRowLoad(_CounterLoad):
    """BEGIN, prepared SELECT, prepared UPDATE, COMMIT. A late caller fails, and tries another."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._random = random.Random(2013).random

    def tolerated(self) -> tuple[type[Exception], ...]:
        failed: type[Exception] = client_library("asyncpg").SerializationError
        return (failed,)

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        first = self._connections[0]
        for connection in self._connections:
            await connection.execute(REPEATABLE_READ)
        await first.execute(CREATE_COUNTERS)
        await first.executemany(
            "INSERT INTO bench VALUES ($1, 0)", [(it,) for it in range(HOT_ROWS)]
        )
        self._reads = await self.prepare("SELECT count FROM bench WHERE id = $1")
        self._writes = await self.prepare("UPDATE bench SET count = $2 WHERE id = $1")

    def operation(self, caller: int) -> AsyncOperation:
        connection, draw = self._connections[caller], self._random
        read, write = self._reads[caller].fetchval, self._writes[caller].fetchval

        async def increment() -> None:
            key = int(draw() * HOT_ROWS)
            async with connection.transaction():  # at the connection's default level
                await write(key, await read(key) + 1)
            self._done_count += 1

        return increment


class LineLoad(_CounterLoad):
    """BEGIN, a prepared SELECT FOR UPDATE, a prepared UPDATE, COMMIT, at READ COMMITTED. Callers
    wait in line for the row, and none fails."""

    def __init__(self, port: int, row_count: int) -> None:
        super().__init__(port)
        self._row_count = row_count
        self._random = random.Random(2013).random

    async def open(self, callers_max: int) -> None:
        await super().open(callers_max)
        await self._connections[0].execute(CREATE_COUNTERS)
        await self._connections[0].executemany(
            "INSERT INTO bench VALUES ($1, 0)", [(it,) for it in range(self._row_count)]
        )
        self._reads = await self.prepare("SELECT count FROM bench WHERE id = $1 FOR UPDATE")
        self._writes = await self.prepare("UPDATE bench SET count = $2 WHERE id = $1")

    def operation(self, caller: int) -> AsyncOperation:
        connection, draw = self._connections[caller], self._random
        read, write = self._reads[caller].fetchval, self._writes[caller].fetchval

        async def increment() -> None:
            key = int(draw() * self._row_count)
            async with connection.transaction():
                await write(key, await read(key) + 1)
            self._done_count += 1

        return increment
