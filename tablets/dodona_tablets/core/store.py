"""The rows of one tablet in memory: found by key at once, walked in key order on demand.

Owns: the rows and their order. New keys are kept unsorted until somebody walks, and then sorted
in as one batch: writes never pay for order, and a bulk load is sorted once. All keys also lie in a
list, in no order that means anything, where whoever goes over all rows in turns keeps his place.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from sortedcontainers import SortedList

from dodona.types import Key
from dodona_tablets.core.row import Row


class SortedStore:
    """Rows by key. `rows` is open to readers of the core; only `row_for_write` adds to it.
    Invariant: `_ordered` has the first `_ordered_count` of the keys, in order."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self._keys: list[Key] = []
        self._ordered: SortedList[Key] = SortedList()
        self._ordered_count = 0

    def __len__(self) -> int:
        return len(self.rows)

    def row_for_write(self, key: Key) -> Row:
        """The row, made empty if there is none yet."""
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row()
            self._keys.append(key)
        return row

    def walk(self, lower: Key, upper: Key) -> Iterator[tuple[Key, Row]]:
        """Rows of lower ≤ key < upper in key order. Must not run across a write."""
        if self._ordered_count < len(self._keys):
            self._ordered.update(self._keys[self._ordered_count :])
            self._ordered_count = len(self._keys)
        rows = self.rows
        keys: Iterable[Key] = self._ordered.irange(lower, upper, inclusive=(True, False))
        for key in keys:
            yield key, rows[key]

    def key_at(self, place: int) -> Key | None:
        """The key at this place, None behind the last. A key keeps its place, or moves to an
        earlier one, which was another's that was removed."""
        return self._keys[place] if place < len(self._keys) else None

    def remove_at(self, place: int) -> None:
        """Forget a row. The last key takes its place, so that nothing else moves."""
        keys = self._keys
        del self.rows[keys[place]]
        if place < self._ordered_count:
            self._ordered.remove(keys[place])
            self._ordered_count -= 1
            keys[place] = keys[self._ordered_count]
            place = self._ordered_count
        keys[place] = keys[-1]
        keys.pop()

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert sorted(self._keys) == sorted(self.rows)
        assert list(self._ordered) == sorted(self._keys[: self._ordered_count])
        for row in self.rows.values():
            stamps = [version[0] for version in row.versions]
            assert all(a < b for a, b in pairwise(stamps))
