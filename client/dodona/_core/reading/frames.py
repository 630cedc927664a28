"""Make a pandas frame of rows, with a fixed dtype for each column type.

Owns: how a frame gets the dtype that `logical_types` has for each column type. Only the schema
decides, never the values. By itself, pandas guesses a dtype from the values, and makes integers
beside a null into floats. pandas is imported on first use.
"""

from collections.abc import Sequence
from typing import Any, Final

from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.schema import Column

_NUMBERS: Final = {
    "Int": ("IntegerArray", "int"),
    "UInt": ("IntegerArray", "uint"),
    "Float": ("FloatingArray", "float"),
    "boolean": ("BooleanArray", "bool"),
}
"""The extension array of each kind of numbers, and the NumPy dtype of its values, to which the bits
of the dtype are added. A mask marks the nulls."""


def frame_of_tuples(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return a `pandas.DataFrame` of rows with the values of these columns. Raises InvalidRequest
    if pandas is not installed."""
    pandas = _pandas()
    values = list(zip(*rows, strict=True)) or [() for _ in columns]
    data = {it.name: _series(pandas, it, its) for it, its in zip(columns, values, strict=True)}
    return pandas.DataFrame(data, index=pandas.RangeIndex(len(rows)))


def _series(pandas: Any, column: Column, values: Sequence[Any]) -> Any:
    dtype = column.logical.pandas
    name = dtype.rstrip("0123456789")
    if name not in _NUMBERS:
        return pandas.Series(list(values), dtype=dtype)
    import numpy

    array, plain_name = _NUMBERS[name]
    plain_dtype = plain_name + dtype.removeprefix(name)
    plain = numpy.array([0 if it is None else it for it in values], plain_dtype)
    is_null = numpy.array([it is None for it in values], "bool")
    return pandas.Series(getattr(pandas.arrays, array)(plain, is_null))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise InvalidRequest("a frame needs pandas: pip install pandas") from error
    return pandas
