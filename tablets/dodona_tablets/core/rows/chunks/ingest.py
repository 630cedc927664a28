"""Turn a bulk batch, which is a stream of Arrow data, into one sorted batch that can be a chunk.

Owns: all checks of a client's batch: columns, nulls, lengths, the values of `any`, the computed
columns, and the range of the tablet. The batch is written as it came, and no later step checks it
row by row. Of rows with the same key, the last one stays, or the key is an error. No Python object
is made for a row, except for values of `any`.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dodona_tablets.core.rows.chunks.layout import KEY, MASK, chunk_schema
from dodona_tablets.core.rows.chunks.streams import batches_of, names_of
from dodona_tablets.core.rows.chunks.vectors import first_of_kind
from dodona_wire.errors import DuplicateKey, InvalidRequest, SchemaViolation
from dodona_wire.rows.arrow import arrow_schema, check_lengths
from dodona_wire.rows.arrow_keys import encode_keys, in_order, order_of
from dodona_wire.rows.logical_checks import check_stored_columns
from dodona_wire.rows.packed_names import nulls_in_packed
from dodona_wire.rows.row_rules import ROW_BYTES_MAX, check_update
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.types import DELETE_MASK, BatchKind, Key

_TEXT_TYPES: Final = ("string", "utf8", "any")


def prepare_batch(
    schema: TableSchema,
    stream: Any,
    lower: Key,
    upper: Key,
    kind: BatchKind = "write",
    *,
    is_exact: bool = False,
) -> pa.RecordBatch:
    """Return the rows of an IPC stream in a chunk layout without timestamps, in key order, with one
    row for each key. Rows that came in order are not copied. Without rows, the result is a batch
    without rows.

    A "write" has all columns. An "update" has the key columns and one or more of the others, in the
    table's order. A "delete" has the key columns. If the batch is exact, no key may come twice.

    Raises InvalidRequest if it is not a stream, or if a key is outside `lower ≤ key < upper`.
    Raises SchemaViolation if it does not fit the schema, LimitExceeded if it is too large, and
    DuplicateKey if an exact batch has a key twice.
    """
    mask = _mask_of(schema, stream, kind)
    expected = arrow_schema(schema, mask)
    table = pa.Table.from_batches(batches_of(stream, expected), expected)
    given = (*schema.key_columns, *schema.columns_of(mask))
    columns = [_checked(schema, it, _whole(table.column(it.name))) for it in given]
    batch = pa.RecordBatch.from_arrays(columns, schema=expected)
    check_stored_columns(schema, batch)
    if schema.computed:
        from dodona_wire.rows.computed_arrow import check_computed_columns

        check_computed_columns(schema, batch)
    found = encode_keys(schema, batch)
    _check_row_sizes(schema, found, batch)
    order, keys = in_order(found)
    if is_exact and len(keys) < len(found):
        key = schema.named_key(_first_repeated(found))
        raise DuplicateKey(f"the key {key} comes twice in one batch", key=key)
    if len(keys):
        _check_range(schema, keys[0].as_py(), lower, upper)
        _check_range(schema, keys[-1].as_py(), lower, upper)
    if order is not None:
        batch = batch.take(order)
    return _laid_out(schema, keys, batch, mask)


def _mask_of(schema: TableSchema, stream: Any, kind: BatchKind) -> int:
    """Return the mask of the value columns that a stream of this kind sets."""
    if kind == "write":
        return schema.full_mask
    if kind == "delete":
        return DELETE_MASK
    names = names_of(stream)
    mask = schema.column_mask(names[len(schema.key_columns) :])
    if not mask:
        raise SchemaViolation("the update sets key columns only. Set at least one value column")
    check_update(schema.columns, names)
    return mask


def _first_repeated(keys: pa.Array) -> Key:
    ordered = keys.take(order_of(keys))
    return Key(ordered[int(first_of_kind(ordered).argmin())].as_py())


def _laid_out(
    schema: TableSchema, keys: pa.Array, batch: pa.RecordBatch, mask: int
) -> pa.RecordBatch:
    """Return rows that set these columns, in a layout of chunks."""
    if mask == schema.full_mask:
        layout = chunk_schema(schema, "batch")
        return pa.RecordBatch.from_arrays([keys, *batch.columns], schema=layout)
    layout = chunk_schema(schema, "masked")
    known = dict(zip(batch.schema.names, batch.columns, strict=True))
    known[KEY] = keys
    known[MASK] = pa.repeat(pa.scalar(schema.pack_mask(mask), layout.field(MASK).type), len(keys))
    columns = [
        known[field.name] if field.name in known else pa.nulls(len(keys), field.type)
        for field in layout
    ]
    return pa.RecordBatch.from_arrays(columns, schema=layout)


def _whole(data: pa.ChunkedArray) -> pa.Array:
    if data.num_chunks == 1:
        return data.chunk(0)
    return pa.concat_arrays(data.chunks) if data.num_chunks else pa.array([], data.type)


def _checked(schema: TableSchema, column: Column, array: pa.Array) -> pa.Array:
    """Return a column's values in the form that the column stores. Raises SchemaViolation. Values
    of nested types are checked later, with the other logical types."""
    check_lengths(column, array)
    if column.type == "any" and column.name not in schema.narrow_by_name:
        array = _checked_any(column, array)
    if column.required and array.null_count:
        row = array.is_null().index(True).as_py()
        raise SchemaViolation("required column is null", column=column.name, row_index=row)
    if column.type == "double" and column.sort_order is not None:
        array = pc.add(array, 0.0)  # -0.0 becomes 0.0, as in the encoded key
    return array


def _checked_any(column: Column, array: pa.Array) -> pa.Array:
    """Check values of type `any`. The MessagePack of null becomes null, so that null has one form
    only."""
    is_null = nulls_in_packed(array.to_pylist(), column.name)
    if sum(is_null) == array.null_count:
        return array
    return pc.if_else(pa.array(is_null), pa.scalar(None, array.type), array)


def _check_row_sizes(schema: TableSchema, keys: pa.Array, batch: pa.RecordBatch) -> None:
    if keys.nbytes + batch.nbytes <= ROW_BYTES_MAX:
        return
    sizes = pc.binary_length(keys).to_numpy().astype(np.int64)
    for column in schema.value_columns:
        if column.type in _TEXT_TYPES and column.name in batch.schema.names:
            sizes += pc.binary_length(batch.column(column.name)).fill_null(0).to_numpy()
    row = int(sizes.argmax())
    if sizes[row] > ROW_BYTES_MAX:
        text = f"a row is longer than {ROW_BYTES_MAX} bytes"
        raise SchemaViolation(text, size_bytes=int(sizes[row]), row_index=row)


def _check_range(schema: TableSchema, key: Key, lower: Key, upper: Key) -> None:
    if not lower <= key < upper:
        raise InvalidRequest("the key lies outside this tablet", key=schema.named_key(key))
