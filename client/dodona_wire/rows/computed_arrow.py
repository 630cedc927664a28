"""Computed key columns of a whole Arrow batch: made in a client, checked in a cell. Pure.

Owns: the way from Arrow to the arrays of `expressions.arrays` and back. No Python object is made
for a row. numpy and pyarrow are imported on first use: the light client works without them.
"""

from collections.abc import Container
from typing import Any

from dodona_wire.errors import LimitExceeded, SchemaViolation
from dodona_wire.expressions.arrays import RowError, Rows, Values, error_of, values_of
from dodona_wire.expressions.values import KIND_OF_TYPE, Kind
from dodona_wire.rows.computed_column import Computed
from dodona_wire.rows.logical_arrow import stored_arrow_type
from dodona_wire.rows.schema import TableSchema


def check_computed_columns(schema: TableSchema, batch: Any) -> None:
    """Check the computed columns of a record batch or a table with all key columns, in the Arrow
    types of their stored types. Raises SchemaViolation with the row, LimitExceeded."""
    for it in schema.computed:
        check_computed_array(it, batch.column(it.name), computed_array(schema, it, batch))


def with_computed(schema: TableSchema, batch: Any, given: Container[str]) -> Any:
    """Return a record batch of stored columns with its computed columns. Those with given names
    must be right. Raises SchemaViolation with the row, LimitExceeded."""
    import pyarrow

    arrays = list(batch.columns)
    for it in schema.computed:
        found = computed_array(schema, it, batch)
        if it.name in given:
            check_computed_array(it, arrays[it.place], found)
        arrays[it.place] = found
    return pyarrow.RecordBatch.from_arrays(arrays, schema=batch.schema)


def computed_array(schema: TableSchema, computed: Computed, batch: Any) -> Any:
    """Return a computed column of a batch with the other key columns, in the Arrow types of their
    stored types. Raises SchemaViolation with the row, LimitExceeded."""
    import pyarrow

    names, row_count = schema.key_names, batch.num_rows
    columns: list[Values | None] = [None] * len(names)
    for place in computed.inputs:
        columns[place] = plain_values(batch.column(names[place]))
    rows = Rows(columns, row_count)
    try:
        found = values_of(computed.term, rows)
    except RowError as error:
        failure = computed.failure(str(error_of(computed.term, rows, error)))
        failure.attributes["row_index"] = error.row
        raise failure from error
    except pyarrow.ArrowException as error:
        text = f"the computed column {computed.name!r} of these rows is too long: use fewer rows"
        raise LimitExceeded(text, column=computed.name, row_count=row_count) from error
    _check_fit(computed, found, row_count)
    return _array(computed, found)


def check_computed_array(computed: Computed, given: Any, found: Any) -> None:
    """Check that a column which came from outside has the computed values. Both have the Arrow type
    of the stored type. Raises SchemaViolation with the row."""
    import pyarrow
    import pyarrow.compute as pc

    if isinstance(given, pyarrow.ChunkedArray):
        given = given.combine_chunks()
    is_same = pc.equal(given, found)
    if given.null_count or found.null_count:
        both_null = pc.and_(given.is_null(), found.is_null())
        is_same = pc.or_(is_same.fill_null(False), both_null)
    row = is_same.index(False).as_py()
    if row >= 0:
        error = computed.difference(given[row].as_py(), found[row].as_py())
        error.attributes["row_index"] = row
        raise error


def plain_values(array: Any) -> Values:
    """Return a column of stored values as an expression takes it."""
    import pyarrow

    if isinstance(array, pyarrow.ChunkedArray):
        array = array.combine_chunks()
    is_null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pyarrow.types.is_string(array.type):
        array = array.cast(pyarrow.binary())
    if pyarrow.types.is_binary(array.type):
        return Values(array.fill_null(b"") if array.null_count else array, is_null)
    if array.null_count:
        array = array.fill_null(pyarrow.scalar(0).cast(array.type))
    data = array.to_numpy(zero_copy_only=False)
    # -0.0 and 0.0 are the same key.
    return Values(data + 0.0 if pyarrow.types.is_floating(array.type) else data, is_null)


def _array(computed: Computed, found: Values) -> Any:
    """Return values as an array of Arrow."""
    import pyarrow
    import pyarrow.compute as pc

    data, is_null, wanted = found.data, found.is_null, stored_arrow_type(computed.kind)
    if not isinstance(data, pyarrow.Array):
        return pyarrow.array(data, wanted, mask=is_null)
    if is_null is not None:
        nothing = pyarrow.scalar(None, pyarrow.binary())
        data = pc.if_else(pyarrow.array(is_null), nothing, data)
    return data.cast(wanted)


def _check_fit(computed: Computed, found: Values, row_count: int) -> None:
    """Check the results as `Computed.value_of` does. Raises SchemaViolation with the row."""
    kind, data = computed.kind, found.data
    bad: Any = None
    if kind.lowest is not None:
        bad = (data < kind.lowest) | (data > kind.highest)
    elif KIND_OF_TYPE[kind.stored] == Kind.DOUBLE:
        bad = data != data
    if bad is not None:
        if found.is_null is not None:
            bad = bad & ~found.is_null
        if bad.any():
            _refuse(computed, found, int(bad.argmax()))
    if kind.stored == "utf8":
        _check_text(computed, found, row_count)


def _check_text(computed: Computed, found: Values, row_count: int) -> None:
    import pyarrow

    try:
        found.data.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        for row in range(row_count):
            if found.is_null is None or not found.is_null[row]:
                _refuse(computed, found, row)


def _refuse(computed: Computed, found: Values, row: int) -> None:
    """Raise the error of this row, if it has one."""
    value = found.data[row]
    try:
        computed.fitted(value.as_py() if hasattr(value, "as_py") else value.item())
    except SchemaViolation as error:
        error.attributes["row_index"] = row
        raise
