"""A snapshot that is held for as long as somebody reads it, in the asyncio API.

Owns: the public names and arguments of `AsyncSnapshot`; `dodona.snapshot` is its twin, name by
name, and says what each method does.
"""

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

from dodona._core.protocol.process_bound import ProcessBound
from dodona._core.reading.holding import Hold
from dodona._core.session import Session
from dodona._io.bounds import AsyncRun
from dodona_wire.types import ReaderId, Timestamp


class AsyncSnapshot(ProcessBound):
    """As `dodona.Snapshot`."""

    _instead = "send its `timestamp` and `reader`, and give them to `hold_snapshot` there"

    def __init__(self, run: AsyncRun, session: Session, hold: Hold) -> None:
        self._run = run
        self._session = session
        self._hold = hold

    @property
    def timestamp(self) -> Timestamp:
        """As `dodona.Snapshot.timestamp`."""
        return self._hold.timestamp

    @property
    def reader(self) -> ReaderId:
        """As `dodona.Snapshot.reader`."""
        return self._hold.reader

    @property
    def tables(self) -> dict[str, int]:
        """As `dodona.Snapshot.tables`."""
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
        """As `dodona.Snapshot.read_batches`: `async for` it."""
        pages = self._session.read_pages(self._hold, path, lower, upper, columns)
        while not pages.is_over:
            page = await self._run(pages.next(), timeout_ms)
            for batch in page.to_batches():
                yield batch

    async def split(
        self,
        path: str,
        rows_per_part: int,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[tuple[Any, ...]]:
        """As `dodona.Snapshot.split`."""
        return await self._run(self._session.split(path, rows_per_part, lower, upper), timeout_ms)

    async def check(self) -> None:
        """As `dodona.Snapshot.check`."""
        self._session.check_hold(self._hold)

    async def release(self, *, timeout_ms: int | None = None) -> None:
        """As `dodona.Snapshot.release`."""
        await self._run(self._session.release_hold(self._hold), timeout_ms)
