"""Refuse dates and times in the result of a query that other parts of Dodona can't hold. Pure.

Owns: the ranges. A date is in the years 1 to 9999, as in tables. A time of day ends before 24:00.
DuckDB has other values: `infinity`, far years, and `24:00:00`. Python has none of them. For most of
them, readers of Arrow raise an error that names no column. Others become another value: `24:00:00`
becomes `00:00:00`, and `infinity` in nanoseconds is in the year 2262. The same holds inside lists,
structs, maps and unions.

pyarrow is imported on first use.
"""

from collections.abc import Iterator
from typing import Any, Final

from dodona_wire.errors import InvalidRequest

_DAYS: Final = (-719_162, 2_932_896)
"""The first day of the year 1 and the last one of the year 9999, counted from 1970."""
_DAY_SECONDS: Final = 86_400
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_INFINITE_NS: Final = (1 << 63) - 1
"""Infinity in nanoseconds. All finite moments are nearer to 1970, and after the year 1."""
_WHAT: Final = "a date or a time that is infinite or not in the years 1 to 9999"
_WHAT_OF_DAY: Final = "the time of day 24:00:00"


class ResultValues:
    """The checks of one result, batch by batch."""

    def __init__(self, schema: Any) -> None:
        self._places = [at for at, it in enumerate(schema) if _has_times(it.type)]
        self._names = schema.names
        self._row_count = 0

    def check(self, batch: Any) -> None:
        """Check the next record batch. Raises InvalidRequest, which names the column and the
        row."""
        for place in self._places:
            column = batch.column(place)
            if _fault(column) is not None:
                row = next(it for it in range(len(column)) if _fault(column.slice(it, 1)))
                name, number = self._names[place], self._row_count + row
                text = (
                    f"Column {name!r} has {_fault(column.slice(row, 1))}. Python has no such "
                    "value. Cast it to text, or select other rows."
                )
                raise InvalidRequest(text, column=name, row_index=number)
        self._row_count += batch.num_rows


def _has_times(kind: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind):
        return True
    return any(_has_times(kind.field(it).type) for it in range(kind.num_fields))


def _fault(column: Any) -> str | None:
    """Return what is out of range in an array, or None."""
    import pyarrow
    import pyarrow.compute

    kind = column.type
    bounds = _bounds(kind)
    if bounds is None:
        return next((found for it in _inside(column) if (found := _fault(it))), None)
    bits = pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()
    ends = pyarrow.compute.min_max(column.view(bits))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or bounds[0] <= low <= high <= bounds[1]:
        return None
    return _WHAT_OF_DAY if pyarrow.types.is_time(kind) else _WHAT


def _bounds(kind: Any) -> tuple[int, int] | None:
    """Return the least and the greatest number of a date or a time, or None for other types."""
    import pyarrow

    if pyarrow.types.is_date32(kind):
        return _DAYS
    if pyarrow.types.is_time(kind):
        return 0, _DAY_SECONDS * _PER_SECOND[kind.unit] - 1
    if not pyarrow.types.is_timestamp(kind):
        return None
    if kind.unit == "ns":
        return 1 - _INFINITE_NS, _INFINITE_NS - 1
    unit = _PER_SECOND[kind.unit]
    return _DAYS[0] * _DAY_SECONDS * unit, (_DAYS[1] + 1) * _DAY_SECONDS * unit - 1


def _inside(column: Any) -> Iterator[Any]:
    """Yield the arrays inside an array that may have times, without what its nulls hide."""
    import pyarrow

    types, kind = pyarrow.types, column.type
    if types.is_map(kind):
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        inside = [it.slice(first, last - first) for it in (column.keys, column.items)]
    elif types.is_struct(kind):
        inside = column.flatten()
    elif types.is_union(kind):
        inside = [column.field(it) for it in range(kind.num_fields)]
    elif kind.num_fields:
        inside = [column.flatten()]
    else:
        inside = []
    yield from (it for it in inside if _has_times(it.type))
