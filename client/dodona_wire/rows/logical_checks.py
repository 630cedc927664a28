"""Check Arrow columns of logical types, as they are stored, in a cell.

Owns: what a cell takes in bulk, which is what `check_of` in `logical_values` takes of each value.
Only a text of JSON is checked value by value, as values of type any are.
Invariant: a column that passes can be shown. numpy and pyarrow are imported on first use: the light
client works without them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.arrow_bytes import numpy_module
from dodona_wire.rows.fixed_bytes import blocks_of, valid_of, value_rows
from dodona_wire.rows.logical_arrow import stored_arrow_type
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.logical_values import Convert, check_json, check_of
from dodona_wire.rows.nested_arrow import are_stored
from dodona_wire.rows.packed_names import unpacked
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.values import CHECKS
from dodona_wire.shown import shown

_WORD_BYTES: Final = 8


def check_stored_columns(schema: TableSchema, batch: Any) -> None:
    """Check the columns of a record batch or a table that came from outside, in a cell. Raises
    SchemaViolation with the row."""
    for name, kind in schema.narrow_by_name.items():
        if name in batch.schema.names:
            check_stored_array(kind, name, batch.column(name))


def check_stored_array(kind: LogicalType, column: str, array: Any) -> None:
    """Check that a stored column, which came from outside, has values of the type only. Raises
    SchemaViolation with the row."""
    import pyarrow
    import pyarrow.compute as pc

    if kind.members:
        _check_nested(kind, column, array)
        return
    if kind.form == "json":
        _check_jsons(column, array)
        return
    if _are_plain(kind, array):
        return
    if kind.form == "float":
        nearest = array.cast(pyarrow.float32()).cast(pyarrow.float64())
        is_fit = pc.or_(pc.equal(nearest, array), pc.is_nan(array))
    else:
        is_fit = None
        if kind.size_bytes:
            is_fit = pc.equal(pc.binary_length(array), kind.size_bytes)
        if kind.lowest is not None:
            ends = pc.min_max(array)
            least, greatest = ends["min"].as_py(), ends["max"].as_py()
            if least is not None and not kind.lowest <= least <= greatest <= kind.highest:
                low, high = (pyarrow.scalar(it, array.type) for it in (kind.lowest, kind.highest))
                in_range = pc.and_(pc.greater_equal(array, low), pc.less_equal(array, high))
                is_fit = in_range if is_fit is None else pc.and_(is_fit, in_range)
    row = -1 if is_fit is None else is_fit.index(False).as_py()
    if row >= 0:
        text = f"stored value does not fit in {kind.name}"
        value = shown(array[row].as_py())
        raise SchemaViolation(text, column=column, value=value, row_index=row)


def _check_nested(kind: LogicalType, column: str, array: Any) -> None:
    """Check all values of each part together. Only if one is refused, look at each row."""
    try:
        if are_stored(kind, array, partial(_check_part, column)):
            return
    except (SchemaViolation, msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    check = check_of(kind)
    for row, packed in enumerate(array.to_pylist()):
        if packed is not None:
            _check_packed(kind, column, row, packed, check)


def _check_part(column: str, kind: LogicalType, values: Sequence[Any]) -> None:
    """Check stored values of one part of a nested type, whose type of Python is right."""
    import pyarrow

    if kind.name == "any":
        check = CHECKS["any"]
        for value in values:
            check(value, column)
        return
    try:
        array = pyarrow.array(values, stored_arrow_type(kind))
    except (pyarrow.ArrowException, OverflowError, UnicodeError) as error:
        raise SchemaViolation(str(error), column=column) from error
    if not kind.is_stored:
        check_stored_array(kind, column, array)


def _check_packed(kind: LogicalType, column: str, row: int, packed: bytes, check: Convert) -> None:
    try:
        found = check(unpacked(packed, column), column)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        text = f"not MessagePack: {error}"
        raise SchemaViolation(text, column=column, row_index=row) from error
    except SchemaViolation as error:
        error.attributes["row_index"] = row
        raise
    if msgspec.msgpack.encode(found) != packed:
        text = (
            f"column {column!r} is {kind.name}, and its MessagePack is not in the one stored form"
        )
        raise SchemaViolation(text, column=column, row_index=row)


def _are_plain(kind: LogicalType, array: Any) -> bool:
    """Return whether all values are good, by a quick test. Nearly all columns pass it. It has no
    answer for most types, whose checks are quick."""
    if hasattr(array, "chunks"):
        return False
    if kind.form == "float":
        return not array.null_count and _are_singles(array.to_numpy())
    if not kind.size_bytes:
        return False
    rows = value_rows(array, kind.size_bytes)
    if rows is None or kind.form != "decimal":
        return rows is not None
    return _are_plain_decimals(kind, rows, array)


def _are_singles(numbers: Any) -> bool:
    """Return whether all numbers have 32 bits; False if there is a NaN."""
    with numpy_module().errstate(over="ignore", invalid="ignore"):
        blocks = (numbers[it] for it in blocks_of(len(numbers)))
        return all((it.astype("f4") == it).all() for it in blocks)


def _are_plain_decimals(kind: LogicalType, rows: Any, array: Any) -> bool:
    """Return whether the first bytes of all values say that these are in the range. `rows` are the
    values, with or without nulls."""
    size = min(kind.size_bytes, _WORD_BYTES)
    low, high = (int.from_bytes(it[:size], "big") for it in (kind.lowest, kind.highest))
    first = rows[:, :size].view(f">u{size}")[:, 0]
    if array.null_count and len(rows) == len(array):
        first = first[valid_of(array)]
    blocks = (first[it].astype(f"u{size}") for it in blocks_of(len(first)))
    return all(low < it.min() and it.max() < high for it in blocks)


def _check_jsons(column: str, array: Any) -> None:
    for row, text in enumerate(array.to_pylist()):
        try:
            if text is not None:
                check_json(text, column)
        except SchemaViolation as error:
            error.attributes["row_index"] = row
            raise
