"""Held snapshots in the asyncio API.

Owns: the public names and arguments of `AsyncSnapshot`.
"""

# `python -m twins` makes snapshot.py of this module.

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

from dodona._core.protocol.process_bound import ProcessBound
from dodona._core.reading.holding import Hold
from dodona._core.session import Session
from dodona._io.bounds import AsyncRun
from dodona_wire.types import ReaderId, Timestamp


class AsyncSnapshot(ProcessBound):
    """Tables as they were at one timestamp, from `AsyncClient.hold_snapshot`.

    The client renews the lease in the background while the snapshot is open and the program refers
    to it. Every read of these tables at this timestamp finds the snapshot, also from other
    processes."""

    _instead = "send its `timestamp` and `reader`, and give them to `hold_snapshot` there"

    def __init__(self, run: AsyncRun, session: Session, hold: Hold) -> None:
        self._run = run
        self._session = session
        self._hold = hold

    @property
    def timestamp(self) -> Timestamp:
        """The timestamp of the snapshot, for reads."""
        return self._hold.timestamp

    @property
    def reader(self) -> ReaderId:
        """The number of the reader. Processes that share the work pass it to
        `AsyncClient.hold_snapshot`."""
        return self._hold.reader

    @property
    def tables(self) -> dict[str, int]:
        """The ids of the tables, by path. If a path has another id later, another table is
        there."""
        return dict(self._hold.tables)

    def __repr__(self) -> str:
        return f"<dodona.aio.AsyncSnapshot {self.timestamp}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._session.check_hold_at_end(self._hold)
        finally:
            await self.release()

    async def read_batches(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> AsyncIterator[Any]:
        """Return the rows with lower ≤ key < upper, in key order, as an iterator of
        `pyarrow.RecordBatch`.

        One batch at a time is in memory. If `hold_snapshot` got no timestamp, tables with atomicity
        `"none"` are read at their newest rows. Otherwise as `AsyncClient.read_arrow`.

        With asyncio, use `async for batch in snapshot.read_batches(…)`, without `await`."""
        pages = self._session.read_pages(self._hold, path, lower, upper, columns)
        while not pages.is_over:
            page = await self._run(pages.next(), timeout_ms)
            for batch in page.to_batches():  # blocking: yield from page.to_batches()
                yield batch  # asyncio only
                del batch  # asyncio only
            del page  # it must not stay in memory while the next one comes

    async def split(
        self,
        path: str,
        rows_per_part: int,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[tuple[Any, ...]]:
        """Return the keys at which to cut lower ≤ key < upper into parts for several readers.

        A part has about `rows_per_part` rows at most, and is in one tablet. The keys rise. They are
        the first keys of all parts, except the first part. Raises the errors of reads."""
        return await self._run(self._session.split(path, rows_per_part, lower, upper), timeout_ms)

    async def check(self) -> None:
        """Check that the snapshot was held without a break until now. Then all its reads saw one
        state. The end of the block does this check, too. Raises SnapshotTooOld if the client could
        not reach all cells for most of the lease. Raises InvalidRequest after the release."""
        self._session.check_hold(self._hold)

    async def release(self, *, timeout_ms: int | None = None) -> None:
        """Release the snapshot, for all processes that share it. Repeating the call is harmless."""
        await self._run(self._session.release_hold(self._hold), timeout_ms)
