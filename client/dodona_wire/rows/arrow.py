"""Rows as Arrow: the mapping of types, and the streams of bulk writes and scans.

Owns: the Arrow type of each column type, and the order of columns in a stream: key columns, then
value columns, in schema order. `any` travels as MessagePack in a binary column. So do nested types,
in their stored form. pyarrow is imported
on first use: the light client works without it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.rows.arrow_keys import decode_keys, encode_keys
from dodona_wire.rows.logical_arrow import array_of_values, arrow_type_of
from dodona_wire.rows.logical_checks import check_stored_columns
from dodona_wire.rows.logical_values import store_of
from dodona_wire.rows.nested_arrow import unpacked_values
from dodona_wire.rows.packed_names import unpacked
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.rows.values import CHECKS, VALUE_BYTES_MAX
from dodona_wire.types import Key, Write


def arrow_type(column: Column) -> Any:
    """Return the Arrow type of a column."""
    _pyarrow()
    return arrow_type_of(column.logical)


def arrow_schema(schema: TableSchema, column_mask: int | None = None) -> Any:
    """Return the `pyarrow.Schema` of key columns and masked value columns (all for None)."""
    mask = schema.full_mask if column_mask is None else column_mask
    columns = (*schema.key_columns, *schema.columns_of(mask))
    return _pyarrow().schema(
        [_pyarrow().field(c.name, arrow_type(c), nullable=not c.required) for c in columns]
    )


def arrow_from_rows(
    schema: TableSchema, column_mask: int, keys: Sequence[Key], rows: Sequence[tuple[Any, ...]]
) -> bytes:
    """Return an IPC stream of whole keys and the masked value columns."""
    pyarrow = _pyarrow()
    key_arrays = decode_keys(schema, pyarrow.array(keys, pyarrow.binary()))
    arrays = [*key_arrays, *_arrays_of(schema.columns_of(column_mask), rows)]
    return stream_of(
        pyarrow.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema, column_mask))
    )


def arrow_of_tuples(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return a `pyarrow.Table` of rows that hold these columns' values."""
    return _table(columns, _arrays_of(columns, rows))


def table_of_columns(columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> Any:
    """Return a `pyarrow.Table` of each column's values, which are given as they are stored."""
    arrays = [array_of_stored(it, data) for it, data in zip(columns, values, strict=True)]
    return _table(columns, arrays)


def array_of_stored(column: Column, data: Sequence[Any]) -> Any:
    """Return a `pyarrow.Array` of a column's values, as users have them. They are given as they are
    stored."""
    kind = column.logical
    if kind.is_stored:
        return array_of(column, data)
    return array_of_values(kind, data)


def _table(columns: Sequence[Column], arrays: list[Any]) -> Any:
    pyarrow = _pyarrow()
    fields = [pyarrow.field(it.name, arrow_type(it), nullable=not it.required) for it in columns]
    return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))


def _arrays_of(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    values = list(zip(*rows, strict=True)) or [() for _ in columns]
    return [array_of(column, data) for column, data in zip(columns, values, strict=True)]


def concatenate(tables: Sequence[Any]) -> Any:
    """Return one `pyarrow.Table` of several with one schema; no data are copied."""
    return _pyarrow().concat_tables(tables)


def array_of(column: Column, data: Sequence[Any]) -> Any:
    """Return a `pyarrow.Array` of a column's values, as users have them."""
    if column.logical.members:
        store, name = store_of(column.logical), column.name
        stored = [None if value is None else store(value, name) for value in data]
        return array_of_values(column.logical, stored)
    if column.type == "any":
        data = [None if value is None else msgspec.msgpack.encode(value) for value in data]
    elif column.logical.form == "uuid":
        data = [None if value is None else value.bytes for value in data]
    return _pyarrow().array(data, arrow_type(column))


def stream_of(batch: Any) -> bytes:
    """Return a batch or a table as an IPC stream, in memory of exactly its size, filled once."""
    pyarrow = _pyarrow()
    measured = pyarrow.MockOutputStream()
    _write_stream(measured, batch)
    stream = bytearray(measured.size())
    _write_stream(pyarrow.FixedSizeBufferWriter(pyarrow.py_buffer(stream)), batch)
    return cast("bytes", stream)  # it never changes; a copy would take as long as all this


def _write_stream(sink: Any, batch: Any) -> None:
    with sink, _pyarrow().ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)


def table_of(stream: bytes) -> Any:
    """Return an IPC stream as a `pyarrow.Table`. Raises InvalidRequest on anything else."""
    pyarrow = _pyarrow()
    try:
        with pyarrow.ipc.open_stream(stream) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InvalidRequest(f"not an Arrow IPC stream: {error}") from error
    return table


def check_lengths(column: Column, array: Any) -> None:
    """Check that no text of a column is too long. Raises SchemaViolation."""
    if array.nbytes <= VALUE_BYTES_MAX or column.stored not in ("string", "utf8", "any"):
        return
    import pyarrow.compute

    lengths = pyarrow.compute.binary_length(array)
    longest = pyarrow.compute.max(lengths).as_py()
    if longest is not None and longest > VALUE_BYTES_MAX:
        row = pyarrow.compute.greater(lengths, VALUE_BYTES_MAX).index(True).as_py()
        text = f"value is longer than {VALUE_BYTES_MAX} bytes"
        raise SchemaViolation(text, column=column.name, row_index=row)


def rows_from_arrow(schema: TableSchema, stream: bytes) -> list[Write]:
    """Return an IPC stream of all columns as overwriting writes.

    Raises InvalidRequest if it is no stream, SchemaViolation if it does not fit the schema.
    """
    table = table_of(stream)
    expected = arrow_schema(schema)
    if table.schema.names != expected.names or table.schema.types != expected.types:
        raise SchemaViolation(f"the batch has {table.schema}, the table has {expected}")
    check_stored_columns(schema, table)
    if schema.computed:
        from dodona_wire.rows.computed_arrow import check_computed_columns

        check_computed_columns(schema, table)
    keys = encode_keys(schema, table).to_pylist()
    mask, rows = schema.full_mask, value_rows(schema, table)
    return [(key, mask, row) for key, row in zip(keys, rows, strict=True)]


def value_rows(schema: TableSchema, data: Any) -> Iterator[tuple[Any, ...]]:
    """Return the values of each row of a table or a record batch with all columns of the schema, as
    they are stored. Raises SchemaViolation."""
    values = [
        _unpacked(it, data.column(it.name), it.name in schema.narrow_by_name)
        for it in schema.value_columns
    ]
    return zip(*values, strict=True)


def _unpacked(column: Column, data: Any, is_checked: bool) -> list[Any]:
    """Return stored values. Those of nested types were checked before."""
    check_lengths(column, data)
    values: list[Any] = data.to_pylist()
    if column.required and None in values:
        raise SchemaViolation("required column is null", column=column.name)
    if column.stored != "any":
        return values
    if column.logical.members or is_checked:
        return unpacked_values(data)
    check = CHECKS["any"]
    try:
        return [
            None if value is None else check(unpacked(value, column.name), column.name)
            for value in values
        ]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SchemaViolation(f"not MessagePack: {error}", column=column.name) from error


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise InvalidRequest("Arrow needs pyarrow: pip install 'dodona[sql]'") from error
    return pyarrow
