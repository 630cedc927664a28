"""Read binary rows fast if they look like those before them.

Owns: the values of binary scalars, and the shape that rows of one table share, as regular
expressions. The shape is: which columns, in which order, and which of them may hold strings. A
template reads what the general reader would have read, or nothing. It leaves every unusual row to
the general reader: a nested value, text, another column, a missing semicolon, a broken row, or an
incomplete row. Imports no clock and no I/O.
"""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dodona_ytsaurus.yson.reader import text_of
from dodona_ytsaurus.yson.scalar_format import varint
from dodona_ytsaurus.yson.values import Strings, Uint64

_TAIL: Final = b";};"
# Integers of more than 64 bits do not match, so the general reader reports their error.
_INTEGER: Final = rb"[\x02\x06](?:[\x80-\xff]{0,8}[\x00-\x7f]|[\x80-\xff]{9}[\x00\x01])"
_SCALAR: Final = rb"(%s|\x03[\x00-\xff]{8}|[#\x04\x05])" % _INTEGER
_STRING_OR_SCALAR: Final = rb"(\x01[\x80-\xff]{0,4}[\x00-\x7f]|%s" % _SCALAR[1:]
_CACHED_TOKEN_BYTES_MAX: Final = 3
"""The longest token to cache. There are fewer than a hundred thousand tokens up to this length."""

_double: Final = struct.Struct("<d")


class _Length(int):
    """The length of a string whose bytes come next. It may be negative."""

    __slots__ = ()


class _Values(dict[bytes, Any]):
    """By the binary form of a scalar, marker first, its value; for a string, its length."""

    def __init__(self, uint64: type[int] | None) -> None:
        super().__init__({b"#": None, b"\x04": False, b"\x05": True})
        self._uint64 = uint64

    def __missing__(self, token: bytes) -> Any:
        marker = token[0]
        if marker == 3:
            return _double.unpack_from(token, 1)[0]
        number: int = _number_of(token)
        if marker == 2:
            number = (number >> 1) ^ -(number & 1)
        elif marker == 1:
            number = _Length((number >> 1) ^ -(number & 1))
        elif self._uint64 is not None:
            number = self._uint64(number)
        if len(token) <= _CACHED_TOKEN_BYTES_MAX:
            self[token] = number
        return number


_eleven_bytes: Final = struct.Struct("<xHHHHH").unpack
_PAIRS: Final = [pair & 0x7F | (pair >> 8 & 0x7F) << 7 for pair in range(1 << 16)]
"""By two bytes of a varint, the fourteen bits that they hold."""


def _number_of(token: bytes) -> int:
    """Return the number of a varint after its marker."""
    length = len(token)
    if length == 2:
        return token[1]
    if length == 4:
        _, low, middle, high = token
        return low & 0x7F | (middle & 0x7F) << 7 | high << 14
    a, b, c, d, e = _eleven_bytes(token.ljust(11, b"\0"))
    number: int = _PAIRS[a] | _PAIRS[b] << 14 | _PAIRS[c] << 28 | _PAIRS[d] << 42 | _PAIRS[e] << 56
    return number


_VALUES: Final[Mapping[bool, _Values]] = {True: _Values(Uint64), False: _Values(None)}
"""By whether a uint64 must stay different from an int64. They fill up as values come."""


class BinaryTemplate:
    """A template that reads rows of these columns in this order."""

    __slots__ = ("_bytes_max", "_matches", "_text", "_value", "names", "with_strings")

    def __init__(
        self,
        names: Sequence[str],
        with_strings: frozenset[str],
        bytes_max: int,
        strings: Strings,
        keeps_uint64: bool,
    ) -> None:
        self.names = tuple(names)
        self.with_strings = with_strings
        """The columns in which a string was seen. They may hold strings or scalars, and others only
        scalars."""
        self._bytes_max = bytes_max
        self._matches = [re.compile(it).match for it in _patterns(names, with_strings)]
        self._value = _VALUES[keeps_uint64].__getitem__
        self._text: Callable[[bytes], Any] | None = text_of if strings == "text" else None

    def read(self, data: bytes, at: int, rows: list[Any], rows_max: int) -> int:
        """Append rows from this place on, until there are `rows_max`, or a row is unusual. Returns
        the place where reading ended."""
        names, value, matches, text = self.names, self._value, self._matches, self._text
        while len(rows) < rows_max:
            place = at
            values: list[Any] = []
            for match in matches:
                found = match(data, place)
                if found is None:
                    return at
                values += map(value, found.groups())
                place = found.end()
                length = values[-1]
                if type(length) is _Length:
                    end = place + length  # beyond the buffer's end the tail is missing
                    if end < place:
                        return at
                    values[-1] = data[place:end] if text is None else text(data[place:end])
                    place = end
            if not data.startswith(_TAIL, place) or place + len(_TAIL) - at > self._bytes_max:
                return at
            at = place + len(_TAIL)
            rows.append(dict(zip(names, values, strict=True)))
        return at


def _patterns(names: Sequence[str], with_strings: frozenset[str]) -> list[bytes]:
    """Return a pattern for each run of columns. A run ends after each column that may hold strings,
    since their length says where the rest begins."""
    patterns = []
    pattern = b""
    for place, name in enumerate(names):
        raw = name.encode()
        key = (b"{" if place == 0 else b";") + b"\x01" + varint(2 * len(raw)) + raw + b"="
        is_cut = name in with_strings
        pattern += re.escape(key) + (_STRING_OR_SCALAR if is_cut else _SCALAR)
        if is_cut:
            patterns.append(pattern)
            pattern = b""
    return [*patterns, pattern] if pattern else patterns
