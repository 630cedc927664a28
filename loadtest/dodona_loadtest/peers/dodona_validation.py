"""Dodona's commits that validate what their transactions have read: a worker that times them.

Owns: the story of one commit. A transaction reads rows of a table in one tablet. Then others change
a few rows of the tablet, but none in the range that it has read. So the cell has changes to look
through, and no reason to refuse. The transaction writes a row, too, since one that only reads sends
nothing. Only the call of `commit` is timed.
"""

from typing import Final, Literal, NamedTuple

import dodona.aio
from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.measure import percentile
from dodona_loadtest.harness.sample_rows import SampleRows, dicts
from dodona_loadtest.harness.worker_process import Stopwatch
from dodona_loadtest.peers.dodona_storage import DodonaWorker
from dodona_wire.errors import TransactionConflict
from dodona_wire.types import Isolation

CHANGES: Final = 10
"""Rows that others change between the start of a transaction and its commit."""
COMMITS_MIN: Final = 5

Read = Literal["one row", "all rows"]


class Commits(NamedTuple):
    """Medians of the times of the commits, in ms."""

    one_row_ms: float
    all_rows_ms: float


class ValidationWorker(DodonaWorker):
    """A client of a cluster. A test may give its transactions another isolation."""

    isolation: Isolation = "serializable"

    async def time_commits(self, path: str, rows: SampleRows, duration_s: float) -> Commits:
        """Commit in turn after a read of one row and of all rows, for that long. Check at the end
        that a change of a row that was read is noticed. Raises ContenderFailed."""
        times_ms: dict[Read, list[float]] = {"one row": [], "all rows": []}
        watch = Stopwatch()
        while watch.read().duration_s < duration_s or len(times_ms["all rows"]) < COMMITS_MIN:
            for read, found in times_ms.items():
                found.append(await self._commit_after(read, path, rows, rows.last + 1))
        for read in times_ms:
            await self._check_refused(read, path, rows)
        medians = [percentile(sorted(found), 0.5) for found in times_ms.values()]
        return Commits(*medians)

    async def _commit_after(self, read: Read, path: str, rows: SampleRows, changed: int) -> float:
        """Commit while others change rows from the key `changed` on. Return the time in ms."""
        changes = dicts(SampleRows(CHANGES, first=changed))
        own = dicts(SampleRows(1, first=rows.last + 1 + CHANGES))
        async with self._db.begin(isolation=self.isolation) as tx:
            await self._read(tx, read, path, rows)
            await self._db.insert_rows(path, changes)
            await tx.insert_rows(path, own)
            watch = Stopwatch()
            await tx.commit()
            return watch.read().duration_s * 1e3

    async def _read(
        self, tx: dodona.aio.AsyncTransaction, read: Read, path: str, rows: SampleRows
    ) -> None:
        """Read the first row, or all rows as one range."""
        if read == "one row":
            count, wanted = len(await tx.lookup_rows(path, [{"id": rows.first}])), 1
        else:
            table = await tx.read_arrow(path, [rows.first], [rows.last + 1])
            count, wanted = table.num_rows, rows.count
        if count != wanted:
            raise ContenderFailed(f"{count} of {wanted} rows were read")

    async def _check_refused(self, read: Read, path: str, rows: SampleRows) -> None:
        try:
            await self._commit_after(read, path, rows, rows.first)
        except TransactionConflict:
            return
        raise ContenderFailed(f"a change of {read} that a transaction had read was not noticed")


class EmbeddedValidationWorker(ValidationWorker):
    """A database in this process. It gets a folder in place of a URL."""

    async def open(self) -> None:
        self._db = await dodona.aio.open(self._url)
