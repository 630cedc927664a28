"""Copies of tables in this process, in the blocking API.

Owns: the public names and arguments of `LocalCopy`, and of the call that makes one, which
`Client` has.
"""

# Generated from aio_local_copy.py by python -m twins: change that, and run it.

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dodona._core.protocol.arguments import check_flag
from dodona._core.protocol.process_bound import ProcessBound
from dodona._core.reading.local_rows import ROWS_MAX, LocalRows
from dodona._core.reading.rows import Rows
from dodona._io.bounds import Run, within
from dodona.reads import Reader
from dodona_wire.types import Timestamp

Row = Mapping[str, Any]


class LocalCopy(ProcessBound):
    """A copy of a table in this process, from `Client.follow`.

    It is the snapshot of the table at `timestamp`. Reads ask no server. `refresh` brings it up to
    date. Only one thread at a time may use it."""

    _instead = "follow the table in each process"

    def __init__(self, run: Run, rows: LocalRows) -> None:
        self._run = run
        self._rows = rows

    @property
    def path(self) -> str:
        """The path of the table."""
        return self._rows.path

    @property
    def timestamp(self) -> Timestamp:
        """The timestamp of the snapshot."""
        return self._rows.timestamp

    @property
    def age_ms(self) -> int:
        """For how many milliseconds the copy may lack commits: it has all transactions that were
        acknowledged before."""
        return self._rows.age_ms

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<dodona.LocalCopy {self.path} at {self.timestamp}, {len(self)} rows>"

    def lookup_rows(
        self,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the rows that have these keys, in the order of the keys, as
        `Client.lookup_rows` does. Raises InvalidRequest (also for a key outside of the range
        that was copied), SchemaViolation, LimitExceeded."""
        check_flag(keep_missing, "keep_missing")
        found: list[Any] = self._rows.look_up(keys, columns, keep_missing=keep_missing)
        return found

    def select(
        self,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Rows:
        """Return the rows with lower ≤ key < upper, in key order, as `Client.select` does.
        Raises InvalidRequest (also for a range that was not copied as a whole),
        SchemaViolation."""
        return self._rows.select(lower, upper, columns)

    def refresh(self, max_age_ms: int = 0, *, timeout_ms: int | None = None) -> Timestamp:
        """Take all changes up to now, and return the new `timestamp`.

        - `max_age_ms`: do nothing if the copy is not older than this. Then the call asks no server.

        It reads the changed rows only. It reads all rows if the table was altered or replaced, if
        over 100,000 rows have changed, or if retention has passed the copy. Rows that retention
        removes stay in the copy until then: see `reload`. Rows of a table with atomicity `"none"`
        come when the oracle has passed their timestamps. The clock of their client may be up to a
        minute ahead. If the call fails, the copy stays as it was. Raises what
        `Client.select` raises, and LimitExceeded for more rows than `rows_max`."""
        return self._run(self._rows.refresh(max_age_ms), timeout_ms)

    def reload(self, *, timeout_ms: int | None = None) -> Timestamp:
        """Read all rows again, and return the new `timestamp`. Otherwise as `refresh`."""
        return self._run(self._rows.reload(), timeout_ms)


class Follower(Reader):
    """The part of a client that copies tables."""

    def follow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        *,
        rows_max: int = ROWS_MAX,
        timeout_ms: int | None = None,
    ) -> LocalCopy:
        """Copy a table, or a range of its keys, into this process. Reads of the copy ask no server,
        and `LocalCopy.refresh` brings it up to date.

        - `lower`, `upper`: copy only rows with lower ≤ key < upper.
        - `rows_max`: how many rows the copy may have. The default is 1,000,000.

        Needs pyarrow, as `read_changes` does. Raises LimitExceeded if there are more rows, and what
        `select` raises."""
        run = within(self._run, timeout_ms)
        return LocalCopy(run, run(self._session.follow(path, lower, upper, rows_max)))
