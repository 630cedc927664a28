"""What a change makes of an aggregate column's value. Shared by a client's buffer and by cells.

Owns: the meaning of the aggregates. Changes are folded in order of their timestamps, oldest first.
Source: the YTsaurus document, "Aggregation columns".
"""

from typing import Any

from dodona.schema import Column


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
            return min(base, change)
        case "max":
            return max(base, change)
        case "first":
            return base
    raise AssertionError(f"column {column.name} does not aggregate")


def _sum(column_type: str, base: Any, change: Any) -> Any:
    total = base + change
    if column_type == "double":
        return total
    total &= (1 << 64) - 1
    return total - (1 << 64) if column_type == "int64" and total >> 63 else total
