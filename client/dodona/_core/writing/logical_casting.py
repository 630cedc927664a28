"""Cast a user's Arrow column to the Arrow type of a logical type, without changing a value.

Owns: which types of Arrow a column of a logical type takes, and the row of the first value that
does not fit. A column of type float is the one exception: there a longer number becomes the nearest
one.
pyarrow and numpy are imported on first use: the light client works without them.
"""

from collections.abc import Callable
from typing import Any, Final

from dodona_wire.errors import SchemaViolation
from dodona_wire.handlers import is_of_handler
from dodona_wire.rows.columns import Column
from dodona_wire.rows.logical_types import UUID_BYTES, LogicalType
from dodona_wire.shown import shown

_DASH: Final = "-"
_UUID_PATTERN: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_DIGITS: Final = 2 * UUID_BYTES
_INTEGER_DIGITS: Final = 20
"""Digits of any integer of 64 bits."""


def may_cast_logical(wanted: LogicalType, given: Any, *, is_text: bool, is_bytes: bool) -> bool:
    """Return whether a column of this type takes this plain type of Arrow."""
    import pyarrow

    types = pyarrow.types
    is_integer = types.is_integer(given)
    allowed: dict[str, bool] = {
        "integer": is_integer,
        "float": types.is_floating(given) or is_integer,
        "date": types.is_date(given),
        "seconds": types.is_timestamp(given) and given.tz is not None,
        "interval": types.is_duration(given),
        "decimal": types.is_decimal(given) or is_integer,
        "uuid": is_text or is_bytes,
        "json": is_text,
    }
    allowed["microseconds"] = allowed["seconds"]
    return allowed[wanted.form]


def cast_logical(column: Column, wanted: Any, array: Any) -> Any:
    """Return a plain array in the Arrow type of the column. Raises SchemaViolation with the row of
    a value that does not fit, and the errors of Arrow for types that it can't cast."""
    import pyarrow

    if pyarrow.types.is_null(array.type):
        return array.cast(wanted)
    cast = _CASTS.get(column.logical.form, _plain_cast)
    try:
        return cast(wanted, array)
    except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowTypeError):
        raise
    except (pyarrow.ArrowException, OverflowError, ValueError) as error:
        if is_of_handler(error):
            raise
        row = _first_refused(cast, wanted, array)
        text = f"a value does not fit in {column.type}: {error}"
        value = _text_of(array[row])
        raise SchemaViolation(text, column=column.name, row_index=row, value=value) from error


def _text_of(value: Any) -> str:
    """Return a value of Arrow as text; Python may have no such value."""
    try:
        return shown(value.as_py())
    except (OverflowError, ValueError) as error:
        if is_of_handler(error):
            raise
        return f"{value.type} {shown(value.value)}"


def _first_refused(cast: Callable[[Any, Any], Any], wanted: Any, array: Any) -> int:
    """Return the first row whose value can't be cast. There is one."""
    import pyarrow

    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            cast(wanted, array.slice(good, middle - good))
        except (pyarrow.ArrowException, OverflowError, ValueError) as error:
            if is_of_handler(error):
                raise
            bad = middle
        else:
            good = middle
    return good


def _plain_cast(wanted: Any, array: Any) -> Any:
    return array.cast(wanted, safe=True)


def _cast_float(wanted: Any, array: Any) -> Any:
    """Return the nearest numbers of 32 bits. A whole number is not rounded. Raises ValueError."""
    import pyarrow
    import pyarrow.compute

    nearest = array.cast(wanted, safe=False)
    if pyarrow.types.is_integer(array.type):
        if not nearest.cast(array.type).equals(array):
            raise ValueError("no float equals this whole number")
        return nearest
    is_inf = pyarrow.compute.is_inf
    if not is_inf(nearest).equals(is_inf(array)):
        raise ValueError("the number is too large")
    return nearest


def _cast_decimal(wanted: Any, array: Any) -> Any:
    import pyarrow

    if pyarrow.types.is_integer(array.type):
        array = array.cast(pyarrow.decimal128(_INTEGER_DIGITS, 0))
    return array.cast(wanted, safe=True)


def _cast_uuid(wanted: Any, array: Any) -> Any:
    """Return the bytes of UUIDs, which may come as text. All texts are read in one step."""
    import pyarrow
    import pyarrow.compute

    types = pyarrow.types
    if not types.is_string(array.type) and not types.is_large_string(array.type):
        return array.cast(pyarrow.binary()).cast(wanted)
    is_fit = pyarrow.compute.match_substring_regex(array, _UUID_PATTERN)
    if is_fit.false_count:
        raise ValueError("the text is not a UUID")
    digits = pyarrow.compute.replace_substring(array, _DASH, "")
    digits = digits.fill_null("0" * _DIGITS).cast(pyarrow.binary()).cast(pyarrow.binary(_DIGITS))
    start = digits.offset * _DIGITS
    text = digits.buffers()[1][start : start + len(digits) * _DIGITS].to_pybytes()
    raw = bytes.fromhex(text.decode())
    found = pyarrow.Array.from_buffers(wanted, len(array), [None, pyarrow.py_buffer(raw)])
    if not array.null_count:
        return found
    return pyarrow.compute.if_else(array.is_valid(), found, pyarrow.scalar(None, wanted))


_CASTS: Final = {"float": _cast_float, "decimal": _cast_decimal, "uuid": _cast_uuid}
"""The casts that are not Arrow's own."""
