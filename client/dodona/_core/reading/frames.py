"""Rows as a pandas frame: which dtype stands for which column type.

Owns: that mapping. The schema decides, never the values: pandas guesses a dtype from the values of
a column, and makes floats of integers that stand beside a null. pandas is imported on first use.
"""

from collections.abc import Sequence
from typing import Any, Final

from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.schema import Column

_NUMBERS: Final = {
    "int64": ("IntegerArray", "int64"),
    "uint64": ("IntegerArray", "uint64"),
    "double": ("FloatingArray", "float64"),
    "boolean": ("BooleanArray", "bool"),
}
"""Column type → the extension array, and the NumPy dtype of its values: a mask has the nulls."""
_OTHERS: Final = {"string": "object", "utf8": "string", "any": "object"}
"""Column type → the dtype of a series of the values as they are."""


def frame_of_tuples(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> Any:
    """A `pandas.DataFrame` of rows that hold these columns' values. Raises InvalidRequest where
    pandas is not installed."""
    pandas = _pandas()
    values = list(zip(*rows, strict=True)) or [() for _ in columns]
    data = {it.name: _series(pandas, it, its) for it, its in zip(columns, values, strict=True)}
    return pandas.DataFrame(data, index=pandas.RangeIndex(len(rows)))


def _series(pandas: Any, column: Column, values: Sequence[Any]) -> Any:
    if column.type not in _NUMBERS:
        return pandas.Series(list(values), dtype=_OTHERS[column.type])
    import numpy

    array, dtype = _NUMBERS[column.type]
    plain = numpy.array([0 if it is None else it for it in values], dtype)
    is_null = numpy.array([it is None for it in values], "bool")
    return pandas.Series(getattr(pandas.arrays, array)(plain, is_null))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise InvalidRequest("a frame needs pandas: pip install pandas") from error
    return pandas
