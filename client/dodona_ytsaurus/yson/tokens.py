"""Read scalars of YSON at a place in a buffer: what they are, and where they end.

Owns: the form of numbers, strings and literals in text and in binary. Every function takes a buffer
and a place, and returns the value and the place after it. It raises Malformed. If the buffer ends
too early, it raises NeedMore (or IndexError). The time is linear in the length. Imports no clock
and no I/O.
"""

import re
import struct
from typing import Final

from dodona_ytsaurus.yson.limits import Malformed, NeedMore
from dodona_ytsaurus.yson.values import INT64_MAX, INT64_MIN, UINT64_MAX

NUMBER_BYTES_MAX: Final = 512
"""The longest number in text. A double always has a shorter form, and long numbers take long to
read."""
LITERALS: Final[dict[bytes, bool | float]] = {
    b"%true": True,
    b"%false": False,
    b"%nan": float("nan"),
    b"%inf": float("inf"),
    b"%+inf": float("inf"),
    b"%-inf": float("-inf"),
}
_LITERAL_BYTES_MAX: Final = max(map(len, LITERALS))

_literal: Final = re.compile(rb"%(?:true|false|nan|[+-]?inf)").match
_number: Final = re.compile(rb"[0-9+\-][0-9+\-.eEu]*").match
_of_double: Final = re.compile(rb"[.eE]").search
_unquoted: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_\-%.]*").match
# Possessive: otherwise a long string could backtrack to each of its escapes.
_quoted: Final = re.compile(rb'"(?:[^"\\]++|\\[\x00-\xff])*+').match
_double: Final = struct.Struct("<d")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned number of up to 64 bits: seven bits in a byte, the lowest first."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise Malformed("an integer of more than ten bytes", at)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if value > UINT64_MAX:
        raise Malformed("an integer of more than 64 bits", at - 1)
    return value, at


def zigzag(number: int) -> int:
    """Return the signed number that an unsigned one stands for: 0, -1, 1, -2, ..."""
    return (number >> 1) ^ -(number & 1)


def binary_int64(data: bytes, at: int) -> tuple[int, int]:
    """Read an int64 after its marker."""
    number, at = varint(data, at)
    return zigzag(number), at


def binary_double(data: bytes, at: int) -> tuple[float, int]:
    """Read a double after its marker."""
    end = at + 8
    if end > len(data):
        raise NeedMore(end)
    return _double.unpack_from(data, at)[0], end


def binary_string(data: bytes, at: int) -> tuple[bytes, int]:
    """Read a string after its marker."""
    number, start = varint(data, at)
    length = zigzag(number)
    if length < 0:
        raise Malformed(f"a string of {length} bytes", at)
    end = start + length
    if end > len(data):
        raise NeedMore(end)
    return data[start:end], end


def number(data: bytes, at: int, is_last: bool) -> tuple[int | float, int, bool]:
    """Read an int64, uint64 or double in text. The third result says whether it is a uint64."""
    end = _end(data, _number(data, at), at, is_last)
    if end - at > NUMBER_BYTES_MAX:
        raise Malformed(f"a number of more than {NUMBER_BYTES_MAX} bytes", at)
    text = data[at:end]
    try:
        if text.endswith(b"u"):
            return _checked(int(text[:-1]), text, at), end, True
        if _of_double(text):
            return float(text), end, False
        return _checked(int(text), text, at), end, False
    except ValueError:
        raise Malformed(f"{_shown(text)} is not a number", at) from None


def _checked(value: int, text: bytes, at: int) -> int:
    is_unsigned = text.endswith(b"u")
    if is_unsigned and text.startswith(b"-"):
        raise Malformed(f"{_shown(text)} is not a number: it is unsigned and has a minus", at)
    lowest, highest = (0, UINT64_MAX) if is_unsigned else (INT64_MIN, INT64_MAX)
    if not lowest <= value <= highest:
        kind = "a uint64" if is_unsigned else "an int64 (a uint64 ends with u)"
        raise Malformed(f"{_shown(text)} is too large for {kind}", at)
    return value


def literal(data: bytes, at: int, is_last: bool) -> tuple[bool | float, int]:
    """Read `%true` or a similar literal."""
    found = _literal(data, at)
    if found is None:
        if not is_last and len(data) - at < _LITERAL_BYTES_MAX:
            raise NeedMore(len(data) + 1)
        raise Malformed(f"{_shown(data[at : at + _LITERAL_BYTES_MAX])} is not a literal", at)
    return LITERALS[found.group()], found.end()


def unquoted_string(data: bytes, at: int, is_last: bool) -> tuple[bytes, int]:
    """Read a word of letters, digits and `_-%.`, the first of which is a letter or `_`."""
    end = _end(data, _unquoted(data, at), at, is_last)
    return data[at:end], end


def _end(data: bytes, found: re.Match[bytes] | None, at: int, is_last: bool) -> int:
    """Return the end of a token that lasts as long as its characters do."""
    assert found is not None, at
    end = found.end()
    if end == len(data) and not is_last:
        raise NeedMore(end + 1)
    return end


def quoted_string(data: bytes, at: int) -> tuple[bytes, int]:
    """Read from quote to quote, with C's escapes."""
    found = _quoted(data, at)
    assert found is not None, at
    end = found.end()
    if end == len(data) or data[end] != 0x22:
        raise NeedMore(len(data) + 1)
    inside = data[at + 1 : end]
    return (_unescape(inside, at + 1) if b"\\" in inside else inside), end + 1


_escape: Final = re.compile(
    rb"\\(?:x([0-9A-Fa-f]{1,2})"
    rb"|([0-3][0-7]{0,2}|[4-7][0-7]?)"
    rb"|u([Dd][89ABab][0-9A-Fa-f]{2})\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})"
    rb"|u([0-9A-Fa-f]{4})"
    rb"|U([0-9A-Fa-f]{8})"
    rb"|([\x00-\xff]))"
)
_NAMED: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}
_BYTES: Final = [bytes([byte]) for byte in range(256)]


def _unescape(inside: bytes, at: int) -> bytes:
    def replaced(found: re.Match[bytes]) -> bytes:
        match found.lastindex:
            case 1:
                return _BYTES[int(found[1], 16)]
            case 2:
                return _BYTES[int(found[2], 8)]
            case 4:
                high, low = int(found[3], 16), int(found[4], 16)
                return _utf8(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
            case 5:
                return _utf8(int(found[5], 16))
            case 6:
                point = int(found[6], 16)
                if point > 0x10FFFF:
                    raise Malformed(f"{_shown(found[0])} is not a character", at + found.start())
                return _utf8(point)
        return _NAMED.get(found[7], found[7])

    return _escape.sub(replaced, inside)


def _utf8(point: int) -> bytes:
    """Encode a character. Half of a surrogate pair becomes bytes that are no UTF-8, as in
    YTsaurus."""
    return chr(point).encode("utf-8", "surrogatepass")


def _shown(raw: bytes) -> str:
    """Return bytes as an error's text shows them."""
    text = raw[:40].decode("latin-1")
    return ascii(text) + ("..." if len(raw) > 40 else "")
