"""Histories of the rows of a few tables, divided among stores: what merging is tested with."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from dodona.keys import encode_key
from dodona.schema import Column, TableSchema
from dodona.types import DELETE_MASK, KEY_MAX, KEY_MIN, Key, Timestamp
from dodona_tablets.core.rows.chunks.rows import batches_of_rows
from dodona_tablets.core.rows.chunks.vectors import place_of
from dodona_tablets.core.rows.version import (
    Version,
    bits_of,
    chain_of,
    history,
    linked,
    version_of,
)
from unit.tablets.chunks.making import rows_of_batches

LATEST = 8
"""The newest version of any row."""

SIMPLE = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "number", "type": "int64"},
        {"name": "text", "type": "utf8"},
    ]
)
AGGREGATES = TableSchema.parse(
    [
        {"name": "name", "type": "string", "sort_order": "ascending"},
        {"name": "part", "type": "uint64", "sort_order": "descending"},
        {"name": "plain", "type": "boolean"},
        {"name": "sum", "type": "int64", "aggregate": "sum"},
        {"name": "max", "type": "utf8", "aggregate": "max"},
        {"name": "first", "type": "any", "aggregate": "first"},
    ]
)
WIDE = TableSchema.parse(
    [
        {"name": "id", "type": "double", "sort_order": "ascending"},
        *({"name": f"column_{bit}", "type": "int64"} for bit in range(70)),
    ]
)

VALUES: dict[str, list[Any]] = {
    "int64": [None, 0, 1, -7, (1 << 63) - 1, -(1 << 63)],
    "uint64": [None, 0, 1, 255, (1 << 64) - 1],
    "double": [None, 0.0, -1.5, 1e300],
    "boolean": [None, False, True],
    "string": [None, b"", b"\x00", b"\x00\xff", b"a", b"a" * 20],
    "utf8": [None, "", "a", "z\x00", "Ω"],
    "any": [None, 1, "text", [1, None], {"a": b"b"}],
}


class History(NamedTuple):
    """A table's rows, all together and as they lie in stores."""

    schema: TableSchema
    rows: dict[Key, list[Version]]
    """In key order, each with all its versions from the oldest on."""
    stores: list[dict[Key, list[Version]]]

    def sources(self, slice_rows: int, places: Iterable[int] | None = None) -> "list[Batches]":
        """The stores in chunk layout."""
        chosen = range(len(self.stores)) if places is None else places
        return [batches_of(self.schema, self.stores[it], slice_rows) for it in chosen]


Batches = list[pa.RecordBatch]


@st.composite
def histories(
    draw: st.DrawFn,
    schemas: Sequence[TableSchema] = (SIMPLE, AGGREGATES, WIDE),
    row_count_max: int = 6,
    *,
    version_count_min: int = 1,
) -> History:
    """Of a few rows, some with many versions."""
    schema = draw(st.sampled_from(list(schemas)))
    keys = st.tuples(*(st.sampled_from(VALUES[it.type]) for it in schema.key_columns))
    drawn = draw(st.lists(keys, min_size=1, max_size=row_count_max))
    found = sorted({encode_key(values, schema.key_types) for values in drawn})
    store_count = draw(st.integers(1, 4))
    stores: list[dict[Key, list[Version]]] = [{} for _ in range(store_count)]
    rows: dict[Key, list[Version]] = {}
    homes = st.integers(0, store_count - 1)
    for key in found:
        stamps = draw(st.sets(st.integers(1, LATEST), min_size=version_count_min))
        rows[key] = [_version(draw, schema, at) for at in sorted(stamps)]
        for version in rows[key]:
            stores[draw(homes)].setdefault(key, []).append(version)
    return History(schema, rows, stores)


def _version(draw: st.DrawFn, schema: TableSchema, at: int) -> Version:
    full = schema.full_mask
    some = st.one_of(st.just(DELETE_MASK), st.just(full), st.integers(1, min(full, 3)))
    mask = draw(st.one_of(some, st.integers(1, full)))
    dice = draw(st.integers(0, 59))
    values = tuple([_value(schema.value_columns[bit], dice + bit) for bit in bits_of(mask)])
    if not mask or not schema.aggregate_mask:
        return version_of(Timestamp(at), mask, values)
    deltas = draw(st.sampled_from([0, full])) & mask & schema.aggregate_mask
    shared = draw(st.sampled_from([0, 0, 1]))
    return version_of(Timestamp(at), mask, values, None, deltas, shared)


def _value(column: Column, dice: int) -> Any:
    pool = VALUES[column.type]
    return pool[dice % len(pool)]


# ---- in chunk layout, and back


def batches_of(
    schema: TableSchema,
    rows: dict[Key, list[Version]],
    slice_rows: int,
    *,
    is_special: bool = False,
) -> Batches:
    """Rows in chunk layout, with the columns of specialities where there are any."""
    has_specials = is_special or any(len(it) == 6 for row in rows.values() for it in row)
    chains = [(key, chain_of(reversed(row))) for key, row in sorted(rows.items())]
    items = [(key, newest) for key, newest in chains if newest is not None]
    return list(batches_of_rows(schema, items, has_specials=has_specials, slice_rows=slice_rows))


def rows_of(schema: TableSchema, batches: Iterable[pa.RecordBatch]) -> dict[Key, list[Version]]:
    """What is in chunk layout, as rows."""
    return {
        key: [linked(version, None) for version in history(newest)][::-1]
        for key, newest in rows_of_batches(schema, batches)
    }


def between(batches: Batches, lower: Key = KEY_MIN, upper: Key = KEY_MAX) -> Batches:
    """The rows of lower ≤ key < upper."""
    cut = [
        batch.slice(start, place_of(batch.column(0), upper) - start)
        for batch in batches
        if (start := place_of(batch.column(0), lower)) < batch.num_rows
    ]
    return [batch for batch in cut if batch.num_rows]
