"""Convert rows in memory to batches in chunk layout.

Owns: the step from Python objects to Arrow columns, one slice of rows at a time. So a thread that
makes a chunk of a store lets other threads run in between. All later steps work on columns.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from dodona_tablets.core.rows.chunks.layout import BLOCK_ROWS_MAX, KEY, chunk_schema
from dodona_tablets.core.rows.version import Version, bits_of
from dodona_wire.rows.arrow import array_of
from dodona_wire.rows.arrow_keys import decode_keys, order_of
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Key

SLICE_ROWS: Final = 4096
SPREADS_MAX: Final = 4096
"""The most masks for which the function that spreads their values over all columns is kept."""
Values = tuple[Any, ...]


def batches_of_rows(
    schema: TableSchema,
    items: Iterable[tuple[Key, Version]],
    *,
    has_specials: bool = False,
    slice_rows: int = SLICE_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield rows, each given with its newest version, as slices in chunk layout. A slice has all
    versions of each row, newest first. A chunk needs rows in key order (see `in_key_order`).

    Without `has_specials`, no version may have changes of aggregates or shared locks. A file has
    one layout, and all slices have the columns of the first one.
    """
    keys: list[Key] = []
    versions: list[Version] = []
    to_batch = _Columns(schema, has_specials=has_specials).batch
    for key, newest in items:
        version: Version | None = newest
        while version is not None:
            keys.append(key)
            versions.append(version)
            if len(keys) == slice_rows:
                yield to_batch(keys, versions)
                keys, versions = [], []
            version = version[3]
    if keys:
        yield to_batch(keys, versions)


def in_key_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches of one layout in key order. Rows of one key keep their order. All
    rows are in memory at one time, and then a second time as copies."""
    held = list(batches)
    if held:
        whole = pa.concat_batches(held)
        held.clear()
        order = order_of(whole.column(KEY))
        for start in range(0, len(order), BLOCK_ROWS_MAX):
            yield whole.take(order.slice(start, BLOCK_ROWS_MAX))


class _Columns:
    """A converter of one table's versions to batches in one layout."""

    def __init__(self, schema: TableSchema, *, has_specials: bool) -> None:
        self._schema = schema
        self._has_specials = has_specials
        self._arrow_schema = chunk_schema(schema, "special" if has_specials else "plain")
        self._spread: dict[int, Callable[[Values], Values]] = {}

    def batch(self, keys: Sequence[Key], versions: Sequence[Version]) -> pa.RecordBatch:
        """Return a batch of these versions. `keys` has the key of each."""
        schema, full = self._schema, self._schema.full_mask
        assert self._has_specials or all(len(it) == 4 for it in versions), "a version has marks"
        rows = [it[2] if it[1] == full else self._all_columns(it[1], it[2]) for it in versions]
        encoded = pa.array(keys, pa.binary())
        arrays = [encoded, *decode_keys(schema, encoded)]
        arrays += map(array_of, schema.value_columns, zip(*rows, strict=True))
        arrays.append(pa.array([it[0] for it in versions], pa.uint64()))
        arrays.append(self._masks([it[1] for it in versions]))
        if self._has_specials:
            arrays.append(self._masks([it[4] if len(it) == 6 else 0 for it in versions]))
            shared = [it[5] if len(it) == 6 else 0 for it in versions]
            arrays.append(pa.array(shared, pa.uint64()))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)

    def _all_columns(self, mask: int, values: Values) -> Values:
        """Return the values of all columns: null where the mask has none."""
        spread = self._spread.get(mask)
        if spread is None:
            spread = _spreading(mask, len(self._schema.value_columns))
            if len(self._spread) < SPREADS_MAX:
                self._spread[mask] = spread
        return spread(values)

    def _masks(self, masks: Sequence[int]) -> pa.Array:
        if not self._schema.is_wide:
            return pa.array(masks, pa.uint64())
        return pa.array(map(self._schema.pack_mask, masks), pa.binary())


def _spreading(mask: int, count: int) -> Callable[[Values], Values]:
    """Return a function from the values of a mask to those of `count` columns."""
    places = {bit: place for place, bit in enumerate(bits_of(mask))}
    wanted = [places.get(bit, len(places)) for bit in range(count)]
    if count == 1:
        return lambda values: (*values, None)[:1]
    get = itemgetter(*wanted)
    return lambda values: get((*values, None))
