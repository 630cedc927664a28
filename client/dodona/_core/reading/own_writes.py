"""What a transaction that reads its own writes sees: the snapshot, with its buffer on top. Pure.

Owns: how a buffered write changes a row that was read. Rows are tuples of the values of the wanted
columns, in column order. The transaction sees the rows that a commit of the buffer would make.
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from dodona._core.writing.buffer import ORDINARY, TableBuffer, bits_of
from dodona_wire.rows.aggregates import combine
from dodona_wire.types import DELETE_MASK, Key

Values = tuple[Any, ...]
"""The values of one row in the wanted columns."""


def overlay_found(
    own: TableBuffer, wanted: int, keys: list[Key], found: list[Values | None]
) -> None:
    """Apply own writes to the rows of a lookup, key by key."""
    for place, key in enumerate(keys):
        if key in own.writes:
            found[place] = overlay(own, wanted, key, found[place])


def overlay_range(
    own: TableBuffer, wanted: int, first: Key, end: Key, rows: Iterable[tuple[Key, Values]]
) -> list[tuple[Key, Values]]:
    """Return the rows of first ≤ key < end in key order, with own writes, which may add rows."""
    by_key = dict(rows)
    for key in own.writes:
        if first <= key < end:
            values = overlay(own, wanted, key, by_key.pop(key, None))
            if values is not None:
                by_key[key] = values
    return sorted(by_key.items(), key=itemgetter(0))


def overlay(own: TableBuffer, wanted: int, key: Key, base: Values | None) -> Values | None:
    """Return a row with the own write of its key, or None if there is no row then. `base` is the
    row that was read, or None."""
    _, mask, written = own.writes[key]
    if mask == DELETE_MASK:
        return None
    deltas, _ = own.special.get(key, ORDINARY)
    columns = own.schema.value_columns
    bits = bits_of(wanted)
    values = dict.fromkeys(bits) if base is None else dict(zip(bits, base, strict=True))
    for bit, value in zip(bits_of(mask), written, strict=True):
        if bit in values:
            is_delta = deltas >> bit & 1
            values[bit] = combine(columns[bit], values[bit], value) if is_delta else value
    return tuple(values.values())
