"""Lance through pylance, in the client's process: a table is a folder of files in its own format.

Lance writes files and syncs none of them. Here they are synced after each write, before the clock
stops, as Delta's are: all other systems have their rows on disk by then.
"""

import importlib.metadata
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from dodona_loadtest.harness.errors import ContenderFailed, client_library
from dodona_loadtest.harness.sample_rows import SampleRows, arrow_table
from dodona_loadtest.harness.syncing import files_in, sync_new
from dodona_loadtest.harness.worker_process import Spent, Stopwatch, Worker, WorkerProcess


@contextmanager
def open_lance_worker(
    folder: Path, cores: frozenset[int]
) -> "Iterator[WorkerProcess[LanceWorker]]":
    """Start a client process that keeps its tables in that folder."""
    client_library("lance")
    with WorkerProcess(LanceWorker(folder), cores) as worker:
        yield worker


def version() -> str:
    """Return the version for the report."""
    client_library("lance")
    return f"Lance, pylance {importlib.metadata.version('pylance')}"


class LanceWorker(Worker):
    """Tables have the columns of `sample_rows`. Lance has no keys: a merge names the column."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def open(self) -> None:
        self._library: Any = client_library("lance")

    async def close(self) -> None:
        pass

    async def create(self, table: str, rows: SampleRows) -> None:
        """Make a table with these rows."""
        self._library.write_dataset(arrow_table(rows), self._path(table))

    async def merge(self, table: str, rows: SampleRows) -> Spent:
        """Upsert by id. Making the data is not measured."""
        source = arrow_table(rows)
        known = files_in(Path(self._path(table)))
        watch = Stopwatch()
        merger = self._library.dataset(self._path(table)).merge_insert("id")
        merger.when_matched_update_all().when_not_matched_insert_all().execute(source)
        sync_new(Path(self._path(table)), known)
        return watch.read()

    async def append(self, table: str, rows: SampleRows) -> Spent:
        """Add rows, whether or not their ids are there already."""
        source = arrow_table(rows)
        known = files_in(Path(self._path(table)))
        watch = Stopwatch()
        self._library.write_dataset(source, self._path(table), mode="append")
        sync_new(Path(self._path(table)), known)
        return watch.read()

    async def remove(self, table: str) -> None:
        """Remove the table with all its rows."""
        shutil.rmtree(self._path(table))

    async def count(self, table: str) -> int:
        """Return the number of rows in the table."""
        return int(self._library.dataset(self._path(table)).count_rows())

    async def scan(self, table: str, rows: SampleRows, range_rows: int, duration_s: float) -> float:
        """Read ranges of the table into Arrow, one after another. Return rows a second."""
        random = Random(2013)
        opened = self._library.dataset(self._path(table))
        places = max(1, rows.count - range_rows)
        count = 0
        watch = Stopwatch()
        while (spent := watch.read()).duration_s < duration_s or not count:
            lower = rows.first + rows.step * int(random.random() * places)
            upper = lower + range_rows * rows.step
            found = opened.to_table(filter=f"id >= {lower} AND id < {upper}")
            if found.num_rows != min(range_rows, rows.count):
                raise ContenderFailed(f"a range of {range_rows} rows had {found.num_rows}")
            count += found.num_rows
        return count / spent.duration_s

    def _path(self, table: str) -> str:
        return str(self._folder / table)
