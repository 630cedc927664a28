"""Cast a user's Arrow column to a column of a table, so that each value stays the same.

Owns: which types of Arrow a column takes, and how to reach the values in a user's array. There may
be dictionaries, runs, views, and the extension types `arrow.uuid`, `arrow.json` and `arrow.bool8`
in between, nested up to a limit. Any other type is refused by its name. Arrow's own errors never
reach a caller.
pyarrow and numpy are imported on first use: the light client works without them.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from dodona._core.writing.column_types import advice_for
from dodona._core.writing.logical_casting import cast_logical, may_cast_logical
from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.columns import Column
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.logical_values import no_zone
from dodona_wire.rows.text_format import json_of, reader_of
from dodona_wire.rows.values import double_of

DEPTH_MAX: Final = 8
"""How deep dictionaries and runs may be nested. A type from a file may have any depth."""
_UUID: Final = "arrow.uuid"
_JSON: Final = "arrow.json"
_BOOL8: Final = "arrow.bool8"
_DECIMAL_BITS: Final = 128
"""Arrow casts decimals of fewer bits wrongly: none to an integer that is longer than they are."""


def cast_column(column: Column, wanted: Any, array: Any) -> Any:
    """Return the array in the Arrow type of the column. Raises SchemaViolation."""
    import pyarrow

    given = array.type
    try:
        array, extension = plain_array(array)
        if not _may_cast(column.logical, array.type, extension):
            if _is_naive(column.logical, array.type):
                raise no_zone(column.name)
            raise _refusal(column, wanted, given)
        return at_row(array, lambda part: _cast(column, wanted, part, extension))
    except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowTypeError) as error:
        raise _refusal(column, wanted, given) from error


def _cast(column: Column, wanted: Any, array: Any, extension: str) -> Any:
    import pyarrow

    try:
        if extension == _JSON and column.type == "any":
            return pyarrow.array(_packed(column, array), wanted)
        if column.type == "double" and pyarrow.types.is_integer(array.type):
            return _doubles(column, wanted, array)
        if not column.logical.is_stored:
            return cast_logical(column, wanted, array)
        return array.cast(wanted, safe=True)
    except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowTypeError):
        raise
    except (pyarrow.ArrowException, OverflowError) as error:
        raise SchemaViolation(
            f"a value does not fit in {column.type}: {error}", column=column.name
        ) from error


def check_text(column: Column, array: Any) -> None:
    """Check that the text of a column is UTF-8. Arrow does not, unless it is asked to. Raises
    SchemaViolation."""
    if column.stored == "utf8":
        at_row(array, lambda part: _check_text(column, part))


def _check_text(column: Column, array: Any) -> None:
    import pyarrow

    try:
        array.validate(full=True)
    except pyarrow.ArrowException as error:
        text = f"column {column.name!r} is {column.type}, and the value is not UTF-8 text"
        raise SchemaViolation(text, column=column.name) from error


def at_row(array: Any, cast: Callable[[Any], Any]) -> Any:
    """Return the cast array. A refusal gets the row of the first value that is refused. It is found
    by casting halves, since the errors of Arrow do not name it."""
    try:
        return cast(array)
    except SchemaViolation:
        start, end = 0, len(array)
        while end - start > 1:
            middle = (start + end) // 2
            if _is_refused(array.slice(start, middle - start), cast):
                end = middle
            else:
                start = middle
        try:
            cast(array.slice(start, 1))
        except SchemaViolation as error:
            error.attributes["row_index"] = start
            raise
        raise  # all of it is too long for one array


def _is_refused(part: Any, cast: Callable[[Any], Any]) -> bool:
    try:
        cast(part)
    except SchemaViolation:
        return True
    return False


def _doubles(column: Column, wanted: Any, integers: Any) -> Any:
    """Return integers as doubles, by the rule for Python's integers. Arrow casts no integer above
    2^53, though many of these are exact doubles."""
    import pyarrow

    try:
        return integers.cast(wanted, safe=True)
    except pyarrow.ArrowInvalid:
        name, values = column.name, integers.to_pylist()
        doubles = [None if it is None else double_of(it, name) for it in values]
        return pyarrow.array(doubles, wanted)


def _refusal(column: Column, wanted: Any, given: Any) -> SchemaViolation:
    text = f"column {column.name!r} is {column.type} and takes Arrow's {wanted}, not {given}"
    if advice := advice_for(given):
        text = f"{text}. {advice}"
    return SchemaViolation(text, column=column.name)


def plain_array(array: Any, depth: int = 0) -> tuple[Any, str]:
    """Return the same values in a plain array, and the name of their extension type or an empty
    text."""
    import pyarrow

    types, kind = pyarrow.types, array.type
    if depth > DEPTH_MAX:
        raise pyarrow.ArrowNotImplementedError("nested too deep")
    if types.is_dictionary(kind):
        values, extension = plain_array(array.dictionary, depth + 1)
        return values.take(array.indices), extension
    if types.is_run_end_encoded(kind):
        values, extension = plain_array(array.values, depth + 1)
        return values.take(_runs_of(array)), extension
    if isinstance(kind, pyarrow.BaseExtensionType):
        values, _ = plain_array(array.storage, depth + 1)
        if kind.extension_name == _BOOL8:
            values = values.cast(pyarrow.bool_())
        elif kind.extension_name not in (_UUID, _JSON):
            raise pyarrow.ArrowNotImplementedError(kind.extension_name)
        return values, str(kind.extension_name)
    if types.is_string_view(kind):
        return array.cast(pyarrow.string()), ""
    if types.is_decimal(kind) and kind.bit_width < _DECIMAL_BITS:
        return array.cast(pyarrow.decimal128(kind.precision, kind.scale)), ""
    return (array.cast(pyarrow.binary()) if types.is_binary_view(kind) else array), ""


def _runs_of(array: Any) -> Any:
    """Return the index of each value's run. A slice of an array has all runs of the whole array."""
    import numpy
    import pyarrow

    places = numpy.arange(array.offset, array.offset + len(array))
    return pyarrow.array(numpy.searchsorted(array.run_ends.to_numpy(), places, side="right"))


def _packed(column: Column, texts: Any) -> list[bytes | None]:
    """Return JSON texts in the form of a column of type any."""
    read = reader_of(column)
    return [
        None if text is None else msgspec.msgpack.encode(read(json_of(text, column.name)))
        for text in texts.to_pylist()
    ]


def _may_cast(wanted: LogicalType, given: Any, extension: str) -> bool:
    """Return whether each value stays the same in a cast. Bytes in a column of type any are
    MessagePack, but those of a UUID are not."""
    import pyarrow

    types = pyarrow.types
    if types.is_null(given):
        return True
    is_text = types.is_string(given) or types.is_large_string(given)
    is_bytes = (
        types.is_binary(given) or types.is_large_binary(given) or types.is_fixed_size_binary(given)
    )
    is_whole = types.is_integer(given) or (types.is_decimal(given) and given.scale == 0)
    if not wanted.is_stored:
        return may_cast_logical(wanted, given, is_text=is_text, is_bytes=is_bytes)
    allowed: dict[str, bool] = {
        "int64": is_whole,
        "uint64": is_whole,
        "double": types.is_floating(given) or types.is_integer(given),
        "boolean": types.is_boolean(given),
        "string": is_text or is_bytes,
        "utf8": is_text,
        "any": (is_bytes and not extension) or extension == _JSON,
    }
    return allowed[wanted.name]


def _is_naive(wanted: LogicalType, given: Any) -> bool:
    import pyarrow

    is_moment = wanted.form in ("seconds", "microseconds")
    return is_moment and pyarrow.types.is_timestamp(given) and given.tz is None
