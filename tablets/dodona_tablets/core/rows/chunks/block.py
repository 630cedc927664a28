"""Hold one block of a chunk in memory: a verified record batch, and the search for a key in it.

Owns: the order of rows within a block: by key, then from the newest version to the oldest. A search
copies only a few keys. This module knows the bytes of keys, and not their meaning.
"""

from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dodona_tablets.core.rows.chunks.values import data_of, offsets_of
from dodona_wire.types import Key

ANCHOR_STEP: Final = 32
"""The number of rows between two keys that are kept as objects after the first search."""


class Block:
    """The rows of one record batch in chunk layout, complete as it was written."""

    def __init__(self, batch: pa.RecordBatch, key_count: int) -> None:
        self.batch = batch
        self.row_count: int = batch.num_rows
        self._is_unique = key_count == batch.num_rows
        self._offsets = offsets_of(batch.column(0))
        self._data = data_of(batch.column(0))

    def key_at(self, row: int) -> Key:
        return Key(self._data[self._offsets[row] : self._offsets[row + 1]].tobytes())

    @cached_property
    def _anchors(self) -> list[Key]:
        return [self.key_at(row) for row in range(0, self.row_count, ANCHOR_STEP)]

    @cached_property
    def _starts(self) -> "memoryview[int]":
        """The first row of each key."""
        keys = self.batch.column(0)
        is_other = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
        others = np.flatnonzero(is_other.to_numpy(zero_copy_only=False))
        return memoryview(np.concatenate(([0], others + 1)).data)

    def find(self, key: Key) -> int:
        """Return the first row of a key, or -1 if the key is not here."""
        offsets, data = self._offsets, self._data
        place = bisect_left(self._anchors, key)
        low = max(0, place - 1) * ANCHOR_STEP  # the row of a smaller key, or the first row
        high = min(place * ANCHOR_STEP, self.row_count - 1)
        while low < high:
            middle = (low + high) >> 1
            if data[offsets[middle] : offsets[middle + 1]].tobytes() < key:
                low = middle + 1
            else:
                high = middle
        return low if data[offsets[low] : offsets[low + 1]].tobytes() == key else -1

    def is_alone(self, row: int) -> bool:
        """Return whether the row is surely the only one of its key, here and in the next block."""
        return self._is_unique and row + 1 < self.row_count

    def end_of(self, row: int) -> int:
        """Return the row behind the last row that has the same key as this one."""
        if self._is_unique:
            return row + 1
        starts = self._starts
        place = bisect_right(starts, row)
        return starts[place] if place < len(starts) else self.row_count

    def row_at_or_above(self, bound: Key, suffix: bytes) -> int:
        """Return the first row whose key, with this suffix, is not below a bound."""
        rows = range(self.row_count)
        return bisect_left(rows, bound, key=lambda row: Key(self.key_at(row) + suffix))


def first_row_at(timestamps: Any, row: int, end: int, timestamp: int) -> int:
    """Return the newest of these rows of one key that is not above a timestamp, or `end` if none
    is."""
    if row < end and timestamps[row] <= timestamp:
        return row
    return bisect_left(range(end), -timestamp, row, key=lambda at: -timestamps[at])
