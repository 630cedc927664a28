"""Constants of a plan as stored values of a column, and the values next to them. Pure.

Owns: how DuckDB writes a constant of each type in the text of a plan. What is not understood is no
constant, so it makes no range smaller. Values are stored values: they have the order of the users'
values, and they travel as they are.
"""

import math
import re
from ctypes import c_float, c_uint32
from typing import Any, Final

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.logical_parsing import parse_of
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.logical_values import EPOCH, SECOND, single, store_of

Expression = dict[str, Any]
"""A node of the syntax tree that DuckDB's `json_serialize_sql` returns."""

_BLOB_ESCAPE: Final = re.compile(r"\\x([0-9A-Fa-f]{2})")
_UTC: Final = "+00"
_CASTS: Final = {
    "date": "DATE",
    "seconds": "TIMESTAMP WITH TIME ZONE",
    "microseconds": "TIMESTAMP WITH TIME ZONE",
    "uuid": "UUID",
}
"""The type of a text that stands for a constant of a logical type."""
_NEAR_LENGTH: Final = 4
"""Last characters of a text that is a little smaller than another one."""
_NEAR_LENGTH_MAX: Final = 1 << 10
"""Of a longer text, the beginning serves as the smaller text."""
_LAST_CHARACTER: Final = chr(0x10FFFF)
_SURROGATES: Final = range(0xD800, 0xE000)


def constant(tree: Expression, kind: LogicalType) -> Any:
    """Return the constant as a stored value of the type. None: it is no constant, or may not be
    exact."""
    if kind.is_stored:
        return _stored_constant(tree, kind.name)
    text = _text_of(tree, kind)
    if text is None:
        return None
    try:
        return _logical_constant(text, kind)
    except (SchemaViolation, ValueError):
        return None


def _stored_constant(tree: Expression, column_type: str) -> Any:
    if column_type == "string":
        text = _cast_text(tree, "BLOB")
        return _bytes_of(text) if text is not None and text.isascii() else None
    kind, text = _literal(tree)
    if column_type == "utf8":
        return text if kind == "STRING" else None
    if kind not in ("INTEGER", "NUMERIC"):
        return None
    try:
        value = float(text) if column_type == "double" else int(text)
    except ValueError:
        return None
    return value if _fits(value, column_type) else None


def _text_of(tree: Expression, kind: LogicalType) -> str | None:
    if kind.form in _CASTS:
        return _cast_text(tree, _CASTS[kind.form])
    found, text = _literal(tree)
    return text if found in ("INTEGER", "NUMERIC") else None


def _logical_constant(text: str, kind: LogicalType) -> Any:
    """Raises SchemaViolation and ValueError if the type has no such value."""
    match kind.form:
        case "integer":
            return store_of(kind)(int(text), "")
        case "interval" if kind.sql == "BIGINT":
            number = int(text)
            return number if kind.lowest <= number <= kind.highest else None
        case "float":
            nearest = single(float(text))
            return nearest if math.isfinite(nearest) else None
        case "seconds" | "microseconds" if text.endswith(_UTC):
            moment = parse_of(kind)(text.removesuffix(_UTC) + "Z", "")
            if kind.form == "seconds":  # the whole second below is in every range of the moment
                moment = EPOCH + (moment - EPOCH) // SECOND * SECOND
            return store_of(kind)(moment, "")
        case "date" | "uuid" | "decimal":
            return store_of(kind)(parse_of(kind)(text, ""), "")
    return None


def _cast_text(tree: Expression, type_name: str) -> str | None:
    is_cast = tree.get("type") == "OPERATOR_CAST" and tree["type_expr"]["type_name"] == type_name
    kind, text = _literal(tree["child"]) if is_cast else ("", "")
    return text if kind == "STRING" else None


def _literal(tree: Expression) -> tuple[str, str]:
    literal = tree.get("literal") if tree.get("type") == "VALUE_CONSTANT" else None
    return (literal["kind"], literal["text"]) if literal else ("", "")


def _bytes_of(text: str) -> bytes:
    return _BLOB_ESCAPE.sub(lambda it: chr(int(it[1], 16)), text).encode("latin-1")


def _fits(value: float, column_type: str) -> bool:
    match column_type:
        case "int64":
            return -(1 << 63) <= value < 1 << 63
        case "uint64":
            return 0 <= value < 1 << 64
        case "double":
            return math.isfinite(value)
    return False


def successor(value: Any, kind: LogicalType) -> Any:
    """Return the next stored value of the type, or None after the last one. Types of text that has
    a form have no next value either."""
    if kind.size_bytes:
        number = int.from_bytes(value, "big") + 1
        following = number.to_bytes(kind.size_bytes + 1, "big")[1:]
        highest = kind.highest or b"\xff" * kind.size_bytes
        return following if value < highest else None
    if kind.lowest is not None:
        return value + 1 if value < kind.highest else None
    match kind.name:
        case "int64" | "uint64":
            return value + 1 if _fits(value + 1, kind.name) else None
        case "string":
            return value + b"\0"
        case "utf8":
            return value + "\0"
        case "float":
            return _next_float(value)
        case "double":
            above = math.nextafter(value, math.inf)
            return above if math.isfinite(above) else None
    return None


def predecessor(value: Any, kind: LogicalType) -> Any:
    """Return a smaller stored value of the type, the nearest one if there is one. Between texts
    there are always more texts: then no short one lies between. None means null, which is below all
    values. Types of text that has a form have no smaller value here."""
    if kind.size_bytes:
        lowest = kind.lowest or bytes(kind.size_bytes)
        number = int.from_bytes(value, "big") - 1
        return number.to_bytes(kind.size_bytes, "big") if value > lowest else None
    if kind.lowest is not None:
        return value - 1 if value > kind.lowest else None
    match kind.name:
        case "int64" | "uint64":
            return value - 1 if _fits(value - 1, kind.name) else None
        case "string":
            return _bytes_below(value)
        case "utf8":
            return _text_below(value)
        case "float":
            above = _next_float(-value)
            return None if above is None else -above
        case "double":
            below = math.nextafter(value, -math.inf)
            return below if math.isfinite(below) else None
    return None


def _bytes_below(value: bytes) -> bytes | None:
    if len(value) > _NEAR_LENGTH_MAX:
        return value[:_NEAR_LENGTH_MAX]
    if not value or not value[-1]:
        return value[:-1] if value else None
    return value[:-1] + bytes([value[-1] - 1]) + _NEAR_LENGTH * b"\xff"


def _text_below(value: str) -> str | None:
    if len(value) > _NEAR_LENGTH_MAX:
        return value[:_NEAR_LENGTH_MAX]
    last = ord(value[-1]) if value else 0
    if not last:
        return value[:-1] if value else None
    below = last - 1 if last - 1 not in _SURROGATES else _SURROGATES.start - 1
    return value[:-1] + chr(below) + _NEAR_LENGTH * _LAST_CHARACTER


def _next_float(value: float) -> float | None:
    """Return the next number of 32 bits. Its bits, as a whole number, are the next ones."""
    bits = c_uint32.from_buffer(c_float(value)).value
    if value == 0:
        bits = 1
    else:
        bits += 1 if value > 0 else -1
    following = c_float.from_buffer(c_uint32(bits)).value
    return following if math.isfinite(following) else None
