"""Convert Arrow columns of logical types: to the stored form, and back. No object per row is made.

Owns: the Arrow type of each logical type, and these conversions, which give what `logical_values`
gives for each value. `logical_checks` has the checks of a cell.
`nested_arrow` takes columns of nested types apart, into columns that are converted here.
Invariant: what a conversion returns is right or there is an error: a range is checked before bits
are read as another type. numpy and pyarrow are imported on first use: the light client works
without them.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Context
from functools import cache, lru_cache
from typing import Any, Final

from dodona_wire.rows.arrow_bytes import numpy_module
from dodona_wire.rows.columns import Column
from dodona_wire.rows.fixed_bytes import (
    array_of_buffer,
    array_of_rows,
    binary_of_rows,
    blocks_of,
    bytes_of,
    full_rows,
    new_rows,
)
from dodona_wire.rows.logical_types import (
    PRECISION_MAX,
    SQL_PRECISION_MAX,
    UUID_BYTES,
    LogicalType,
)
from dodona_wire.rows.logical_values import (
    KINDS_MAX,
    load_of,
    refusal,
    text_of,
)
from dodona_wire.rows.nested_arrow import (
    array_of_nested,
    nested_arrow_type,
    packed_array,
    unpacked_values,
    values_of_nested,
)

_NO_FRACTION: Final = ".000000Z"
_WORD_BYTES: Final = 8
_WORD_BITS: Final = 64
_CONTEXT: Final = Context(prec=2 * PRECISION_MAX)


@lru_cache(KINDS_MAX)
def arrow_type_of(kind: LogicalType) -> Any:
    """Return the Arrow type of a column of this type."""
    import pyarrow

    if kind.members:
        return nested_arrow_type(kind, arrow_type_of)
    if kind.form == "decimal":
        is_short = kind.precision <= SQL_PRECISION_MAX
        make = pyarrow.decimal128 if is_short else pyarrow.decimal256
        return make(kind.precision, kind.scale)
    if kind.form == "integer":
        return getattr(pyarrow, kind.name)()
    return {
        "float": pyarrow.float32(),
        "date": pyarrow.date32(),
        "seconds": pyarrow.timestamp("s", "UTC"),
        "microseconds": pyarrow.timestamp("us", "UTC"),
        "interval": pyarrow.duration("us"),
        "uuid": pyarrow.binary(UUID_BYTES),
        "json": pyarrow.string(),
        "stored": _stored_types()[kind.stored],
    }[kind.form]


def stored_arrow_type(kind: LogicalType) -> Any:
    """Return the Arrow type of a column in the form in which cells store it."""
    return _stored_types()[kind.stored]


@cache
def _stored_types() -> dict[str, Any]:
    import pyarrow

    return {
        "int64": pyarrow.int64(),
        "uint64": pyarrow.uint64(),
        "double": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "string": pyarrow.binary(),
        "utf8": pyarrow.string(),
        "any": pyarrow.binary(),
    }


# ---- from a user's column to the stored one


def stored_array(kind: LogicalType, column: str, array: Any) -> Any:
    """Return a column of the type's Arrow type in the stored form. Raises SchemaViolation."""
    import pyarrow

    if isinstance(array, pyarrow.ChunkedArray):
        chunks = [stored_array(kind, column, it) for it in array.chunks]
        return pyarrow.chunked_array(chunks, stored_arrow_type(kind))
    if kind.members:
        return packed_array(stored_values(kind, column, array))
    stored = stored_arrow_type(kind)
    match kind.form:
        case "stored" | "json":
            return array
        case "integer" | "float":
            return array.cast(stored)
        case "uuid":
            return binary_of_rows(bytes_of(array, UUID_BYTES), array)
        case "decimal":
            return _stored_decimals(kind, column, array)
    numbers = array.view(pyarrow.int32() if kind.form == "date" else pyarrow.int64())
    _check_ends(kind, column, numbers)
    return numbers.cast(pyarrow.int64()).view(stored)  # none of them is negative, if it is unsigned


def _check_ends(kind: LogicalType, column: str, numbers: Any) -> None:
    """Check that all stored numbers are in the range. Raises SchemaViolation with the row."""
    import pyarrow.compute

    ends = pyarrow.compute.min_max(numbers)
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (kind.lowest <= least and greatest <= kind.highest):
        return
    bad = least if least < kind.lowest else greatest
    row = numbers.index(pyarrow.scalar(bad, numbers.type)).as_py()
    error = refusal(kind, bad, column)
    error.attributes.update(row_index=row)
    raise error


def _stored_decimals(kind: LogicalType, column: str, array: Any) -> Any:
    """Nearly all columns are in the range by the first word of each value. Arrow compares decimals
    ten times more slowly."""
    words = bytes_of(array, arrow_type_of(kind).byte_width).view("<i8")
    convert = _short_decimals if kind.size_bytes <= _WORD_BYTES else _long_decimals
    stored, is_in_range = convert(kind, words)
    if not is_in_range:
        _check_decimals(kind, column, array)
    return binary_of_rows(stored.view("u1"), array)


def _short_decimals(kind: LogicalType, words: Any) -> tuple[Any, bool]:
    """Return the stored form of decimals of at most one word, and whether all are in the range.
    Each is its lowest word then, whose sign the other word repeats. A null may have any words."""
    numpy, size = numpy_module(), kind.size_bytes
    _, stored = new_rows(len(words), size, f">i{size}")
    largest, sign, is_in_range = 10**kind.precision - 1, numpy.iinfo(f"i{size}").min, True
    for block in blocks_of(len(words)):
        low = words[block, 0].copy()
        is_in_range = is_in_range and -largest <= low.min() and low.max() <= largest
        is_in_range = is_in_range and bool((words[block, 1] == low >> _WORD_BITS - 1).all())
        stored[block, 0] = low.astype(f"i{size}", copy=False) ^ sign
    return stored, is_in_range


def _long_decimals(kind: LogicalType, words: Any) -> tuple[Any, bool]:
    """Return the stored form of decimals of several words, and whether the highest word says of all
    that they are in the range. The lowest word comes first in Arrow, and last in a stored value."""
    count, last = len(words), words.shape[1] - 1
    _, stored = new_rows(count, kind.size_bytes, ">i8")
    largest, is_in_range = 10**kind.precision - 1 >> _WORD_BITS * last, True
    sign = numpy_module().iinfo("i8").min
    for block in blocks_of(count):
        high = words[block, last].copy()
        is_in_range = is_in_range and -largest <= high.min() and high.max() < largest
        stored[block, 0] = high ^ sign
        for at in range(last):
            stored[block, last - at] = words[block, at]
    return stored, is_in_range


def _check_decimals(kind: LogicalType, column: str, array: Any) -> None:
    """Check that all decimals are in the range. Raises SchemaViolation with the row."""
    import pyarrow.compute

    ends = pyarrow.compute.min_max(array)
    largest = 10**kind.precision - 1
    for end in (ends["min"], ends["max"]):
        value = end.as_py()
        if value is not None and abs(int(value.scaleb(kind.scale, _CONTEXT))) > largest:
            error = refusal(kind, value, column)
            error.attributes["row_index"] = array.to_pylist().index(value)
            raise error


# ---- from the stored column to a user's


def user_array(kind: LogicalType, array: Any) -> Any:
    """Return a stored column in the type's Arrow type. Cells have checked its values."""
    import pyarrow

    if isinstance(array, pyarrow.ChunkedArray):
        chunks = [user_array(kind, it) for it in array.chunks]
        return pyarrow.chunked_array(chunks, arrow_type_of(kind))
    if kind.members:
        return array_of_nested(kind, unpacked_values(array), array_of_values, arrow_type_of)
    wanted = arrow_type_of(kind)
    match kind.form:
        case "stored" | "json":
            return array
        case "integer":
            return _narrowed(array, wanted)
        case "float":
            return array.cast(wanted)
        case "date":
            return _narrowed(array, pyarrow.int32()).view(wanted)
        case "uuid":
            return array_of_rows(wanted, full_rows(array, UUID_BYTES), array)
        case "decimal":
            return _user_decimals(kind, array)
    return _signed(array).view(wanted)


def _signed(array: Any) -> Any:
    """Return integers of 64 bits as signed ones, uncopied. Raises ArrowInvalid if one does not
    fit."""
    import pyarrow

    signed = pyarrow.int64()
    return array.view(signed) if _are_within(array, _WORD_BYTES) else array.cast(signed)


def _narrowed(array: Any, wanted: Any) -> Any:
    """Return integers of 64 bits as integers of a narrower type. Raises ArrowInvalid if one does
    not fit. numpy looks for the ends in a third of the time that Arrow takes to check each one."""
    is_signed = not str(wanted).startswith("u")
    return array.cast(wanted, safe=not _are_within(array, wanted.byte_width, is_signed))


def _are_within(array: Any, size_bytes: int, is_signed: bool = True) -> bool:
    """Return whether all integers of 64 bits fit in integers of so many bytes. A null may have any
    bits, so if this is false, Arrow must look, which knows the nulls."""
    bits = 8 * size_bytes - is_signed
    if str(array.type) == "uint64":
        numbers = bytes_of(array, _WORD_BYTES).view("<u8")
        return not len(numbers) or int(numbers.max()) < 1 << bits
    numbers = bytes_of(array, _WORD_BYTES).view("<i8")
    if not len(numbers):
        return True
    least, greatest = int(numbers.min()), int(numbers.max())
    return (-(1 << bits) if is_signed else 0) <= least and greatest < 1 << bits


def _user_decimals(kind: LogicalType, array: Any) -> Any:
    """The lowest word is the last one of a stored value. The words above a stored value repeat its
    sign in all bits."""
    numpy, wanted = numpy_module(), arrow_type_of(kind)
    rows = full_rows(array, kind.size_bytes)
    buffer, words = new_rows(len(array), wanted.byte_width, "<i8")
    size = min(kind.size_bytes, _WORD_BYTES)
    stored, sign = rows.view(f">i{size}")[:, ::-1], numpy.iinfo(f"i{size}").min
    for block in blocks_of(len(array)):
        for at in range(stored.shape[1]):
            word = stored[block, at].astype(f"<i{size}")
            if at == stored.shape[1] - 1:
                word ^= sign
            words[block, at] = word
        word >>= 8 * size - 1
        for at in range(stored.shape[1], words.shape[1]):
            words[block, at] = word
    return array_of_buffer(wanted, buffer, array)


# ---- nested types


def stored_values(kind: LogicalType, column: str, array: Any) -> list[Any]:
    """Return the stored values of a column of the type's Arrow type. Raises SchemaViolation."""
    import pyarrow

    if isinstance(array, pyarrow.ChunkedArray):
        return [value for it in array.chunks for value in stored_values(kind, column, it)]

    def read(kind: LogicalType, array: Any) -> list[Any]:
        stored = stored_array(kind, column, array)
        values: list[Any] = stored.to_pylist()
        return unpacked_values(stored) if kind.name == "any" else values

    return values_of_nested(kind, array, read)


def array_of_values(kind: LogicalType, values: Sequence[Any]) -> Any:
    """Return stored values, of which some are None, as an array of the type's Arrow type."""
    import pyarrow

    if kind.members:
        return array_of_nested(kind, values, array_of_values, arrow_type_of)
    if kind.name == "any":
        return packed_array(values)
    return user_array(kind, pyarrow.array(values, stored_arrow_type(kind)))


def with_text_uuids(kind: LogicalType, values: Sequence[Any]) -> Any:
    """Return stored values of a nested type as an Arrow array in which UUIDs are text, for programs
    that have no UUIDs."""
    return array_of_nested(kind, values, _part_with_text_uuids, _type_with_text_uuids)


def _part_with_text_uuids(kind: LogicalType, values: Sequence[Any]) -> Any:
    array = array_of_values(kind, values)
    return text_array(kind, array) if kind.form == "uuid" else array


def _type_with_text_uuids(kind: LogicalType) -> Any:
    import pyarrow

    if kind.members:
        return nested_arrow_type(kind, _type_with_text_uuids)
    return pyarrow.string() if kind.form == "uuid" else arrow_type_of(kind)


# ---- to Python and to text


def values_of(kind: LogicalType, array: Any) -> list[Any]:
    """Return a column of the type's Arrow type as a list of users' values."""
    if kind.members:
        load = load_of(kind)
        stored = stored_values(kind, "", array)
        return [None if it is None else load(it) for it in stored]
    values: list[Any] = array.to_pylist()
    if kind.form != "uuid":
        return values
    load = load_of(kind)
    return [None if it is None else load(it) for it in values]


def text_array(kind: LogicalType, array: Any) -> Any:
    """Return the texts of a column of the type's Arrow type, as `text_of` gives them."""
    import pyarrow
    import pyarrow.compute as pc

    text = pyarrow.string()
    match kind.form:
        case "date":
            return array.cast(text)
        case "seconds" | "microseconds":
            texts = pc.replace_substring(array.cast(text), " ", "T")
            return pc.replace_substring(texts, _NO_FRACTION, "Z")
    values = values_of(kind, array)
    return pyarrow.array([None if it is None else text_of(kind, it) for it in values], text)


# ---- whole tables


def user_table(columns: Sequence[Column], table: Any) -> Any:
    """Return a `pyarrow.Table` in which these columns, which came from cells, have the Arrow types
    of their logical types. Other columns stay as they are."""
    kinds = {it.name: it.logical for it in columns if not it.logical.is_stored}
    return _changed(table, kinds, arrow_type_of, lambda kind, _, array: user_array(kind, array))


def stored_table(columns: Sequence[Column], table: Any) -> Any:
    """Return a `pyarrow.Table` of these columns, which have the types of users, as it is stored."""
    kinds = {it.name: it.logical for it in columns if not it.logical.is_stored}
    return _changed(table, kinds, stored_arrow_type, stored_array)


def _changed(
    table: Any,
    kinds: Mapping[str, LogicalType],
    type_of: Callable[[LogicalType], Any],
    convert: Callable[[LogicalType, str, Any], Any],
) -> Any:
    """Return the table with the columns that `kinds` names converted."""
    import pyarrow

    fields, arrays = list(table.schema), list(table.columns)
    for place, field in enumerate(fields):
        if (kind := kinds.get(field.name)) is not None:
            fields[place] = field.with_type(type_of(kind))
            arrays[place] = convert(kind, field.name, arrays[place])
    return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields, table.schema.metadata))
