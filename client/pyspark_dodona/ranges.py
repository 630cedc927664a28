"""Ranges of keys, as leading key column values.

Owns: the intersection of ranges. Ends are places in the order of the table, and the order of
encoded keys decides which of two ends comes first. A prefix comes before all keys that begin with
it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dodona_wire.rows.logical_values import is_shown_otherwise
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.text_format import read_value
from dodona_wire.types import KEY_MAX, KEY_MIN, Key
from pyspark_dodona.option_values import KeyRange

Bound = tuple[Any, ...] | None
"""Leading key column values, or None for no bound."""


@dataclass(frozen=True, slots=True)
class Range:
    """The keys with lower ≤ key < upper."""

    lower: Bound = None
    upper: Bound = None


def range_of(schema: TableSchema, given: KeyRange | None) -> Range:
    """Return the range of an option, whose values have their form of JSON. Raises
    SchemaViolation."""
    if given is None:
        return Range()
    lower, upper = (_read(schema, it) for it in (given.lower, given.upper))
    return Range(lower, upper)


def _read(schema: TableSchema, values: Bound) -> Bound:
    if values is None:
        return None
    kept = values[len(schema.key_columns) :]  # too many: the client refuses them
    pairs = zip(schema.key_columns, values, strict=False)
    read = [
        read_value(column, it) if is_shown_otherwise(column.logical) else it for column, it in pairs
    ]
    return (*read, *kept)


def intersection(schema: TableSchema, ranges: Iterable[Range]) -> Range:
    """Return the keys that are in all ranges. Raises SchemaViolation for values that do not fit the
    key columns of the table."""
    lowest: tuple[Key, Bound] = (KEY_MIN, None)
    highest: tuple[Key, Bound] = (KEY_MAX, None)
    for it in ranges:
        if it.lower is not None:
            lowest = max(lowest, (schema.bound_of(it.lower), it.lower), key=_encoded)
        if it.upper is not None:
            highest = min(highest, (schema.bound_of(it.upper), it.upper), key=_encoded)
    return Range(lowest[1], highest[1])


def _encoded(end: tuple[Key, Bound]) -> Key:
    return end[0]


def is_empty(schema: TableSchema, keys: Range) -> bool:
    """Return whether no key can be in the range."""
    if keys.upper is None:
        return False
    lower = KEY_MIN if keys.lower is None else schema.bound_of(keys.lower)
    return lower >= schema.bound_of(keys.upper)


def cut(keys: Range, cuts: Sequence[tuple[Any, ...]]) -> list[Range]:
    """Return the parts of a range between rising cuts."""
    ends: list[Bound] = [keys.lower, *cuts, keys.upper]
    return [Range(lower, upper) for lower, upper in pairwise(ends)]
