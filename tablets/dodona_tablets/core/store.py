"""The rows of one tablet in memory: found by key at once, walked in key order on demand.

Owns: the rows and their order. New keys are kept unsorted until somebody walks, and then sorted
in as one batch: writes never pay for order, and a bulk load is sorted once.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from sortedcontainers import SortedList

from dodona.types import Key
from dodona_tablets.core.row import Row


class SortedStore:
    """Rows by key. `rows` is open to readers of the core; only `row_for_write` adds to it."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self._ordered: SortedList[Key] = SortedList()
        self._unordered: list[Key] = []

    def __len__(self) -> int:
        return len(self.rows)

    def row_for_write(self, key: Key) -> Row:
        """The row, made empty if there is none yet."""
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row()
            self._unordered.append(key)
        return row

    def walk(self, lower: Key, upper: Key) -> Iterator[tuple[Key, Row]]:
        """Rows of lower ≤ key < upper in key order. Must not run across a write."""
        if self._unordered:
            self._ordered.update(self._unordered)
            self._unordered = []
        rows = self.rows
        keys: Iterable[Key] = self._ordered.irange(lower, upper, inclusive=(True, False))
        for key in keys:
            yield key, rows[key]

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert len(self._ordered) + len(self._unordered) == len(self.rows)
        for row in self.rows.values():
            stamps = [version[0] for version in row.versions]
            assert all(a < b for a, b in pairwise(stamps))
