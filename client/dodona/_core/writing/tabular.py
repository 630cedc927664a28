"""The data that users write: Arrow data, frames, lists of dicts, and dicts of columns. Pure.

Owns: which kinds of data there are, and how each becomes Arrow data. `pandas_frames` has those of
pandas. Data of Arrow and of polars are not copied. Python values become columns by the table's
schema, with the checks of single rows, so that the error names the row.
Data is *whole* if it is in memory. Otherwise it is a stream, which can be read only once.
pyarrow is imported on first use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

from dodona._core.writing.pandas_frames import (
    array_of_series,
    check_indexes,
    fields_of_pandas,
    is_pandas_frame,
    is_pandas_series,
    table_of_pandas,
    type_or_values_of_series,
)
from dodona._core.writing.row_tables import checked_values, table_of_rows
from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.handlers import is_of_handler
from dodona_wire.rows.arrow import array_of_stored
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.shown import named, shown

KINDS_OF_DATA: Final = (
    "a data frame of pandas or polars, a pyarrow.Table, a RecordBatch or an iterable of these, a "
    "list of dicts, or a dict of columns"
)
_ARROW_STREAM: Final = "__arrow_c_stream__"
_ARROW_ARRAY: Final = "__arrow_c_array__"


def is_whole(data: Any) -> bool:
    """Return whether all of the data is in memory, so that it can be read twice. Raises
    InvalidRequest for what is no data at all."""
    is_column = hasattr(data, "__array_interface__")  # of numpy
    if is_column or is_pandas_series(data) or _is_polars(data, "Series"):
        raise not_data(data)
    if _is_polars(data, "DataFrame") or is_pandas_frame(data) or isinstance(data, Mapping):
        return True
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return True
    if type(data).__module__.startswith("pyarrow.") and hasattr(data, "num_rows"):
        return True
    if hasattr(data, _ARROW_ARRAY) and not hasattr(data, _ARROW_STREAM):
        return True
    if not hasattr(data, _ARROW_STREAM) and not _is_iterable(data):
        raise not_data(data)
    return False


def _is_iterable(data: Any) -> bool:
    return isinstance(data, Iterable) and not isinstance(data, str | bytes)


def converted(schema: TableSchema, data: Any, *, is_update: bool = False) -> Any:
    """Return the data as a `pyarrow.Table` if this needs the table's schema. Other data is
    returned as it is, for `batches_of`. Raises SchemaViolation, InvalidRequest."""
    if is_pandas_frame(data):
        return table_of_pandas(schema, data)
    if isinstance(data, Mapping):
        return _table_of_columns(schema, data)
    if is_rows(data):
        return table_of_rows(schema, _dicts(data), 0, is_update=is_update)
    return data


def is_rows(data: Any) -> bool:
    """Return whether the data is a sequence of dicts."""
    is_sequence = isinstance(data, Sequence) and not isinstance(data, str | bytes)
    return is_sequence and len(data) > 0 and isinstance(data[0], Mapping)


def _dicts(data: Sequence[Any]) -> list[Mapping[str, Any]]:
    rows = [*data]
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            text = f"a row is a dict, not {type(row).__name__}"
            raise SchemaViolation(text, row_index=place)
    return rows


def batches_of(data: Any) -> Iterator[Any]:
    """Yield the record batches of Arrow data as they come. If there are no rows, yield one batch,
    which says the columns. Raises InvalidRequest."""
    import pyarrow

    if isinstance(data, pyarrow.RecordBatch):
        yield data
    elif isinstance(data, pyarrow.Table):
        yield from data.to_batches() or [_empty(data.schema)]
    elif isinstance(data, pyarrow.RecordBatchReader):
        yield _empty(data.schema)  # it may have no batch, but it has columns
        yield from data
    elif hasattr(data, _ARROW_STREAM) or hasattr(data, _ARROW_ARRAY):
        yield from batches_of(_imported(data))
    elif _is_iterable(data) and not isinstance(data, Mapping):
        for batch in data:
            if not isinstance(batch, pyarrow.Table | pyarrow.RecordBatch):
                raise not_data(batch)
            yield from batches_of(batch)
    else:
        raise not_data(data)


def columns_of_reader(data: Any) -> Any:
    """Return a batch without rows that has the columns of a stream. None: only the first batch of
    the stream says its columns."""
    import pyarrow

    return _empty(data.schema) if isinstance(data, pyarrow.RecordBatchReader) else None


def _imported(data: Any) -> Any:
    """Return the data of another library, which Arrow's C interface passes on uncopied."""
    import pyarrow

    if _is_polars(data, "DataFrame"):
        for column, dtype in data.schema.items():
            _check_objects(dtype, column)
    try:
        if hasattr(data, _ARROW_STREAM):
            return pyarrow.RecordBatchReader.from_stream(data)
        return pyarrow.record_batch(data)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        if is_of_handler(error):
            raise
        if _is_polars(data, "DataFrame"):
            for column in data.columns:
                _arrow_array(column, data.get_column(column))
        text = f"the columns of this {type(data).__name__} can't be read as Arrow data: {error}"
        raise InvalidRequest(text) from error


def _empty(schema: Any) -> Any:
    import pyarrow

    return pyarrow.RecordBatch.from_arrays(
        [pyarrow.nulls(0, it) for it in schema.types], schema=schema
    )


def not_data(data: Any) -> InvalidRequest:
    """Return the error for data of a kind that can't be written."""
    text = f"rows in bulk are {KINDS_OF_DATA}, not {_kind(data)}"
    if _is_lazy(data):
        text = f"{text}. Collect the frame first: `frame.collect()`."
    return InvalidRequest(text)


def _kind(data: Any) -> str:
    return type(data).__name__


def _is_polars(data: Any, name: str) -> bool:
    return _kind(data) == name and type(data).__module__.startswith("polars.")


def _check_objects(dtype: Any, column: str) -> None:
    """Refuse a column of Python objects of polars: as Arrow data, they are their addresses."""
    if str(dtype) == "Object":
        text = f"column {column!r} has Python objects: give it another dtype of polars"
        raise SchemaViolation(text, column=column)


def _is_lazy(data: Any) -> bool:
    return _kind(data) == "LazyFrame"


# ---- dicts of columns


def _table_of_columns(schema: TableSchema, data: Mapping[Any, Any]) -> Any:
    import pyarrow

    known = {column.name: column for column in schema.columns}
    strangers = sorted(named(name) for name in data if name not in known)
    if strangers:
        raise SchemaViolation("no such column", columns=strangers, known=[*known])
    arrays = {name: _array(known[name], values) for name, values in data.items()}
    _check_equally_long({name: len(array) for name, array in arrays.items()})
    check_indexes(data)
    return pyarrow.table(arrays)


def _check_equally_long(counts: Mapping[str, int]) -> None:
    if len(set(counts.values())) > 1:
        text = "the columns are not equally long: each has a value, or None, for each row"
        raise SchemaViolation(text, row_counts=dict(counts))


def _array(column: Column, values: Any) -> Any:
    """Return the values of one column as an Arrow array, which may have another type than the
    column."""
    if is_pandas_series(values):
        return array_of_series(column, values)
    array = _arrow_array(column.name, values)
    if array is not None:
        return array
    if isinstance(values, _WITHOUT_ORDER) or not _is_iterable(values):
        raise _no_values(column.name, values)
    return array_of_stored(column, checked_values(column, [*values]))


_WITHOUT_ORDER: Final = (Mapping, Iterator, Set)
"""Collections that are no column: sets have no order, and iterators can't be read twice."""


def _no_values(column: str, values: Any) -> SchemaViolation:
    text = f"the values of column {column!r} are a list or an array, not {shown(values)}"
    return SchemaViolation(text, column=column)


def _arrow_array(column: str, values: Any) -> Any:
    """Return an array of Arrow, polars or numpy as an Arrow array, and None for other values. In
    numpy, NaN is a number, and no null. Raises SchemaViolation."""
    import pyarrow

    if isinstance(values, pyarrow.Array | pyarrow.ChunkedArray):
        return values
    if _is_polars(values, "Series"):
        _check_objects(values.dtype, column)
    try:
        if hasattr(values, _ARROW_STREAM):
            return pyarrow.chunked_array(values)
        if hasattr(values, _ARROW_ARRAY):
            return pyarrow.array(values)
        if hasattr(values, "__array_interface__") and values.dtype != object:
            return pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        if is_of_handler(error):
            raise
        text = f"column {column!r} can't be read as Arrow data: {error}"
        raise SchemaViolation(text, column=column) from error
    return None


# ---- the columns of data for a table that does not exist yet


Field = tuple[str, Any, bool]
"""Name, type and nullability of a column. The type is an Arrow type, or a list of the values."""


def fields_of(data: Any) -> list[Field]:
    """Return the columns of data, or of an Arrow schema. Only the schema of a stream is read.
    Raises SchemaViolation, InvalidRequest."""
    if is_pandas_frame(data):
        return [(*it, True) for it in fields_of_pandas(data)]
    if isinstance(data, Mapping):
        return [(name, _type_or_values(name, values), True) for name, values in data.items()]
    if is_rows(data):
        rows = _dicts(data)
        names = dict.fromkeys(name for row in rows for name in row)
        return [(name, [row.get(name) for row in rows], True) for name in names]
    return [(it.name, it.type, it.nullable) for it in _arrow_schema_of(data)]


def _arrow_schema_of(data: Any) -> Any:
    import pyarrow

    if isinstance(data, pyarrow.Schema):
        return data
    if isinstance(data, pyarrow.Table | pyarrow.RecordBatch | pyarrow.RecordBatchReader):
        return data.schema
    if hasattr(data, _ARROW_STREAM) or hasattr(data, _ARROW_ARRAY):
        return _imported(data).schema
    if isinstance(data, list | tuple) and data:
        return next(batches_of(data)).schema
    raise not_data(data)


def _type_or_values(column: str, values: Any) -> Any:
    """Return the Arrow type of one column's values, or the values if they are Python's."""
    if is_pandas_series(values):
        return type_or_values_of_series(column, values)
    array = _arrow_array(column, values)
    if array is not None:
        return array.type
    if isinstance(values, _WITHOUT_ORDER) or not _is_iterable(values):
        raise _no_values(column, values)
    return [*values]
