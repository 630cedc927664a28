"""What became of a table's rows between two timestamps, in the blocking API.

Owns: the public names and arguments of the reads of changes, which `Client` has; `aio_changes` is
its twin, name by name.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from dodona._core.protocol.process_bound import ProcessBound
from dodona._core.reading.changes import ChangePages
from dodona._core.session import Session
from dodona._io.bounds import Run, within
from dodona.catalog import Catalog
from dodona_wire.types import Timestamp


class Changes(ProcessBound):
    """An iterator of `pyarrow.RecordBatch`, of `Client.read_changes`, with one page in memory."""

    _instead = "give its `timestamp` to `read_changes` there, as `since`"

    def __init__(self, run: Run, pages: ChangePages) -> None:
        self._run = run
        self._pages = pages
        self._batches: Iterator[Any] = iter(())

    @property
    def timestamp(self) -> Timestamp:
        """Changes up to here are among these, later ones are not: to go on from, as `since`."""
        return self._pages.timestamp

    def __repr__(self) -> str:
        return f"<dodona.Changes until {self.timestamp}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        while (batch := next(self._batches, None)) is None:
            if self._pages.is_over:
                raise StopIteration
            self._batches = iter(self._run(self._pages.next()).to_batches())
        return batch


class ChangeReader(Catalog):
    """A client's reads of changes, on top of what it does with tables as a whole."""

    _session: Session

    def read_changes(
        self,
        path: str,
        since: int,
        timestamp: Timestamp | None = None,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Changes:
        """What was written and deleted after `since`, up to a timestamp, a fresh one unless given:
        every version of the rows of lower ≤ key < upper, in key order, and newest first within a
        row, as an iterator of `pyarrow.RecordBatch`. It has the `columns` named, or all, null where
        a version does not set them, and

        - `$timestamp`, uint64: of the commit; all its rows have the same;
        - `$change_type`: "write" (all value columns are set, and what was there before is gone),
          "update" (only some are set, or aggregates are changed), or "delete";
        - `$columns`: of an update the columns asked for that it sets, a list of names; null where
          all are set, or none;
        - `$aggregated`, if a column asked for is an aggregate: those of which the value is a change
          to be added to what was there, not a new value; null if none is.

        Whoever goes on from `Changes.timestamp`, or from the timestamp of a snapshot that was read,
        is given every version exactly once, also of tables of atomicity none. SnapshotTooOld says
        that retention has passed `since`: hold a snapshot there (`hold_snapshot`) or keep versions
        for longer (`min_data_ttl`). A `since` of 0 is never too old: it gives whatever is still
        there, of each row at least what a read at `timestamp` sees. Raises as `lookup_rows`."""
        read = self._session.read_changes(path, since, timestamp, lower, upper, columns)
        run = within(self._run, timeout_ms)
        return Changes(run, run(read))

    def count_changes(
        self,
        path: str,
        since: int,
        timestamp: Timestamp | None = None,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[tuple[Timestamp, int]]:
        """How many versions `read_changes` would give, by time: pairs (timestamp, count), the
        timestamps rising, of which the counts say how many there are up to here, above the pair
        before. Empty if nothing changed. A tablet tells about 1,000 timestamps apart: where there
        are more, some of a count may lie before the pair before. Raises as `read_changes`."""
        count = self._session.count_changes
        return self._run(count(path, since, timestamp, lower, upper), timeout_ms)
