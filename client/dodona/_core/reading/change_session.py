"""The reads of changes of one session, and copies that follow them. Pure.

Owns: the names of these protocols, which `Session` has.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dodona._core.protocol.arguments import repeatable_names
from dodona._core.protocol.attempts import unless_stale
from dodona._core.protocol.context import Context
from dodona._core.protocol.spans import traced_as
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.changes import ChangePages, count_changes, read_until
from dodona._core.reading.local_rows import ROWS_MAX, LocalRows
from dodona_wire.types import Timestamp


class ChangeSession:
    """The part of a session that reads changes."""

    _context: Context

    @traced_as("read_changes")
    def read_changes(
        self,
        path: str,
        since: int,
        timestamp: int | None = None,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Protocol[ChangePages]:
        """Return the versions after `since`, up to `timestamp`, to read page by page."""
        until = yield from read_until(self._context, since, timestamp)
        ends, names = (lower, upper), repeatable_names(columns)
        return ChangePages(self._context, path, Timestamp(since), until, ends, names)

    @traced_as("follow")
    def follow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        rows_max: int = ROWS_MAX,
    ) -> Protocol[LocalRows]:
        """Return a copy of the rows of lower ≤ key < upper, which can take later changes."""
        rows = LocalRows(self._context, path, (lower, upper), rows_max)
        yield from rows.reload()
        return rows

    def count_changes(
        self,
        path: str,
        since: int,
        timestamp: int | None = None,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
    ) -> Protocol[list[tuple[Timestamp, int]]]:
        """Return how many versions there are, in steps of time."""
        until = yield from read_until(self._context, since, timestamp)
        at, ends, context = Timestamp(since), (lower, upper), self._context
        count = partial(count_changes, context, path, at, until, ends)
        return (yield from unless_stale(context, path, count))
