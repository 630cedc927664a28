"""Check the values of a column of each type, and copy them.

Owns: the checks of single values, and their limits. A check returns the value to store, which for
some types differs a little from the given one. Or it raises SchemaViolation with the column and the
reason. No number is rounded: a whole number that no double holds is refused. Subclasses of str,
bytes and float travel badly, so they become plain values.
Invariant: Dodona and its caller never share a list or a dict inside a value. A check copies what
goes in, and `own_copy` copies what goes out. Otherwise a caller that changes a row would change
what an embedded database stores, and what a second look at the same result shows. Imports no clock
and no I/O.
"""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final

import msgspec

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.value_rules import mismatch, plain_number
from dodona_wire.shown import shown

VALUE_BYTES_MAX: Final = 16 << 20
"""Bytes of text or bytes as they are, of `any` as MessagePack."""
NESTING_DEPTH_MAX: Final = 32


def _check_int64(value: Any, column: str) -> int:
    if type(value) is not int:
        value = plain_number(value)
    if type(value) is not int:
        raise mismatch(value, column, "an int")
    if not -(1 << 63) <= value < 1 << 63:
        raise SchemaViolation("value does not fit in int64", column=column, value=shown(value))
    return value


def _check_uint64(value: Any, column: str) -> int:
    if type(value) is not int:
        value = plain_number(value)
    if type(value) is not int:
        raise mismatch(value, column, "an int")
    if not 0 <= value < 1 << 64:
        raise SchemaViolation("value does not fit in uint64", column=column, value=shown(value))
    return value


def _check_double(value: Any, column: str) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return double_of(value, column)
    if isinstance(value, float):
        return float(value)
    number = plain_number(value)
    if number is not value:
        return _check_double(number, column)
    raise mismatch(value, column, "a float")


def double_of(number: int, column: str) -> float:
    """Return the double that is a whole number. The number may come as an int, as text without a
    point and an exponent, or in an Arrow column of integers. Raises SchemaViolation if there is
    none, because rounding would change the number silently. A float was rounded by its owner."""
    try:
        found = float(number)
    except OverflowError:
        text = "value does not fit in double"
        raise SchemaViolation(text, column=column, value=shown(number)) from None
    if not is_same(found, number):
        text = (
            f"column {column!r} is double, and no double equals {number}: to round the number, "
            f"give a float such as {found!r}"
        )
        raise SchemaViolation(text, column=column, value=shown(number))
    return found


def is_same(double: float, number: int) -> bool:
    """Return whether a whole number is this double, or its written form. JavaScript writes 2^60 as
    1152921504606847000, which is not its value, but tells it from all other doubles."""
    return double == number or int(Decimal(repr(double))) == number


def check_key_double(value: Any, column: str) -> float:
    checked = _check_double(value, column)
    if checked != checked:
        raise SchemaViolation("NaN is not allowed in a key", column=column)
    return checked


def _check_boolean(value: Any, column: str) -> bool:
    if type(value) is not bool:
        value = plain_number(value)
    if type(value) is not bool:
        raise mismatch(value, column, "a bool")
    return value


def _check_string(value: Any, column: str) -> bytes:
    if isinstance(value, str):
        value = _encode_text(value, column)
    if not isinstance(value, bytes):
        raise mismatch(value, column, "bytes or str")
    if len(value) > VALUE_BYTES_MAX:
        raise SchemaViolation(f"value is longer than {VALUE_BYTES_MAX} bytes", column=column)
    return bytes(value)


def _check_utf8(value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise mismatch(value, column, "a str")
    text: str = value if type(value) is str else str.__str__(value)
    size_bytes = len(text) if text.isascii() else len(_encode_text(text, column))
    if size_bytes > VALUE_BYTES_MAX:
        raise SchemaViolation(f"value is longer than {VALUE_BYTES_MAX} bytes", column=column)
    return text


def _encode_text(value: str, column: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise SchemaViolation(f"value is not Unicode text: {error}", column=column) from error


def _check_any(value: Any, column: str) -> Any:
    checked = _check_nested(value, column, 0)
    if isinstance(checked, str | bytes | list | dict):
        size_bytes = len(msgspec.msgpack.encode(checked))
        if size_bytes > VALUE_BYTES_MAX:
            raise SchemaViolation(f"value is longer than {VALUE_BYTES_MAX} bytes", column=column)
    return checked


def _check_nested(value: Any, column: str, depth: int) -> Any:
    if depth > NESTING_DEPTH_MAX:
        raise SchemaViolation(f"value is nested deeper than {NESTING_DEPTH_MAX}", column=column)
    if isinstance(value, list | tuple):
        return [_check_nested(item, column, depth + 1) for item in value]
    if isinstance(value, dict):
        return {
            _check_utf8(name, column): _check_nested(item, column, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, str):
        return _check_utf8(value, column)
    if type(value) is int:
        return _check_int64(value, column) if value < 0 else _check_uint64(value, column)
    if value is None or type(value) is bool:
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return bytes(value)
    if (plain := plain_number(value)) is not value:
        return _check_nested(plain, column, depth)
    raise mismatch(value, column, "None, numbers, bool, str, bytes, lists and dicts")


_HOLDERS: Final = frozenset((list, dict))
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


def own_copy(value: Any) -> Any:
    """Return a copy of a stored value of type any, which its caller may change. The way through
    MessagePack takes half the time of a copy in Python, and a seventh of `copy.deepcopy`."""
    return _decode(_encode(value)) if type(value) in _HOLDERS else value


def own_copies(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return `own_copy` of each of a row's values, of any types."""
    return tuple([own_copy(value) for value in values])


CHECKS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "int64": _check_int64,
    "uint64": _check_uint64,
    "double": _check_double,
    "boolean": _check_boolean,
    "string": _check_string,
    "utf8": _check_utf8,
    "any": _check_any,
}
"""Column type → the check that returns the value to store, or raises SchemaViolation."""


def size_bytes_of(value: Any) -> int:
    """Return the bytes of text and bytes, and of `any` as it travels. A number counts as 0."""
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    return len(msgspec.msgpack.encode(value)) if isinstance(value, list | dict) else 0
