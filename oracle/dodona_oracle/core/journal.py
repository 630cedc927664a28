"""The changes of one request, gathered into one record. Pure.

Owns: the counters for ids and revisions. Invariants: no id and no revision is ever given out twice.
All changes of a request are durable together or not at all, so a crash never shows half of them.
"""

from collections.abc import Callable

from dodona_oracle.core.records import (
    COUNTERS,
    LAST_ID,
    LAST_REVISION,
    Change,
    Group,
    MasterState,
    Put,
    Record,
    encode_number,
)
from dodona_wire.types import Revision


class Journal:
    """Changes wait here until `flush` passes them on as one record."""

    def __init__(self, state: MasterState, append: Callable[[Record], None]) -> None:
        self._append = append
        self._last_id = state.last_id
        self._last_revision = state.last_revision
        # By bucket and key: only the last of several changes of a value is written.
        self._changes: dict[tuple[str, bytes], Change] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no change waits."""
        return not self._changes

    @property
    def next_id(self) -> int:
        """The first id that `take_ids` will give."""
        return self._last_id + 1

    @property
    def last_revision(self) -> Revision:
        """The last revision that was given."""
        return Revision(self._last_revision)

    @property
    def next_revision(self) -> Revision:
        """The revision that `take_revision` will give."""
        return Revision(self._last_revision + 1)

    def add(self, change: Change) -> None:
        """Add a change. The next `flush` makes it durable."""
        self._changes[change.bucket, change.key] = change

    def take_ids(self, count: int = 1) -> int:
        """Return the first of `count` fresh ids in a row."""
        first = self._last_id + 1
        self._last_id += count
        self.add(Put(COUNTERS, LAST_ID, encode_number(self._last_id)))
        return first

    def take_revision(self) -> Revision:
        """Return a fresh revision."""
        self._last_revision += 1
        self.add(Put(COUNTERS, LAST_REVISION, encode_number(self._last_revision)))
        return Revision(self._last_revision)

    def flush(self) -> None:
        """Pass on the gathered changes, if there are any."""
        changes = tuple(self._changes.values())
        self._changes.clear()
        if changes:
            self._append(changes[0] if len(changes) == 1 else Group(changes))
