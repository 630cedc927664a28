"""What became of a table's rows between two timestamps, in the asyncio API.

Owns: the public names and arguments of the reads of changes, which `AsyncClient` has; `changes` is
its twin, name by name, and says what each method does.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from dodona._core.protocol.process_bound import ProcessBound
from dodona._core.reading.changes import ChangePages
from dodona._core.session import Session
from dodona._io.bounds import AsyncRun, async_within
from dodona.aio_catalog import AsyncCatalog
from dodona_wire.types import Timestamp


class AsyncChanges(ProcessBound):
    """As `dodona.Changes`: `async for` it."""

    _instead = "give its `timestamp` to `read_changes` there, as `since`"

    def __init__(self, run: AsyncRun, pages: ChangePages) -> None:
        self._run = run
        self._pages = pages
        self._batches: Iterator[Any] = iter(())

    @property
    def timestamp(self) -> Timestamp:
        """As `dodona.Changes.timestamp`."""
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
    """As `dodona.changes.ChangeReader`."""

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
        """As `dodona.Client.read_changes`: `async for batch in await db.read_changes(…)`."""
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
        """As `dodona.Client.count_changes`."""
        count = self._session.count_changes(path, since, timestamp, lower, upper)
        return await self._run(count, timeout_ms)
