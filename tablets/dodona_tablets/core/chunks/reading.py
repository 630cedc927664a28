"""Versions out of batches in chunk layout, one row at a time.

Owns: how a row of a batch becomes a version as it is in memory. Whoever reads many rows of a few
columns reads the Arrow arrays instead.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from dodona.schema import TableSchema
from dodona.types import Key, Timestamp
from dodona_tablets.core.chunks.layout import DELTA, KEY, MASK, SHARED, TIMESTAMP
from dodona_tablets.core.chunks.values import Getter, getter_of, mask_getter, numbers_of
from dodona_tablets.core.version import Version, bits_of

Plan = tuple[int, tuple[int, ...]]
"""A mask of a table's value columns, and the value columns of a batch that give their values."""


class VersionReader:
    """What reads the versions in one batch."""

    __slots__ = ("_deltas", "_get", "_masks", "_plan", "_shared", "timestamps")

    def __init__(
        self,
        batch: pa.RecordBatch,
        key_column_count: int,
        value_types: Sequence[str],
        plan: Callable[[int], Plan],
        is_migrated: bool = False,
    ) -> None:
        """`value_types` are those that the batch's value columns are read as; `plan` says what
        becomes of a mask. Shared locks of a batch that is migrated are forgotten: lock groups may
        be others now."""
        names = batch.schema.names
        self._plan = plan
        self._get: list[Getter] = [
            getter_of(batch.column(place), column_type)
            for place, column_type in enumerate(value_types, 1 + key_column_count)
        ]
        self.timestamps: Any = ()
        """Of each row; none in the layout of batches."""
        self._masks: Getter | None = None
        self._deltas: Getter | None = None
        self._shared: Getter | None = None
        if TIMESTAMP in names:
            self.timestamps = numbers_of(batch.column(TIMESTAMP), "Q")
            self._masks = mask_getter(batch.column(MASK))
        if SHARED in names:
            self._deltas = mask_getter(batch.column(DELTA))
            self._shared = _nought if is_migrated else mask_getter(batch.column(SHARED))

    def write(self, row: int, stamp: Timestamp, plan: Plan) -> Version:
        """The version of a row in the layout of batches."""
        mask, columns = plan
        get = self._get
        return stamp, mask, tuple([get[column](row) for column in columns]), None

    def version(self, row: int) -> Version:
        """The version of a row, without the older ones."""
        assert self._masks is not None
        mask, columns = self._plan(self._masks(row))
        get = self._get
        values = tuple([get[column](row) for column in columns])
        timestamp = self.timestamps[row]
        if self._deltas is not None and self._shared is not None:
            deltas, shared = self._deltas(row), self._shared(row)
            if deltas or shared:
                return timestamp, mask, values, None, self._plan(deltas)[0], shared
        return timestamp, mask, values, None


def _nought(row: int) -> int:
    return 0


def versions_of(schema: TableSchema, batch: pa.RecordBatch) -> Iterator[tuple[Key, Version]]:
    """Each row of a batch that has timestamps: its key, and its version without the older ones."""
    plans: dict[int, Plan] = {}

    def plan(mask: int) -> Plan:
        if mask not in plans:
            plans[mask] = mask, tuple(bits_of(mask))
        return plans[mask]

    types = [column.type for column in schema.value_columns]
    reader = VersionReader(batch, len(schema.key_columns), types, plan)
    key_at = getter_of(batch.column(KEY), "string")
    for row in range(batch.num_rows):
        yield Key(key_at(row)), reader.version(row)
