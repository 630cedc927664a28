"""Combine a change with the value of an aggregate column, in a client's buffer and in cells.

Owns: the meaning of the aggregates. Changes are folded in order of their timestamps, oldest first.
Invariant: `combine` is associative, because a writer can't know which changes are folded first. A
transaction's buffer folds its own changes. Reads fold those of several transactions, and compaction
folds old ones. So `min` and `max` use one order of all numbers. In it NaN comes last, as in
PostgreSQL and DuckDB, and -0.0 is before 0.0. Python's comparisons do not order NaN. A sum of
integers wraps around. A sum of doubles is associative except for the rounding of each addition, up
to an overflow to infinity: that is the nature of doubles.
Source: the YTsaurus document, "Aggregation columns".
"""

from math import copysign
from typing import Any

from dodona_wire.rows.schema import Column


def combine(column: Column, base: Any, change: Any) -> Any:
    """Return the value after a change. None is no value yet, or no change.

    Sums of integers wrap around modulo 2^64; a signed one reads the result as two's complement.
    """
    if base is None or change is None:
        return change if base is None else base
    match column.aggregate:
        case "sum":
            return _sum(column.type, base, change)
        case "min":
            return base if _place(base) <= _place(change) else change
        case "max":
            return change if _place(base) <= _place(change) else base
        case "first":
            return base
    raise AssertionError(f"column {column.name} does not aggregate")


def _place(value: Any) -> Any:
    """Return the sort key by which a value is compared."""
    if type(value) is not float:
        return value
    return value != value, 0.0 if value != value else value, copysign(1.0, value)


def _sum(column_type: str, base: Any, change: Any) -> Any:
    total = base + change
    if column_type == "double":
        return total
    total &= (1 << 64) - 1
    return total - (1 << 64) if column_type == "int64" and total >> 63 else total
