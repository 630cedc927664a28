"""Make a frame of pandas or polars of rows, with a fixed dtype for each column type.

Owns: how a frame gets the dtype that `logical_types` has for each column type. Only the schema
decides, never the values. By itself, pandas guesses a dtype from the values, and makes integers
beside a null into floats. pandas and polars are imported on first use.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.logical_arrow import with_text_uuids
from dodona_wire.rows.logical_types import SQL_PRECISION_MAX, LogicalType
from dodona_wire.rows.logical_values import store_of
from dodona_wire.rows.nested_types import leaves_of
from dodona_wire.rows.schema import Column

_NUMBERS: Final = {
    "Int": ("IntegerArray", "int"),
    "UInt": ("IntegerArray", "uint"),
    "Float": ("FloatingArray", "float"),
    "boolean": ("BooleanArray", "bool"),
}
"""The extension array of each kind of numbers, and the NumPy dtype of its values, to which the bits
of the dtype are added. A mask marks the nulls."""

_POLARS: Final[dict[str, Callable[[Any, LogicalType], Any]]] = {
    "integer": lambda polars, kind: getattr(polars, kind.pandas),
    "float": lambda polars, _: polars.Float32,
    "date": lambda polars, _: polars.Date,
    "seconds": lambda polars, _: polars.Datetime("ms", "UTC"),
    "microseconds": lambda polars, _: polars.Datetime("us", "UTC"),
    "interval": lambda polars, _: polars.Duration("us"),
    "decimal": lambda polars, kind: polars.Decimal(kind.precision, kind.scale),
    "uuid": lambda polars, _: polars.String,
    "json": lambda polars, _: polars.String,
}
"""The dtype of polars for each form of a logical type. polars has no seconds, and no UUIDs: these
are text there."""
_POLARS_STORED: Final = {
    "int64": "Int64",
    "uint64": "UInt64",
    "double": "Float64",
    "boolean": "Boolean",
    "string": "Binary",
    "utf8": "String",
    "any": "Binary",
}
"""The same for stored types. Values of type any are MessagePack there, as in Arrow."""


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
    import numpy

    if column.logical.form == "interval":  # pandas would go by way of nanoseconds, which are less
        return pandas.Series(numpy.array(values, dtype))
    if name not in _NUMBERS:
        return pandas.Series(list(values), dtype=dtype)
    array, plain_name = _NUMBERS[name]
    plain_dtype = plain_name + dtype.removeprefix(name)
    plain = numpy.array([0 if it is None else it for it in values], plain_dtype)
    is_null = numpy.array([it is None for it in values], "bool")
    return pandas.Series(getattr(pandas.arrays, array)(plain, is_null))


def polars_of_tuples(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return a `polars.DataFrame` of rows with the values of these columns. Raises InvalidRequest
    if polars is not installed."""
    polars = _polars()
    values = list(zip(*rows, strict=True)) or [() for _ in columns]
    return polars.DataFrame(
        [_polars_series(polars, it, its) for it, its in zip(columns, values, strict=True)]
    )


def _polars_series(polars: Any, column: Column, values: Sequence[Any]) -> Any:
    """Return a column. Raises InvalidRequest if polars has no such dtype."""
    kind = column.logical
    for part in leaves_of(kind):
        if part.precision > SQL_PRECISION_MAX:
            text = f"polars has no {part.name}: use to_arrow or to_pandas"
            raise InvalidRequest(text, column=column.name)
    dtype = _polars_dtype(polars, kind)
    if not kind.members:
        return polars.Series(column.name, _for_polars(column, values), dtype)
    store = store_of(kind)
    stored = [None if it is None else store(it, column.name) for it in values]
    array = with_text_uuids(kind, stored)
    return polars.Series(column.name, polars.from_arrow(array)).cast(dtype)


def _polars_dtype(polars: Any, kind: LogicalType) -> Any:
    """Return the dtype of a type."""
    inside = [_polars_dtype(polars, it.kind) for it in kind.members]
    if kind.form == "list":
        return polars.List(inside[0])
    if kind.members:
        fields = zip([it.name for it in kind.members], inside, strict=True)
        struct = polars.Struct([polars.Field(*it) for it in fields])
        return polars.List(struct) if kind.form == "dict" else struct
    if kind.is_stored:
        return getattr(polars, _POLARS_STORED[kind.name])
    return _POLARS[kind.form](polars, kind)


def _for_polars(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    convert = _FOR_POLARS.get(column.type)
    return values if convert is None else [None if it is None else convert(it) for it in values]


_FOR_POLARS: Final[dict[str, Callable[[Any], Any]]] = {"any": msgspec.msgpack.encode, "uuid": str}


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
