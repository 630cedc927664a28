"""Bulk batches: a stream of Arrow data becomes one sorted batch that can be a chunk.

Owns: all checks of what a client sent, since it is written as it came and never again looked at row
by row: columns, nulls, lengths, the values of `any`, and the range of the tablet. Of rows with one
key the last one stays. No Python object is made for a row, except for values of `any`.
"""

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dodona._core.arrow import arrow_schema, check_lengths
from dodona._core.arrow_keys import encode_keys, in_order
from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import ROW_BYTES_MAX, Column, TableSchema
from dodona.types import Key
from dodona.values import CHECKS
from dodona_tablets.core.chunks.layout import chunk_schema
from dodona_tablets.core.chunks.streams import batches_of

_TEXT_TYPES: Final = ("string", "utf8", "any")
_decode: Final = msgspec.msgpack.Decoder().decode


def prepare_batch(schema: TableSchema, stream: Any, lower: Key, upper: Key) -> pa.RecordBatch:
    """The rows of an IPC stream of all columns, in the layout `batch` of chunks: in key order, one
    of each key. What came in order is not copied. No rows are a batch without rows.

    Raises InvalidRequest if it is no stream, or if a key does not lie in lower ≤ key < upper;
    SchemaViolation if it does not fit the schema; LimitExceeded if it is too large.
    """
    expected = arrow_schema(schema)
    table = pa.Table.from_batches(batches_of(stream, expected), expected)
    columns = [_checked(column, _whole(table.column(column.name))) for column in schema.columns]
    batch = pa.RecordBatch.from_arrays(columns, schema=expected)
    keys = encode_keys(schema, batch)
    _check_row_sizes(schema, keys, batch)
    order, keys = in_order(keys)
    if len(keys):
        _check_range(schema, keys[0].as_py(), lower, upper)
        _check_range(schema, keys[-1].as_py(), lower, upper)
    if order is not None:
        batch = batch.take(order)
    return pa.RecordBatch.from_arrays([keys, *batch.columns], schema=chunk_schema(schema, "batch"))


def _whole(data: pa.ChunkedArray) -> pa.Array:
    if data.num_chunks == 1:
        return data.chunk(0)
    return pa.concat_arrays(data.chunks) if data.num_chunks else pa.array([], data.type)


def _checked(column: Column, array: pa.Array) -> pa.Array:
    """A column's values, as it keeps them."""
    check_lengths(column, array)
    if column.type == "any":
        array = _checked_any(column, array)
    if column.required and array.null_count:
        row = array.is_null().index(True).as_py()
        raise SchemaViolation("required column is null", column=column.name, row_index=row)
    if column.type == "double" and column.sort_order is not None:
        array = pc.add(array, 0.0)  # -0.0 becomes 0.0, as in the encoded key
    return array


def _checked_any(column: Column, array: pa.Array) -> pa.Array:
    """Null for the MessagePack of null too: it is one value, and has one form."""
    check = CHECKS["any"]
    is_null = np.zeros(len(array), np.bool_)
    row = 0
    try:
        for row, value in enumerate(array.to_pylist()):
            is_null[row] = value is None or check(_decode(value), column.name) is None
    except SchemaViolation as error:
        error.attributes.setdefault("row_index", row)
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"not MessagePack: {error}"
        raise SchemaViolation(text, column=column.name, row_index=row) from error
    if int(is_null.sum()) == array.null_count:
        return array
    return pc.if_else(pa.array(is_null), pa.scalar(None, array.type), array)


def _check_row_sizes(schema: TableSchema, keys: pa.Array, batch: pa.RecordBatch) -> None:
    if keys.nbytes + batch.nbytes <= ROW_BYTES_MAX:
        return
    sizes = pc.binary_length(keys).to_numpy().astype(np.int64)
    for column in schema.value_columns:
        if column.type in _TEXT_TYPES:
            sizes += pc.binary_length(batch.column(column.name)).fill_null(0).to_numpy()
    row = int(sizes.argmax())
    if sizes[row] > ROW_BYTES_MAX:
        text = f"a row is longer than {ROW_BYTES_MAX} bytes"
        raise SchemaViolation(text, size_bytes=int(sizes[row]), row_index=row)


def _check_range(schema: TableSchema, key: Key, lower: Key, upper: Key) -> None:
    if not lower <= key < upper:
        columns = dict(zip(schema.key_names, schema.decode_key(key), strict=True))
        raise InvalidRequest("the key lies outside this tablet", key=columns)
