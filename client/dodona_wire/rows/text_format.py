"""Values as JSON and CSV text, so that every value of a table comes back as it was. Pure.

Owns: the one format of files, the command line, REST, the console, and SQL over columns of type
any. Two different values in a table are two different texts everywhere. A reader knows the column's
type, which says most. A value that JSON can't express is an object with one reserved name:

- bytes: text in columns of type string, if they are UTF-8, else {"$base64": …}. Inside `any` they
  are always {"$base64": …}, because text and bytes are two things there.
- NaN and the infinities: {"$double": "NaN"}, "Infinity" or "-Infinity". A column of type double
  also takes that word alone. Which of its many patterns of bits a NaN has is lost.
- a dict inside `any` whose one name is reserved: {"$dict": …}. Its own names mean nothing else.

Integers are JSON's numbers, all 64 bits of them. In CSV a null is nothing, and an empty text is "".
`any` is JSON text, and so are lists, structs and dicts: see `nested_text`. Dates, times, intervals,
decimals and UUIDs are the same text in JSON and in CSV: see `logical_values`. Bytes are text, or
`base64:…` if they are not UTF-8 or begin like that.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import Any, Final

import msgspec

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.json_text import decode_json
from dodona_wire.rows.logical_parsing import parse_of
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.logical_values import Convert, is_shown_otherwise, store_of, text_of
from dodona_wire.rows.nested_text import json_form, nested_formatter
from dodona_wire.rows.nested_values import converter_of
from dodona_wire.rows.schema import Column
from dodona_wire.rows.values import CHECKS, NESTING_DEPTH_MAX, check_key_double, double_of
from dodona_wire.shown import shown

BASE64: Final = "$base64"
DOUBLE: Final = "$double"
DICT: Final = "$dict"
RESERVED: Final = (BASE64, DOUBLE, DICT)
CSV_BASE64: Final = "base64:"
DEPTH_MAX: Final = 2 * NESTING_DEPTH_MAX + 2
"""The depth of JSON that is read: each dict may be wrapped."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_NUMBER: Final = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_EXACT_DIGITS: Final = 16
"""Digits of the first whole number that no double holds: 2^53 + 1."""
_EXACT_FLOAT_DIGITS: Final = 8
"""Digits of the first whole number that no float of 32 bits holds: 2^24 + 1."""
_UNUSUAL: Final = {
    "nan": float("nan"),
    "inf": float("inf"),
    "infinity": float("inf"),
    "-inf": float("-inf"),
    "-infinity": float("-inf"),
}

# ---- to JSON


def format_double(value: float) -> float | dict[str, str]:
    """Return the JSON form of a value of a column of type double."""
    return value if isfinite(value) else {DOUBLE: _name_of(value)}


def format_bytes(value: bytes) -> str | dict[str, str]:
    """Return the JSON form of a value of a column of type string."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _base64(value)


def format_any(value: Any) -> Any:
    """Return the JSON form of a value of a column of type any."""
    if isinstance(value, dict):
        formatted = {name: format_any(it) for name, it in value.items()}
        return {DICT: formatted} if is_reserved(value) else formatted
    if isinstance(value, list | tuple):
        return [format_any(it) for it in value]
    if isinstance(value, bytes):
        return _base64(value)
    return format_double(value) if isinstance(value, float) else value


_FORMATTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "double": format_double,
    "float": format_double,
    "string": format_bytes,
    "any": format_any,
}


def formatter_of(column: Column) -> Callable[[Any], Any] | None:
    """Return the function that makes the JSON of a value of the column, which is not null. Return
    None if such values are JSON as they are."""
    return formatter_of_type(column.logical)


def formatter_of_type(kind: LogicalType) -> Callable[[Any], Any] | None:
    """Return `formatter_of` a column of this type."""
    if kind.members:
        return nested_formatter(kind, formatter_of_type, format_bytes_as_text)
    return partial(text_of, kind) if is_shown_otherwise(kind) else _FORMATTERS.get(kind.name)


def format_value(column: Column, value: Any) -> Any:
    """Return the JSON of one value of a column."""
    formatter = formatter_of(column)
    return value if value is None or formatter is None else formatter(value)


def _name_of(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _base64(value: bytes) -> dict[str, str]:
    return {BASE64: b64encode(value).decode()}


def is_reserved(value: dict[str, Any]) -> bool:
    """Return whether the one name of an object is reserved."""
    return len(value) == 1 and next(iter(value)) in RESERVED


# ---- from JSON


def read_value(column: Column, value: Any) -> Any:
    """Return the value that a JSON value stands for, checked for the column. Raises
    SchemaViolation."""
    return reader_of(column)(value)


def reader_of(column: Column) -> Callable[[Any], Any]:
    """Return `read_value` for many values of a column."""
    name, read = column.name, _reader_of_type(column.logical)
    is_key = column.sort_order is not None and column.type == "double"

    def read_column(value: Any) -> Any:
        if value is None:
            return None
        found = read(value, name)
        return check_key_double(found, name) if is_key else found

    return read_column


def _reader_of_type(kind: LogicalType) -> Convert:
    """Return the function that makes a user's value of JSON that is not null, and checks it."""
    if kind.members:
        return converter_of(kind, json_form(bytes_of_text), _reader_of_type)
    check, stored = store_of(kind), kind.stored
    if is_shown_otherwise(kind):
        parse = parse_of(kind)

        def read_text(value: Any, name: str) -> Any:
            found = parse(value, name)
            check(found, name)
            return found

        return read_text
    if stored not in _FORMATTERS:
        return check

    def read(value: Any, name: str) -> Any:
        if stored == "any":
            value = unmarked(value, name)
        elif stored == "double" and isinstance(value, str):
            value = _double_of(value, name)
        elif isinstance(value, dict):
            value = _marked(value, name, stored)
        return check(value, name)

    return read


def _double_of(value: str, column: str) -> float:
    found = _UNUSUAL.get(value.lower())
    if found is None:
        raise SchemaViolation(
            f"column {column!r} takes a number, or NaN, Infinity or -Infinity as text, "
            f"not {value[:40]!r}",
            column=column,
        )
    return found


def _marked(value: dict[str, Any], column: str, kind: str) -> bytes | float:
    """Read bytes, or a double."""
    if kind == "string" and value.keys() == {BASE64}:
        return _decoded(value[BASE64], column)
    if kind == "double" and value.keys() == {DOUBLE}:
        return _double_of(str(value[DOUBLE]), column)
    what = f'text, or bytes as {{"{BASE64}": …}}'
    if kind == "double":
        what = f'a number, or {{"{DOUBLE}": …}}'
    raise SchemaViolation(f"column {column!r} takes {what}", column=column)


def _decoded(text: Any, column: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise SchemaViolation(f"{shown(text)} is not base64: {error}", column=column) from error


def may_be_marked(content: bytes) -> bool:
    """Return whether a JSON text may have reserved names at all: nearly none has."""
    return b'"$' in content or b"\\u0024" in content


def unmarked(value: Any, column: str, depth: int = 0) -> Any:
    """Return the value that a JSON value stands for, in a column of type any or a similar place.
    Raises SchemaViolation."""
    if depth > DEPTH_MAX:
        raise SchemaViolation(f"value is nested deeper than {NESTING_DEPTH_MAX}", column=column)
    if isinstance(value, list):
        return [unmarked(it, column, depth + 1) for it in value]
    if not isinstance(value, dict):
        return value
    if is_reserved(value):
        ((name, held),) = value.items()
        if name == BASE64:
            return _decoded(held, column)
        if name == DOUBLE:
            return _double_of(str(held), column)
        value = held
        if not isinstance(value, dict):
            raise SchemaViolation(f"the value of {DICT} must be an object", column=column)
    return {name: unmarked(it, column, depth + 1) for name, it in value.items()}


# ---- text: CSV, and words of a command


def format_bytes_as_text(value: bytes) -> str:
    """Return the text of a value of a column of type string."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return CSV_BASE64 + b64encode(value).decode()
    return CSV_BASE64 + b64encode(value).decode() if text.startswith(CSV_BASE64) else text


_MAY_BE_FORMATTED: Final = re.compile(
    rb"[\xc4-\xc6\xca]|\xcb[\x7f\xff][\xf0-\xff]|\$(?:base64|double|dict)"
)
"""In MessagePack: the heads of bytes and of short floats, doubles that are no number, and reserved
names. A text may have such bytes, too: then it takes the long path in vain."""


def format_packed_as_text(packed: bytes) -> str:
    """Format a packed value of a column of type any, as JSON. Nearly all are plain JSON."""
    value = msgspec.msgpack.decode(packed)
    formatted = value if _MAY_BE_FORMATTED.search(packed) is None else format_any(value)
    return msgspec.json.encode(formatted).decode()


def format_value_as_text(value: Any) -> str:
    """Format a stored value of type any, as JSON."""
    return msgspec.json.encode(format_any(value)).decode()


def json_of_any(value: Any) -> str:
    """Return the JSON text that a query sees for a value of a column of type `any`, to be compared
    with such a column. Raises SchemaViolation if the column could not have the value."""
    return format_value_as_text(CHECKS["any"](value, ""))


def bytes_of_text(raw: bytes, column: str) -> bytes:
    """Return the bytes that `format_bytes_as_text` formatted. Raises SchemaViolation."""
    prefix = CSV_BASE64.encode()
    if not raw.startswith(prefix):
        return raw
    return _decoded(raw[len(prefix) :].decode("utf-8", "replace"), column)


def value_of_text(column: Column, text: str) -> Any:
    """Return the value of a column that a text stands for. No text stands for null. Raises
    SchemaViolation."""
    value = _parse(column, text)
    stored = store_of(column.logical)(value, column.name)
    return value if is_shown_otherwise(column.logical) else stored


def _parse(column: Column, text: str) -> Any:
    if column.stored == "any":
        return read_value(column, json_of(text, column.name))
    if is_shown_otherwise(column.logical):
        return parse_of(column.logical)(text, column.name)
    match column.stored:
        case "utf8":
            return text
        case "string":
            try:
                return bytes_of_text(text.encode(), column.name)
            except UnicodeEncodeError as error:
                raise _misread(column, text) from error
        case "int64" | "uint64" if _INTEGER.fullmatch(text):
            return int(text)
        case "double" if _NUMBER.fullmatch(text) and isfinite(float(text)):
            return _number_of_text(text, column.logical, column.name)
        case "double" if text.lower() in _UNUSUAL:
            return _UNUSUAL[text.lower()]
        case "boolean" if text.lower() in ("true", "false"):
            return text.lower() == "true"
    raise _misread(column, text)


def _number_of_text(text: str, kind: LogicalType, column: str) -> float:
    """Return a finite number. Without a point and an exponent it is a whole number, which is not
    rounded: that of a float is checked as an int. Raises SchemaViolation."""
    sign, digits = text[:1] == "-", text.lstrip("-").lstrip("0")  # few enough for `int`
    is_float = kind.form == "float"
    exact_digits = _EXACT_FLOAT_DIGITS if is_float else _EXACT_DIGITS
    if len(digits) < exact_digits or not digits.isdecimal():
        return float(text)
    number = -int(digits) if sign else int(digits)
    return number if is_float else double_of(number, column)


def json_of(text: str | bytes, column: str) -> Any:
    """Return a JSON value, before a reader knows what it stands for. Raises SchemaViolation."""
    try:
        return decode_json(text)
    except SchemaViolation as error:
        error.attributes["column"] = column
        raise
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise SchemaViolation(f"not JSON: {error}", column=column) from error


def _misread(column: Column, text: str) -> SchemaViolation:
    return SchemaViolation(
        f"column {column.name!r} has type {column.type}, but {text[:40]!r} is no such value",
        column=column.name,
    )
