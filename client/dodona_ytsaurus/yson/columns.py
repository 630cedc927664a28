"""Write columns of values as YSON: many values of one type at a time.

Owns: for each column type, which Python values it takes, and how a whole column is written, each
value after the column's name. Values of the usual type are written without a look at each single
value: their types were checked together. Imports no clock and no I/O.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.columns import ColumnType
from dodona_ytsaurus.yson import scalar_format
from dodona_ytsaurus.yson.scalar_format import SHORT_VARINTS, varint
from dodona_ytsaurus.yson.values import (
    INT64_MAX,
    INT64_MIN,
    UINT64_MAX,
    Attributed,
    Uint64,
)
from dodona_ytsaurus.yson.writer import dumps, raw_string

Values = Sequence[Any]
_pack_double: Final = struct.Struct("<d").pack
_USUAL: Final[dict[ColumnType, frozenset[type]]] = {
    "int64": frozenset([int]),
    "uint64": frozenset([int, Uint64]),
    "double": frozenset([float]),
    "boolean": frozenset([bool]),
    "string": frozenset([bytes]),
    "utf8": frozenset([str]),
}
_TAKEN: Final[dict[ColumnType, tuple[type, ...]]] = {
    "int64": (int,),
    "uint64": (int,),
    "double": (float, int),
    "boolean": (bool,),
    "string": (bytes, str),
    "utf8": (str, bytes),
}


class ColumnWriter:
    """A writer of one column's values, each after `lead` and the column's name."""

    __slots__ = ("_format_value", "_null", "_prefix", "_usual", "name", "type")

    def __init__(self, name: str, type: ColumnType, lead: bytes, is_binary: bool) -> None:
        if type not in _FORMATTERS:
            raise InvalidRequest("The column has an unknown type.", column=name, type=type)
        self.name = name
        self.type: ColumnType = type
        self._usual = _USUAL.get(type)
        string = scalar_format.binary_string if is_binary else scalar_format.text_string
        self._prefix = lead + string(raw_string(name)) + b"="
        self._null = self._prefix + b"#"
        self._format_value = _FORMATTERS[type][0 if is_binary else 1]

    def format_value(self, values: Values) -> list[bytes]:
        """Return a piece for each value. Raises InvalidRequest if one is not of the column's
        type."""
        kinds = set(map(type, values))
        has_null = type(None) in kinds
        kinds.discard(type(None))
        if self._usual is not None and not kinds <= self._usual:
            values = [value if value is None else self.normal(value) for value in values]
        try:
            if not has_null:
                return self._format_value(self._prefix, values)
            formatted = iter(
                self._format_value(self._prefix, [it for it in values if it is not None])
            )
        except InvalidRequest as error:
            error.attributes.setdefault("column", self.name)
            raise
        return [self._null if value is None else next(formatted) for value in values]

    def typed(self, value: Any, is_versioned: bool = False) -> Any:
        """Return a value that `dumps` writes as `format_value` would. In a versioned row it may be
        a list of versions, which are values with attributes."""
        if value is None or self._usual is None:
            return value
        if is_versioned and isinstance(value, list):
            return [self.typed(version, True) for version in value]
        if is_versioned and isinstance(value, Attributed):
            return Attributed(self.typed(value.value), value.attributes)
        return self.normal(value)

    def normal(self, value: Any) -> Any:
        """Return the value as the Python type that the column's type has. Raises InvalidRequest."""
        kind = self.type
        made: Any = value
        if not isinstance(value, _TAKEN[kind]) or (isinstance(value, bool) and kind != "boolean"):
            raise InvalidRequest(
                f"A column of type {kind} can't hold {type(value).__name__}.", column=self.name
            )
        if kind == "int64":
            _check([made], INT64_MIN, INT64_MAX, kind)
            return int(made)
        if kind == "uint64":
            return Uint64(made)
        if kind == "double":
            return _double(made, self.name)
        return made if kind in ("boolean", "utf8") else raw_string(made)


def _double(value: float, column: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise InvalidRequest("The number does not fit in double.", column=column) from None


def _check(values: Values, lowest: int, highest: int, kind: ColumnType) -> None:
    if values and not lowest <= min(values) <= max(values) <= highest:
        raise InvalidRequest(f"The number does not fit in {kind}.")


def _binary_int64s(prefix: bytes, values: Values) -> list[bytes]:
    _check(values, INT64_MIN, INT64_MAX, "int64")
    prefix += b"\x02"
    return [
        prefix + (SHORT_VARINTS[z] if (z := it << 1 ^ it >> 63) < 1 << 14 else varint(z))
        for it in values
    ]


def _binary_uint64s(prefix: bytes, values: Values) -> list[bytes]:
    _check(values, 0, UINT64_MAX, "uint64")
    prefix += b"\x06"
    return [prefix + (SHORT_VARINTS[it] if it < 1 << 14 else varint(it)) for it in values]


def _binary_doubles(prefix: bytes, values: Values) -> list[bytes]:
    prefix += b"\x03"
    return [prefix + _pack_double(it) for it in values]


def _binary_booleans(prefix: bytes, values: Values) -> list[bytes]:
    false, true = prefix + b"\x04", prefix + b"\x05"
    return [true if it else false for it in values]


def _binary_strings(prefix: bytes, values: Values) -> list[bytes]:
    prefix += b"\x01"
    return [
        prefix + (SHORT_VARINTS[n] if (n := 2 * len(it)) < 1 << 14 else varint(n)) + it
        for it in values
    ]


def _binary_texts(prefix: bytes, values: Values) -> list[bytes]:
    return _binary_strings(prefix, list(map(raw_string, values)))


def _binary_anys(prefix: bytes, values: Values) -> list[bytes]:
    return [prefix + dumps(it) for it in values]


def _text_int64s(prefix: bytes, values: Values) -> list[bytes]:
    _check(values, INT64_MIN, INT64_MAX, "int64")
    return [b"%b%d" % (prefix, it) for it in values]


def _text_uint64s(prefix: bytes, values: Values) -> list[bytes]:
    _check(values, 0, UINT64_MAX, "uint64")
    return [b"%b%du" % (prefix, it) for it in values]


def _text_doubles(prefix: bytes, values: Values) -> list[bytes]:
    return [prefix + scalar_format.text_double(it) for it in values]


def _text_booleans(prefix: bytes, values: Values) -> list[bytes]:
    false, true = prefix + b"%false", prefix + b"%true"
    return [true if it else false for it in values]


def _text_strings(prefix: bytes, values: Values) -> list[bytes]:
    return [prefix + scalar_format.text_string(it) for it in values]


def _text_texts(prefix: bytes, values: Values) -> list[bytes]:
    return [prefix + scalar_format.text_string(raw_string(it)) for it in values]


def _text_anys(prefix: bytes, values: Values) -> list[bytes]:
    return [prefix + dumps(it, "text") for it in values]


_Formatter = Callable[[bytes, Values], list[bytes]]
_FORMATTERS: Final[dict[ColumnType, tuple[_Formatter, _Formatter]]] = {
    "int64": (_binary_int64s, _text_int64s),
    "uint64": (_binary_uint64s, _text_uint64s),
    "double": (_binary_doubles, _text_doubles),
    "boolean": (_binary_booleans, _text_booleans),
    "string": (_binary_strings, _text_strings),
    "utf8": (_binary_texts, _text_texts),
    "any": (_binary_anys, _text_anys),
}
"""The formatters in binary and in text. They never get a null."""
