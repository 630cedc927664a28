"""A snapshot that is held for as long as somebody reads it, in the blocking API.

Owns: the public names and arguments of `Snapshot`; `dodona.aio_snapshot` is its twin, name by name.
"""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from dodona._core.protocol.process_bound import ProcessBound
from dodona._core.reading.holding import Hold
from dodona._core.session import Session
from dodona._io.bounds import Run
from dodona_wire.types import ReaderId, Timestamp


class Snapshot(ProcessBound):
    """Some tables as they were at one timestamp, of `Client.hold_snapshot`. It is renewed in the
    background for as long as it is open and referred to. Any read of the client at this timestamp
    finds it, of these tables, and so may reads of other processes."""

    _instead = "send its `timestamp` and `reader`, and give them to `hold_snapshot` there"

    def __init__(self, run: Run, session: Session, hold: Hold) -> None:
        self._run = run
        self._session = session
        self._hold = hold

    @property
    def timestamp(self) -> Timestamp:
        """To be given to reads."""
        return self._hold.timestamp

    @property
    def reader(self) -> ReaderId:
        """To be given to `Client.hold_snapshot` by processes that share the work."""
        return self._hold.reader

    @property
    def tables(self) -> dict[str, int]:
        """The ids of its tables, by path: a table that is there later is another if its id is."""
        return dict(self._hold.tables)

    def __repr__(self) -> str:
        return f"<dodona.Snapshot {self.timestamp}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._session.check_hold_at_end(self._hold)
        finally:
            self.release()

    def read_batches(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Iterator[Any]:
        """The rows of lower ≤ key < upper in key order, as an iterator of `pyarrow.RecordBatch`,
        of which one at a time is in memory. Where no timestamp was given to `hold_snapshot`,
        tables of atomicity none are read at their newest. Otherwise as `Client.read_arrow`."""
        pages = self._session.read_pages(self._hold, path, lower, upper, columns)
        while not pages.is_over:
            yield from self._run(pages.next(), timeout_ms).to_batches()

    def split(
        self,
        path: str,
        rows_per_part: int,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[tuple[Any, ...]]:
        """Where to cut lower ≤ key < upper into parts of about so many rows at most, none of them
        in two tablets: the keys at which the second part and those behind it begin, rising. Raises
        what reads raise."""
        return self._run(self._session.split(path, rows_per_part, lower, upper), timeout_ms)

    def check(self) -> None:
        """That it was held from its beginning until now, so that whatever was read is of one
        moment. The end of a block does so too. Raises SnapshotTooOld, if the cells that keep it
        could not be reached for most of a minute; InvalidRequest after its end."""
        self._session.check_hold(self._hold)

    def release(self, *, timeout_ms: int | None = None) -> None:
        """Let go of it, for all who share it. Repeating it is harmless."""
        self._run(self._session.release_hold(self._hold), timeout_ms)
