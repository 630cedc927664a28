"""Read versions from batches in chunk layout, one row at a time.

Owns: how a row of a batch becomes a version as it is in memory. Code that reads many rows of a few
columns reads the Arrow arrays instead.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from dodona_tablets.core.rows.chunks.layout import DELTA, KEY, MARKS, MASK, SHARED, TIMESTAMP
from dodona_tablets.core.rows.chunks.values import (
    Constant,
    Getter,
    getter_of,
    mask_getter,
    numbers_of,
)
from dodona_tablets.core.rows.version import Version, bits_of
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import NULL_TIMESTAMP, Key, Timestamp

Plan = tuple[int, tuple[int, ...]]
"""A mask of a table's value columns, and the value columns of a batch that have their values."""

PLANS_MAX: Final = 4096
"""The most masks whose plans are kept."""


class Plans(dict[int, Plan]):
    """The plan for each mask of a batch. It is made when it is first requested, and works for any
    mask."""

    def __init__(self, places: Sequence[int]) -> None:
        """Take the places of the batch's value columns among the table's columns of today."""
        super().__init__()
        self._places = places

    def __missing__(self, mask: int) -> Plan:
        moved = sorted([(self._places[bit], bit) for bit in bits_of(mask)])
        plan = sum([1 << place for place, _ in moved]), tuple([bit for _, bit in moved])
        if len(self) < PLANS_MAX:
            self[mask] = plan
        return plan


class VersionReader:
    """A reader of the versions in one batch."""

    __slots__ = ("_deltas", "_get", "_masks", "_plans", "_shared", "timestamps")

    def __init__(
        self,
        batch: pa.RecordBatch,
        value_types: Sequence[str],
        plans: Plans,
        *,
        stamp: Timestamp = NULL_TIMESTAMP,
        is_migrated: bool = False,
    ) -> None:
        """Prepare the getters. `value_types` are the types as which the value columns are read.
        `stamp` is the timestamp of rows that have none. A migrated batch loses its shared locks,
        since lock groups may differ now."""
        names = batch.schema.names
        marks = [name for name in names[1:] if name in MARKS]
        first = len(names) - len(marks) - len(value_types)
        self._get: list[Getter] = [
            getter_of(batch.column(place), column_type)
            for place, column_type in enumerate(value_types, first)
        ]
        self._plans = plans
        full_mask = (1 << len(value_types)) - 1
        self.timestamps: Any = Constant(stamp)
        """The timestamp of each row."""
        self._masks: Getter = Constant(full_mask).__getitem__
        self._deltas: Getter | None = None
        self._shared: Getter = Constant(0).__getitem__
        if TIMESTAMP in marks:
            self.timestamps = numbers_of(batch.column(TIMESTAMP), "Q")
        if MASK in marks:
            self._masks = mask_getter(batch.column(MASK))
        if SHARED in marks:
            self._deltas = mask_getter(batch.column(DELTA))
        if SHARED in marks and not is_migrated:
            self._shared = mask_getter(batch.column(SHARED))

    def version(self, row: int) -> Version:
        """Return the version of a row, without the older ones."""
        get = self._get
        mask, columns = self._plans[self._masks(row)]
        values = tuple([get[column](row) for column in columns])
        if self._deltas is not None:
            deltas, shared = self._deltas(row), self._shared(row)
            if deltas or shared:
                return self.timestamps[row], mask, values, None, self._plans[deltas][0], shared
        return self.timestamps[row], mask, values, None


def versions_of(schema: TableSchema, batch: pa.RecordBatch) -> Iterator[tuple[Key, Version]]:
    """Yield each row of a batch that has timestamps: its key, and its version without the older
    ones."""
    types = [column.type for column in schema.value_columns]
    reader = VersionReader(batch, types, Plans(range(len(types))))
    key_at = getter_of(batch.column(KEY), "string")
    for row in range(batch.num_rows):
        yield Key(key_at(row)), reader.version(row)
