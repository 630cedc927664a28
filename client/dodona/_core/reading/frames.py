"""Make a frame of pandas or polars of rows, with a fixed dtype for each column type.

Owns: the dtypes of each column type. Only the schema decides, never the values. By itself, pandas
guesses a dtype from the values, and makes integers beside a null into floats. pandas and polars are
imported on first use.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.schema import Column

_NUMBERS: Final = {
    "int64": ("IntegerArray", "int64"),
    "uint64": ("IntegerArray", "uint64"),
    "double": ("FloatingArray", "float64"),
    "boolean": ("BooleanArray", "bool"),
}
"""The extension array of each column type, and the NumPy dtype of its values. A mask marks the
nulls."""
_OTHERS: Final = {"string": "object", "utf8": "string", "any": "object"}
"""The dtype of the series for each other column type, which takes the values as they are."""

_POLARS: Final = {
    "int64": "Int64",
    "uint64": "UInt64",
    "double": "Float64",
    "boolean": "Boolean",
    "string": "Binary",
    "utf8": "String",
    "any": "Binary",
}
"""The dtype of polars of each column type. Values of type any are MessagePack there, as in
Arrow."""


def frame_of_tuples(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return a `pandas.DataFrame` of rows with the values of these columns. Raises InvalidRequest
    if pandas is not installed."""
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


def polars_of_tuples(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return a `polars.DataFrame` of rows with the values of these columns. Raises InvalidRequest
    if polars is not installed."""
    polars = _polars()
    values = list(zip(*rows, strict=True)) or [() for _ in columns]
    return polars.DataFrame(
        [
            polars.Series(it.name, _for_polars(it, its), getattr(polars, _POLARS[it.type]))
            for it, its in zip(columns, values, strict=True)
        ]
    )


def _for_polars(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    if column.type != "any":
        return values
    return [None if it is None else msgspec.msgpack.encode(it) for it in values]


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        text = "a frame of pandas needs pandas: pip install 'dodona[pandas]'"
        raise InvalidRequest(text) from error
    return pandas


def _polars() -> Any:
    try:
        import polars
    except ImportError as error:
        text = "a frame of polars needs polars: pip install 'dodona[polars]'"
        raise InvalidRequest(text) from error
    return polars
