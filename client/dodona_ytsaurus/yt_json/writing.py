"""Write JSON in YTsaurus's form.

Owns: the form of values that JSON has no form for; msgspec writes the text. Nested calls write
nested values, and a limit bounds them. Imports no clock and no I/O.
"""

from collections.abc import Iterable
from math import isfinite
from typing import Any, Final

import msgspec

from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_ytsaurus.yson.limits import DEPTH_MAX
from dodona_ytsaurus.yson.values import INT64_MIN, UINT64_MAX, Attributed
from dodona_ytsaurus.yt_json.options import DEFAULT_OPTIONS, JsonOptions

_encode: Final = msgspec.json.Encoder().encode


def dumps_json(value: Any, options: JsonOptions = DEFAULT_OPTIONS) -> bytes:
    """Return one value as one line without an end. Raises InvalidRequest on a value that has no
    form in such JSON, LimitExceeded on a value that is nested deeper than 100."""
    return _encode(_Plainer(options).value(value, 0))


def dump_rows_json(rows: Iterable[Any], options: JsonOptions = DEFAULT_OPTIONS) -> bytes:
    """Return one row (dict, Attributed or None) in each line. Raises as `dumps_json` does."""
    plain = _Plainer(options).value
    return b"".join([_encode(plain(row, 0)) + b"\n" for row in rows])


class _Plainer:
    """A converter of Dodona's values to JSON's own."""

    __slots__ = ("_is_mangled", "_is_nan_string")

    def __init__(self, options: JsonOptions) -> None:
        self._is_mangled = options.encode_utf8
        self._is_nan_string = options.stringify_nan_and_infinity

    def value(self, value: Any, depth: int) -> Any:
        """Return JSON's own value. `depth` is how many lists and maps are open around the value."""
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str | bytes):
            return self._string(value)
        if isinstance(value, int):
            return _integer(value)
        if isinstance(value, float):
            return float(value) if isfinite(value) else self._odd_double(value)
        if depth >= DEPTH_MAX:
            raise LimitExceeded(f"The value is nested deeper than {DEPTH_MAX}.")
        return self._holder(value, depth)

    def _holder(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return {self._key(key): self.value(it, depth + 1) for key, it in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, depth + 1) for item in value]
        if isinstance(value, Attributed):
            if isinstance(value.value, Attributed):
                raise InvalidRequest("The value has attributes twice.")
            bare = self.value(value.value, depth)
            if not value.attributes:
                return bare
            return {"$attributes": self.value(value.attributes, depth), "$value": bare}
        raise InvalidRequest(f"JSON can't hold a value of type {type(value).__name__}.")

    def _string(self, value: str | bytes) -> str:
        if isinstance(value, str):
            if value.isascii():
                return str(value)
            value = _utf8(value)
        if self._is_mangled:
            return value.decode("latin-1")
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidRequest(
                "JSON with encode_utf8=false can't hold a string that is not UTF-8. Use true.",
                value=repr(value[:40]),
            ) from None

    def _key(self, key: Any) -> str:
        if not isinstance(key, str | bytes):
            raise InvalidRequest(f"A key must be str or bytes, not {type(key).__name__}.")
        made = self._string(key)
        return "$" + made if made.startswith("$") else made

    def _odd_double(self, value: float) -> str:
        if not self._is_nan_string:
            raise InvalidRequest(
                "JSON can't hold NaN and infinities. Set stringify_nan_and_infinity=true, "
                "or use YSON."
            )
        return "nan" if value != value else "inf" if value > 0 else "-inf"


def _integer(number: int) -> int:
    if not INT64_MIN <= number <= UINT64_MAX:
        raise InvalidRequest("The integer does not fit in 64 bits.", bits=number.bit_length())
    return int(number)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"The text is not valid Unicode: {error}") from None
