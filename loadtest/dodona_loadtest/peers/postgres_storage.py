"""PostgreSQL in the storage studies: a worker with a few connections.

Bulk data arrive in COPY's own binary format, ready in memory, and leave in it. No client converts
them, which is in PostgreSQL's favour.
"""

import asyncio
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from dodona_loadtest.harness.errors import ContenderFailed, client_library
from dodona_loadtest.harness.load import AsyncOperation
from dodona_loadtest.harness.measure import Sample, measure_operations
from dodona_loadtest.harness.pinger import Pinger, PingKind, Waits
from dodona_loadtest.harness.sample_rows import (
    NOTE_BYTES,
    ROW_BYTES,
    SampleRows,
    postgres_copy_data,
)
from dodona_loadtest.harness.worker_process import Spent, Stopwatch, Worker, WorkerProcess
from dodona_loadtest.peers.postgres import Served, connect_all, server

COLUMNS: Final = ("id", "amount", "count", "note")
CREATE: Final = (
    "CREATE TABLE {table} (id bigint NOT NULL, amount double precision, count bigint, note bytea)"
)
ADD_KEY: Final = "ALTER TABLE {table} ADD PRIMARY KEY (id)"
UPSERT: Final = (
    "INSERT INTO {table} (id, amount, count, note) VALUES ($1, $2, $3, $4) ON CONFLICT (id) "
    "DO UPDATE SET amount = excluded.amount, count = excluded.count, note = excluded.note"
)
COPY_ROWS_MAX: Final = 500_000
CONNECTIONS_MAX: Final = 64
PINGING_CONNECTIONS: Final = 16
"""Pings that are under way together; others wait for a connection."""
AWAIT_S_MAX: Final = 300.0
ATTEMPT_PAUSE_S: Final = 0.01


@contextmanager
def serve_postgres_worker(
    folder: Path, cores: frozenset[int]
) -> "Iterator[tuple[Served, WorkerProcess[PostgresWorker]]]":
    """Start a server, and a client process for it."""
    with (
        server(folder) as served,
        WorkerProcess(PostgresWorker(served.port), cores) as worker,
    ):
        yield served, worker


class PostgresWorker(Worker):
    """A worker. Tables have the columns of `sample_rows`, and the same primary key as Dodona's."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._pools: dict[int, list[Any]] = {}

    async def open(self) -> None:
        client_library("asyncpg")

    async def close(self) -> None:
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close connections before the server ends. Later calls connect again."""
        for pool in self._pools.values():
            for connection in pool:
                with suppress(OSError):
                    await connection.close(timeout=5)
        self._pools.clear()

    async def _connection(self) -> Any:
        return (await self._pool(1))[0]

    async def _pool(self, count: int) -> list[Any]:
        if count not in self._pools:
            self._pools[count] = await connect_all(self._port, count)
        return self._pools[count]

    # ---- tables

    async def create(self, table: str, rows: SampleRows) -> None:
        """Make a table with these rows; the key comes last, which is quickest."""
        connection = await self._connection()
        await connection.execute(CREATE.format(table=table))
        for part in rows.slices(COPY_ROWS_MAX):
            await self._copy(table, postgres_copy_data(part))
        await connection.execute(ADD_KEY.format(table=table))
        await connection.execute(f"ANALYZE {table}")

    async def remove(self, table: str) -> None:
        """Remove the table with all its rows."""
        await (await self._connection()).execute(f"DROP TABLE {table}")

    async def checkpoint(self) -> Spent:
        """Write all pages to disk."""
        watch = Stopwatch()
        await (await self._connection()).execute("CHECKPOINT")
        return watch.read()

    # ---- writes

    async def copy(self, table: str, rows: SampleRows) -> Spent:
        """Write rows in one COPY. Making its data is not measured."""
        data = postgres_copy_data(rows)
        watch = Stopwatch()
        await self._copy(table, data)
        spent = watch.read()
        await self._check(table, [rows.first, rows.last])
        return spent

    async def _copy(self, table: str, data: bytes) -> None:
        connection = await self._connection()
        source = io.BytesIO(data)
        await connection.copy_to_table(table, source=source, columns=COLUMNS, format="binary")

    async def fill_log(self, table: str, rows: SampleRows, padding_bytes: int) -> int:
        """Write rows with longer notes. Return the bytes by which the log grew."""
        connection = await self._connection()
        position = "SELECT pg_current_wal_lsn() - '0/0'"
        before = await connection.fetchval(position)
        await connection.execute(CREATE.format(table=table) + " WITH (autovacuum_enabled = off)")
        await connection.execute(ADD_KEY.format(table=table))
        await connection.execute(f"ALTER TABLE {table} ALTER note SET STORAGE plain")
        await connection.execute(
            f"INSERT INTO {table} SELECT id, id * 0.5, id, "
            f"decode(repeat(md5(id::text), {-(-(NOTE_BYTES + padding_bytes) // 16)}), 'hex') "
            "FROM generate_series($1::bigint, $2::bigint) AS id",
            rows.first,
            rows.last,
            timeout=600,
        )
        return int(await connection.fetchval(position) - before)

    async def upsert(self, table: str, rows: SampleRows, callers: int, duration_s: float) -> Sample:
        """Write existing rows again, at random, one at a time, each committed by itself."""
        pool = await self._pool(min(callers, CONNECTIONS_MAX))
        statements = [await c.prepare(UPSERT.format(table=table)) for c in pool]
        random = Random(2013)
        operations = [_upsert(statement.fetchval, random, rows) for statement in statements]
        return await measure_operations(operations, duration_s)

    # ---- reads

    async def scan(self, table: str, rows: SampleRows, range_rows: int, duration_s: float) -> float:
        """Read ranges of the table in COPY's format, one after another. Return rows a second."""
        connection, random = await self._connection(), Random(2013)
        places = SampleRows(max(1, rows.count - range_rows), rows.first, rows.step)
        query = f"SELECT * FROM {table} WHERE id >= $1 AND id < $2"
        count = 0
        watch = Stopwatch()
        while (spent := watch.read()).duration_s < duration_s or not count:
            lower = _random_key(random, places)
            upper = lower + range_rows * rows.step
            sink = io.BytesIO()
            said = await connection.copy_from_query(
                query, lower, upper, output=sink, format="binary"
            )
            count += int(said.rpartition(" ")[2])
            if sink.tell() < range_rows * ROW_BYTES:
                raise ContenderFailed(f"a range of {range_rows} rows had {sink.tell()} bytes")
        return count / spent.duration_s

    async def look_up(
        self, table: str, rows: SampleRows, keys_per_call: int, duration_s: float
    ) -> Sample:
        """Look up keys of existing rows, at random, by one caller."""
        lookup = await self._lookup(await self._connection(), table, rows, keys_per_call)
        return await measure_operations([lookup], duration_s)

    async def _lookup(
        self, connection: Any, table: str, rows: SampleRows, keys_per_call: int
    ) -> AsyncOperation:
        query = f"SELECT * FROM {table} WHERE id = ANY($1::bigint[])"
        fetch = (await connection.prepare(query)).fetch
        random = Random(2013)

        async def read() -> None:
            keys = {_random_key(random, rows) for _ in range(keys_per_call)}
            if len(await fetch(list(keys))) != len(keys):
                raise ContenderFailed(f"of rows {keys} some are not there")

        return read

    async def _check(self, table: str, keys: list[int]) -> None:
        query = f"SELECT count(*) FROM {table} WHERE id = ANY($1::bigint[])"
        if await (await self._connection()).fetchval(query, keys) != len(keys):
            raise ContenderFailed(f"rows {keys} were acknowledged and aren't all there")

    # ---- a caller every millisecond

    async def start_pinging(self, kind: PingKind, table: str, rows: SampleRows) -> None:
        """Begin single lookups, or single commits. They go on until `stop_pinging`."""
        free: asyncio.Queue[AsyncOperation] = asyncio.Queue()
        random = Random(2013)
        for connection in await self._pool(PINGING_CONNECTIONS):
            if kind == "lookup":
                free.put_nowait(await self._lookup(connection, table, rows, 1))
            else:
                statement = await connection.prepare(UPSERT.format(table=table))
                free.put_nowait(_upsert(statement.fetchval, random, rows))

        async def ping() -> None:
            operation = await free.get()
            try:
                await operation()
            finally:
                free.put_nowait(operation)

        self._pinger = Pinger(ping, ())
        self._pinger.start()

    async def stop_pinging(self) -> Waits:
        """Return how long the pings waited since `start_pinging`."""
        return await self._pinger.stop()

    # ---- servers that are starting

    async def await_read(self, table: str, key: int) -> float:
        """Return the instant (`time.monotonic`) at which a new client had the row."""
        asyncpg = client_library("asyncpg")
        give_up = time.monotonic() + AWAIT_S_MAX
        while time.monotonic() < give_up:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                (connection,) = await connect_all(self._port, 1)
                try:
                    found = await connection.fetch(f"SELECT * FROM {table} WHERE id = $1", key)
                    answered = time.monotonic()
                finally:
                    await connection.close()
                if len(found) != 1:
                    raise ContenderFailed(f"row {key} was acknowledged and isn't there")
                return answered
            await asyncio.sleep(ATTEMPT_PAUSE_S)
        raise ContenderFailed(f"it did not serve in {AWAIT_S_MAX:.0f} s")


def _upsert(upsert: Any, random: Random, rows: SampleRows) -> AsyncOperation:
    note = bytes(NOTE_BYTES)

    async def write() -> None:
        await upsert(_random_key(random, rows), random.random(), 7, note)

    return write


def _random_key(random: Random, rows: SampleRows) -> int:
    return rows.first + rows.step * int(random.random() * rows.count)
