"""Read JSON in YTsaurus's form.

Owns: what JSON's own values become; msgspec reads the text. Nested calls read nested values, and
the depth limit bounds them. Imports no clock and no I/O.
"""

from typing import Any, Final

import msgspec

from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.rows.json_text import decode_json, without_mark
from dodona_wire.rows.values import is_same
from dodona_wire.shown import shown
from dodona_ytsaurus.yson.limits import DEFAULT_LIMITS, YsonLimits
from dodona_ytsaurus.yson.reader import text_of
from dodona_ytsaurus.yson.values import (
    INT64_MAX,
    INT64_MIN,
    UINT64_MAX,
    Attributed,
    Strings,
    Uint64,
)
from dodona_ytsaurus.yt_json.options import DEFAULT_OPTIONS, JsonOptions

_CONTROL_KEYS: Final = ("$value", "$attributes", "$type")


def loads_json(
    data: bytes | bytearray | memoryview,
    options: JsonOptions = DEFAULT_OPTIONS,
    limits: YsonLimits = DEFAULT_LIMITS,
    *,
    strings: Strings = "bytes",
) -> Any:
    """Return one value, as `yson.loads` does. Of the integers only those above int64 become Uint64.

    Raises InvalidRequest on anything other than such JSON, LimitExceeded.
    """
    return _ValueReader(options, limits, strings).value(without_mark(bytes(data)))


class JsonRowReader:
    """A reader of rows, part by part: one JSON object (or any other value) in a line.

    It holds at most one incomplete line. An error ends it.
    """

    __slots__ = ("_is_begun", "_is_over", "_items_left", "_limits", "_parts", "_reader", "_size")

    def __init__(
        self,
        options: JsonOptions = DEFAULT_OPTIONS,
        limits: YsonLimits = DEFAULT_LIMITS,
        *,
        strings: Strings = "bytes",
    ) -> None:
        self._limits = limits
        self._reader = _ValueReader(options, limits, strings)
        self._items_left = limits.items_max
        self._parts: list[bytes] = []
        self._size = 0
        self._is_begun = self._is_over = False

    def feed(self, part: bytes | bytearray | memoryview) -> list[Any]:
        """Return the rows whose lines end in this part. Raises InvalidRequest, LimitExceeded, both
        with the `row`, counted from 0."""
        assert not self._is_over, "the rows were finished or broken"
        lines, newline, rest = bytes(part).rpartition(b"\n")
        if newline:
            rows = self._rows(b"".join([*self._parts, lines]))
            self._parts, self._size = [rest], len(rest)
            return rows
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > self._limits.bytes_max:
            raise self._broken(LimitExceeded(_too_long(self._limits)), 0)
        return []

    def finish(self) -> list[Any]:
        """Return the row of the last line, if the line has no end. Raises as `feed` does."""
        rows = self.feed(b"\n")
        self._is_over = True
        return rows

    def _rows(self, lines: bytes) -> list[Any]:
        rows: list[Any] = []
        if not self._is_begun:
            self._is_begun, lines = True, without_mark(lines)
        try:
            for line in lines.split(b"\n"):
                if not line or line.isspace():
                    continue
                if len(rows) >= self._items_left:
                    raise LimitExceeded(f"too much JSON: more than {self._limits.items_max} rows")
                rows.append(self._reader.value(line))
        except InvalidRequest as error:
            raise self._broken(error, len(rows)) from None
        self._items_left -= len(rows)
        return rows

    def _broken(self, error: InvalidRequest, count: int) -> InvalidRequest:
        self._is_over = True
        error.attributes["row"] = self._limits.items_max - self._items_left + count
        return error


class _ValueReader:
    """A reader that makes values of JSON texts."""

    __slots__ = ("_is_mangled", "_is_text", "_left", "_limits")

    def __init__(self, options: JsonOptions, limits: YsonLimits, strings: Strings) -> None:
        self._limits = limits
        self._is_mangled = options.encode_utf8
        self._is_text = strings == "text"
        self._left = 0

    def value(self, data: bytes) -> Any:
        """Return the value of one text. Raises InvalidRequest, LimitExceeded."""
        if len(data) > self._limits.bytes_max:
            raise LimitExceeded(_too_long(self._limits))
        try:
            plain = decode_json(data)
        except RecursionError:
            raise self._too_deep() from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"malformed JSON: {error}") from None
        self._left = self._limits.values_max
        return self._value(plain, 0)

    def _value(self, plain: Any, depth: int) -> Any:
        kind = type(plain)
        if kind is str:
            return self._string(plain)
        if kind is int:
            return _integer(plain)
        if kind is dict:
            return self._object(plain, depth)
        if kind is list:
            self._enter(len(plain), depth)
            return [self._value(item, depth + 1) for item in plain]
        return plain

    def _object(self, plain: dict[str, Any], depth: int) -> Any:
        if "$value" in plain:
            return self._attributed(plain, depth)
        self._enter(len(plain), depth)
        return {self._key(key): self._value(it, depth + 1) for key, it in plain.items()}

    def _attributed(self, plain: dict[str, Any], depth: int) -> Any:
        for key in plain:
            if key not in _CONTROL_KEYS:
                raise InvalidRequest("malformed JSON: a key beside $value", key=key)
        value, attributes = plain["$value"], plain.get("$attributes", {})
        if not isinstance(attributes, dict) or "$value" in attributes:
            raise InvalidRequest("malformed JSON: $attributes must be an object without $value")
        if isinstance(value, dict) and "$value" in value:
            raise InvalidRequest("malformed JSON: a $value in a $value")
        made = self._value(attributes, depth)
        if "$type" in plain:
            value = _retyped(value, plain["$type"])
        bare = value if type(value) is Uint64 else self._value(value, depth)
        return Attributed(bare, made) if made else bare

    def _key(self, key: str) -> str:
        if key.startswith("$"):
            if not key.startswith("$$"):
                raise InvalidRequest(
                    "malformed JSON: a key with one $ in front: write two", key=key
                )
            key = key[1:]
        if key.isascii() or not self._is_mangled:
            return key
        made = text_of(_demangled(key))
        if isinstance(made, bytes):
            raise InvalidRequest("malformed JSON: a key is not valid UTF-8", key=key)
        return made

    def _string(self, text: str) -> str | bytes:
        if not self._is_text:
            return _demangled(text) if self._is_mangled else text.encode()
        if text.isascii() or not self._is_mangled:
            return text
        return text_of(_demangled(text))

    def _enter(self, count: int, depth: int) -> None:
        if depth >= self._limits.depth_max:
            raise self._too_deep()
        self._left -= count
        if self._left < 0:
            raise LimitExceeded(f"too much JSON: more than {self._limits.values_max} values")

    def _too_deep(self) -> LimitExceeded:
        return LimitExceeded(f"too much JSON: nested deeper than {self._limits.depth_max}")


def _too_long(limits: YsonLimits) -> str:
    return f"too much JSON: a value of more than {limits.bytes_max} bytes"


def _integer(number: int) -> int:
    if INT64_MIN <= number <= INT64_MAX:
        return number
    if 0 <= number <= UINT64_MAX:
        return Uint64(number)
    raise InvalidRequest("malformed JSON: an integer of more than 64 bits")


def _demangled(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise InvalidRequest(
            "malformed JSON: a character above 255 is not a byte: write each byte of UTF-8 as one "
            "character, or set encode_utf8=false",
            text=text[:40],
        ) from None


# ---- values with $type


def _retyped(value: Any, type: Any) -> Any:
    """Return JSON's own value as the type that `$type` names. The value may be given as a
    string."""
    read = _TYPES.get(type) if isinstance(type, str) else None
    if read is None:
        raise InvalidRequest("malformed JSON: $type is not the name of a type", type=type)
    if isinstance(value, str) and type != "string" and not _is_plain(value):
        value = None
    try:
        return read(value)
    except (TypeError, ValueError, OverflowError):
        text = f"malformed JSON: $value can't be stored exactly as {type}"
        raise InvalidRequest(text, type=type, value=shown(value)) from None


def _is_plain(text: str) -> bool:
    """Return whether a text is a number for others too: Python accepts more."""
    return text.isascii() and text == text.strip() and "_" not in text


def _as_string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _as_int64(value: Any) -> int:
    if isinstance(value, float | bool):
        raise TypeError(value)
    number = int(value)
    if not INT64_MIN <= number <= INT64_MAX:
        raise OverflowError(number)
    return number


def _as_uint64(value: Any) -> int:
    if isinstance(value, float | bool):
        raise TypeError(value)
    number = Uint64(value)
    if not 0 <= number <= UINT64_MAX:
        raise OverflowError(number)
    return number


def _as_double(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError(value)
    if isinstance(value, str) and not value.lstrip("+-").isdecimal():
        return float(value)
    number = float(value)
    if type(value) is not float and not is_same(number, int(value)):
        raise OverflowError(value)  # no double holds it: it would be rounded
    return number


def _as_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise ValueError(value)
    return bool(value == "true")


_TYPES: Final = {
    "string": _as_string,
    "int64": _as_int64,
    "uint64": _as_uint64,
    "double": _as_double,
    "boolean": _as_boolean,
}
