"""Storage engines inside the client's process: SQLite and LMDB, every commit synced to disk.

Both allow one writer at a time. SQLite waits by a sleep and a retry, which would measure the sleep.
So its threads share one connection under a lock. LMDB queues its writers by itself.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dodona_loadtest.harness.errors import ContenderFailed, client_library
from dodona_loadtest.harness.load import ThreadLoad, ThreadOperation
from dodona_loadtest.harness.payload import KEY_BYTES, RowSource
from dodona_loadtest.harness.row import Running

LMDB_BYTES_MAX: Final = 4 << 30
UPSERT: Final = (
    "INSERT INTO bench (id, payload) VALUES (?, ?) "
    "ON CONFLICT (id) DO UPDATE SET payload = excluded.payload"
)


@contextmanager
def open_sqlite(folder: Path) -> Iterator[Running]:
    """Open SQLite in WAL mode with synchronous=FULL: a commit is durable before it returns."""
    yield Running(SqliteLoad(folder / "bench.sqlite"), f"SQLite {sqlite3.sqlite_version}")


@contextmanager
def open_lmdb(folder: Path) -> Iterator[Running]:
    """Open LMDB with its default syncs: a commit is durable before it returns."""
    lmdb = client_library("lmdb")
    version = ".".join(str(part) for part in lmdb.version())
    yield Running(LmdbLoad(folder), f"LMDB {version}, py-lmdb {lmdb.__version__}")


class SqliteLoad(ThreadLoad):
    """Upserts that commit by themselves."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = RowSource()
        self._last_key = 0

    def open(self, callers_max: int) -> None:
        del callers_max  # they share one connection
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE bench (id INTEGER PRIMARY KEY, payload BLOB)")

    def operation(self, caller: int) -> ThreadOperation:
        execute, lock, rows = self._connection.execute, self._lock, self._rows

        def write() -> None:
            key = rows.next_key()
            with lock:
                execute(UPSERT, (key, rows.next_value()))
            self._last_key = key

        return write

    def check(self) -> None:
        query = "SELECT count(*) FROM bench WHERE id = ?"
        if self._connection.execute(query, (self._last_key,)).fetchone() != (1,):
            raise ContenderFailed(f"row {self._last_key} was acknowledged and isn't there")

    def close(self) -> None:
        self._connection.close()


class LmdbLoad(ThreadLoad):
    """A put and a commit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows = RowSource()
        self._last_key = b""

    def open(self, callers_max: int) -> None:
        del callers_max  # LMDB queues its writers
        lmdb = client_library("lmdb")
        self._environment: Any = lmdb.open(str(self._folder / "lmdb"), map_size=LMDB_BYTES_MAX)

    def operation(self, caller: int) -> ThreadOperation:
        begin, rows = self._environment.begin, self._rows

        def write() -> None:
            key = rows.next_key().to_bytes(KEY_BYTES, "big")
            with begin(write=True) as transaction:
                transaction.put(key, rows.next_value())
            self._last_key = key

        return write

    def check(self) -> None:
        with self._environment.begin() as transaction:
            if transaction.get(self._last_key) is None:
                raise ContenderFailed(f"key {self._last_key!r} was acknowledged and isn't there")

    def close(self) -> None:
        self._environment.close()
