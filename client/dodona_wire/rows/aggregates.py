"""What a change makes of an aggregate column's value. Shared by a client's buffer and by cells.

Owns: the meaning of the aggregates. Changes are folded in order of their timestamps, oldest first.
Invariant: `combine` is associative, since who folds what first is not a writer's to know: the
changes of one transaction are folded in its buffer, those of several by reads, old ones by
compaction. So `min` and `max` go by one order of all numbers, in which NaN comes last, as in
PostgreSQL and DuckDB, and -0.0 is before 0.0: comparisons of Python are none where NaN is. A sum of
integers wraps around; one of doubles is associative but for what each addition rounds, up to an
overflow to infinity: that is in the nature of doubles.
Source: the YTsaurus document, "Aggregation columns".
"""

from math import copysign
from typing import Any

from dodona_wire.rows.schema import Column


def combine(column: Column, base: Any, change: Any) -> Any:
    """The value after a change. None is no value yet, or no change.

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
    """What a value is compared by."""
    if type(value) is not float:
        return value
    return value != value, 0.0 if value != value else value, copysign(1.0, value)


def _sum(column_type: str, base: Any, change: Any) -> Any:
    total = base + change
    if column_type == "double":
        return total
    total &= (1 << 64) - 1
    return total - (1 << 64) if column_type == "int64" and total >> 63 else total
