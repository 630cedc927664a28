"""Frames and series of pandas, as Arrow data. Pure.

Owns: what an index is, and which values of pandas are nulls.

- A named index is a column, as after `reset_index`. An index without a name is left out.
- Series of a dict of columns must have equal indexes. Values are taken by place, and pandas would
  take those of other indexes by label.
- `None`, `NaN`, `NA` and `NaT` are nulls. In the dtype `Float64`, NaN is a number.
- Floats become whole numbers if the column of the table has these, because pandas makes floats of
  integers beside a null. Each float must be a whole number that it stands for exactly.
- Values of the dtype `object` are Python's: they are checked as in a single row.

pandas is never imported: a frame brings it. pyarrow and numpy are imported on first use.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from dodona._core.writing.row_tables import checked_values
from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.handlers import is_of_handler
from dodona_wire.rows.arrow import array_of_stored
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.shown import shown

EXACT_BITS: Final = {16: 11, 32: 24, 64: 53}
"""For the bits of a float: the bits of the smallest integer that may be rounded. As a double, 2^53
may have been 2^53 + 1."""


def is_pandas_frame(data: Any) -> bool:
    """Return whether the data is a `pandas.DataFrame`, also of a subclass."""
    return _is_of_pandas(data, "DataFrame")


def is_pandas_series(data: Any) -> bool:
    """Return whether the data is a `pandas.Series` or a `pandas.Index`, also of a subclass."""
    return _is_series(data) or _is_of_pandas(data, "Index")


def _is_of_pandas(data: Any, name: str) -> bool:
    return any(
        it.__name__ == name and it.__module__.partition(".")[0] == "pandas"
        for it in type(data).__mro__
    )


def table_of_pandas(schema: TableSchema, frame: Any) -> Any:
    """Return the frame as a `pyarrow.Table` of columns for the table. Raises SchemaViolation."""
    known = {column.name: column for column in schema.columns}
    series_by_name = dict(_named_series_of(frame))
    strangers = [name for name in series_by_name if name not in known]
    if strangers:
        raise SchemaViolation(
            f"no such column{_about_index(frame, strangers)}", columns=strangers, known=[*known]
        )
    pyarrow = _pyarrow()
    arrays = {name: array_of_series(known[name], it) for name, it in series_by_name.items()}
    return pyarrow.table(arrays)


def _about_index(frame: Any, strangers: list[str]) -> str:
    if set(strangers).isdisjoint(frame.index.names):
        return ""
    return ": the index has a name, so it is a column. Leave it out with reset_index(drop=True)"


def fields_of_pandas(frame: Any) -> list[tuple[str, Any]]:
    """Return the name of each column with its Arrow type, or with its Python values. Raises
    SchemaViolation."""
    return [(name, type_or_values_of_series(name, it)) for name, it in _named_series_of(frame)]


def type_or_values_of_series(name: str, series: Any) -> Any:
    """Return the Arrow type of a series, or the values if they are Python's."""
    if series.dtype == object:
        return _python_values(series)
    return _array_by_itself(name, series[:0]).type


def check_indexes(series_by_name: Mapping[str, Any]) -> None:
    """Check that all series of a dict of columns, which are equally long, have equal indexes. Other
    values have no index. Raises SchemaViolation."""
    found = [(name, it.index) for name, it in series_by_name.items() if _is_series(it)]
    for name, index in found[1:]:
        first, expected = found[0]
        # An index of Int64 does not equal one of int64, and has the same labels.
        if not index.equals(expected) and index.to_list() != expected.to_list():
            text = (
                f"the series of column {name!r} has another index than that of column {first!r}. "
                "Pass a DataFrame, which aligns both, or drop the indexes: reset_index(drop=True)"
            )
            raise SchemaViolation(text, column=name, columns=[first, name])


def _is_series(data: Any) -> bool:
    return _is_of_pandas(data, "Series")


def _named_series_of(frame: Any) -> Iterator[tuple[str, Any]]:
    """Yield the named levels of the index, then the columns. Raises SchemaViolation."""
    names = [it for it in frame.index.names if it is not None] + [*frame.columns]
    for name in names:
        if not isinstance(name, str):
            text = f"names of columns are text, and this frame has {shown(name)}: rename it"
            raise SchemaViolation(text, columns=[shown(it) for it in names[:20]])
    if len(set(names)) != len(names):
        raise SchemaViolation(
            "two columns, or a column and the index, have the same name", columns=names
        )
    for level, name in enumerate(frame.index.names):
        if name is not None:
            yield name, frame.index.get_level_values(level).to_series()
    for place, name in enumerate(frame.columns):
        yield name, frame.iloc[:, place]


def array_of_series(column: Column, series: Any) -> Any:
    """Return a series as an Arrow array, which may have another type than the column. Raises
    SchemaViolation."""
    if series.dtype == object:
        return array_of_stored(column, checked_values(column, _python_values(series)))
    array = _array_by_itself(column.name, series)
    is_whole = column.type in ("int64", "uint64") or column.logical.form == "integer"
    if is_whole and _pyarrow().types.is_floating(array.type):
        return _whole_numbers(column, array)
    return array


def _python_values(series: Any) -> list[Any]:
    """Return the values of a series or an index of Python objects. Scalars of numpy stay as they
    are: the checks of a column know them."""
    values: list[Any] = series.to_list()
    try:
        are_null = series.isna().tolist()
    except InvalidOperation:  # pandas compares a signaling NaN of decimals. The column refuses it
        are_signals = [isinstance(it, Decimal) and it.is_snan() for it in values]
        are_null = series.mask(are_signals, 0).isna().tolist()
    return [None if it else value for value, it in zip(values, are_null, strict=True)]


def _array_by_itself(name: str, series: Any) -> Any:
    pyarrow = _pyarrow()
    try:
        return pyarrow.Array.from_pandas(series)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        if is_of_handler(error):
            raise
        text = f"column {name!r} has the dtype {series.dtype}, which can't be read as Arrow data"
        raise SchemaViolation(f"{text}: {error}", column=name) from error


def _whole_numbers(column: Column, floats: Any) -> Any:
    """Return floats as whole numbers. Nulls stay. Raises SchemaViolation for the first float that
    is not whole, may have been rounded, or does not fit."""
    import numpy

    pyarrow = _pyarrow()
    if isinstance(floats, pyarrow.ChunkedArray):
        floats = floats.combine_chunks()
    exact_max = (1 << EXACT_BITS[floats.type.bit_width]) - 1
    is_null = floats.is_null().to_numpy(zero_copy_only=False)
    values = floats.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
    values = numpy.where(is_null, 0.0, values)
    least = 0 if column.stored == "uint64" else -exact_max
    is_good = (values >= least) & (values <= exact_max) & (values == numpy.floor(values))
    if not is_good.all():
        row = int(is_good.argmin())
        raise _not_whole(column, float(values[row]), row, exact_max)
    dtype = numpy.dtype(column.stored)
    return pyarrow.array(values.astype(dtype), mask=is_null)


def _not_whole(column: Column, value: float, row: int, exact_max: int) -> SchemaViolation:
    reason = "is no whole number"
    if value == value and abs(value) > exact_max:
        reason = "may have been rounded: give the column the dtype Int64 or UInt64 from the start"
    elif value < 0 and column.stored == "uint64":
        reason = "is below 0"
    text = f"column {column.name!r} is {column.type}, and the float {value!r} {reason}"
    return SchemaViolation(text, column=column.name, value=shown(value), row_index=row)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        text = "frames of pandas need pyarrow: pip install 'dodona[pandas]'"
        raise InvalidRequest(text) from error
    return pyarrow
