"""The change feed of a table in the asyncio API: all versions between two timestamps.

Owns: the public names and arguments of the reads of changes, which `AsyncClient` has.
"""

# `python -m twins` makes changes.py of this module.

from collections.abc import Iterator, Sequence
from typing import Any, Self

from dodona._core.protocol.process_bound import ProcessBound
from dodona._core.reading.changes import ChangePages
from dodona._core.session import Session
from dodona._io.bounds import AsyncRun, async_within
from dodona.aio_catalog import AsyncCatalog
from dodona_wire.types import Timestamp


class AsyncChanges(ProcessBound):
    """An iterator of `pyarrow.RecordBatch`, from `AsyncClient.read_changes`. One page at a time is
    in memory.

    With asyncio, iterate over it by `async for`."""

    _instead = "give its `timestamp` to `read_changes` there, as `since`"

    def __init__(self, run: AsyncRun, pages: ChangePages) -> None:
        self._run = run
        self._pages = pages
        self._batches: Iterator[Any] = iter(())

    @property
    def timestamp(self) -> Timestamp:
        """The timestamp at which these changes end. To continue from there, pass it as `since`."""
        return self._pages.timestamp

    def __repr__(self) -> str:
        return f"<dodona.aio.AsyncChanges until {self.timestamp}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while (batch := next(self._batches, None)) is None:
            if self._pages.is_over:
                raise StopAsyncIteration
            page = await self._run(self._pages.next())
            self._batches = iter(page.to_batches())
        return batch


class AsyncChangeReader(AsyncCatalog):
    """The part of a client that reads changes."""

    _session: Session

    async def read_changes(
        self,
        path: str,
        since: int,
        timestamp: Timestamp | None = None,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> AsyncChanges:
        """Return the changes of a table after `since`, as an iterator of `pyarrow.RecordBatch`.

        A change is a version of a row: one write or one deletion. The batches are in key order, and
        newest first within a row.

        - `since`: return versions after this timestamp. 0 is never too old. It returns all versions
          that are left: for each row, at least those that a read at `timestamp` sees.
        - `timestamp`: return versions up to this timestamp. The default is a fresh one.
        - `lower`, `upper`: return only rows with lower ≤ key < upper.
        - `columns`: the columns to return. The default is all columns. A column is null if the
          version does not set it.

        A batch also has these columns:

        - `$timestamp`, uint64: the commit timestamp. All rows of a transaction have the same one.
        - `$change_type`: `"write"` sets all value columns, and the old values do not matter.
          `"update"` sets only some columns, or changes aggregates. `"delete"` deletes the row.
        - `$columns`, a list of names: the requested columns that an update sets. Null if it sets
          all columns of the table, and for a write and a deletion.
        - `$aggregated`, a list of names: the columns whose value is a change that combines with the
          old value. Null if there are none. Only if a requested column is an aggregate.

        To continue, pass `AsyncChanges.timestamp` as `since`, or the timestamp of a snapshot that
        you read. Then you get every version exactly once, also from tables with atomicity `"none"`.

        Raises SnapshotTooOld if retention has passed `since`. To avoid this, hold a snapshot there
        (`hold_snapshot`), or keep versions for longer (`min_data_ttl`). Other errors are as in
        `lookup_rows`.

        With asyncio, use `async for batch in await db.read_changes(…)`."""
        read = self._session.read_changes(path, since, timestamp, lower, upper, columns)
        run = async_within(self._run, timeout_ms)
        return AsyncChanges(run, await run(read))

    async def count_changes(
        self,
        path: str,
        since: int,
        timestamp: Timestamp | None = None,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[tuple[Timestamp, int]]:
        """Count the versions that `read_changes` would return, by time.

        Returns pairs (timestamp, count), with rising timestamps. A count has the versions up to its
        timestamp, and after the timestamp of the pair before. The list is empty if nothing changed.
        A tablet reports about 1,000 different timestamps. If there are more, a count may also
        include versions at or before the timestamp of the pair before. The arguments and the errors
        are as in `read_changes`."""
        count = self._session.count_changes(path, since, timestamp, lower, upper)
        return await self._run(count, timeout_ms)
