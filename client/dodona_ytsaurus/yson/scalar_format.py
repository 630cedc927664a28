"""Write scalars in binary and in text, byte for byte as YTsaurus writes them.

Owns: varints, the shortest decimal form of a double, and the escapes of quoted strings. Readers do
not need this module. Imports no clock and no I/O.
"""

import re
import struct
from typing import Final

from dodona_wire.errors import InvalidRequest
from dodona_ytsaurus.yson.values import INT64_MAX, INT64_MIN, UINT64_MAX

_pack_double: Final = struct.Struct("<d").pack


def _short(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])


SHORT_VARINTS: Final = [_short(number) for number in range(1 << 14)]
"""The varints of one or two bytes."""
_CONTINUED: Final = [bytes([it & 0x7F | 0x80, it >> 7 | 0x80]) for it in range(1 << 14)]
"""The same numbers, as the first two bytes of a longer varint."""


def varint(number: int) -> bytes:
    """Return a number from 0 to UINT64_MAX with seven bits in a byte, the lowest first."""
    if number < 1 << 14:
        return SHORT_VARINTS[number]
    high = number >> 14
    if high < 1 << 14:
        return _CONTINUED[number & 0x3FFF] + SHORT_VARINTS[high]
    return _CONTINUED[number & 0x3FFF] + _CONTINUED[high & 0x3FFF] + varint(high >> 14)


def zigzag(number: int) -> int:
    """Map 0, -1, 1, -2, ... to 0, 1, 2, 3, ..."""
    return number << 1 ^ number >> 63


def is_unsigned(number: int) -> bool:
    """Return whether a plain int must be a uint64. Raises InvalidRequest if it is too large even
    so."""
    if INT64_MIN <= number <= INT64_MAX:
        return False
    if 0 <= number <= UINT64_MAX:
        return True
    raise InvalidRequest("The integer does not fit in 64 bits.", bits=number.bit_length())


# ---- binary


def binary_integer(number: int) -> bytes:
    """Return an integer with its marker, as all functions that follow do."""
    if is_unsigned(number):
        return b"\x06" + varint(number)
    return b"\x02" + varint(zigzag(number))


def binary_uint64(number: int) -> bytes:
    """Return a number that is meant to be a uint64."""
    return b"\x06" + varint(_checked_uint64(number))


def binary_double(number: float) -> bytes:
    return b"\x03" + _pack_double(number)


def binary_string(raw: bytes) -> bytes:
    return b"\x01" + varint(2 * len(raw)) + raw


# ---- text


def text_integer(number: int) -> bytes:
    return b"%du" % number if is_unsigned(number) else b"%d" % number


def text_uint64(number: int) -> bytes:
    """Return a number that is meant to be a uint64."""
    return b"%du" % _checked_uint64(number)


def _checked_uint64(number: int) -> int:
    if not 0 <= number <= UINT64_MAX:
        raise InvalidRequest("The integer does not fit in uint64.", bits=number.bit_length())
    return int(number)


def text_double(number: float) -> bytes:
    """Return the shortest text that reads back as the same number. A point or an exponent
    distinguishes it from an integer. From 1e-10 up to 1e21 it has no exponent."""
    if number - number != 0:
        return b"%nan" if number != number else b"%inf" if number > 0 else b"%-inf"
    text = float.__repr__(number)
    if text.endswith(".0"):
        return text[:-1].encode()
    if "e" not in text:
        return text.encode()
    return _without_exponent(text).encode()


def _without_exponent(text: str) -> str:
    """Write out a number: Python uses an exponent earlier than YTsaurus."""
    mantissa, _, exponent_text = text.partition("e")
    exponent = int(exponent_text)
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    if not -10 <= exponent < 21:
        return f"{mantissa}e{exponent:+d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{whole}{fraction}"
    return f"{sign}{whole}{fraction.ljust(exponent, '0')}."


_special: Final = re.compile(rb'([\x00-\x1f"\\\x7f-\xff])(?=([0-7])|([89A-Fa-f])|)')
_NAMED: Final = {0x09: b"\\t", 0x0A: b"\\n", 0x0D: b"\\r", 0x22: b'\\"', 0x5C: b"\\\\"}


def _escapes(is_octal_next: bool, is_hex_next: bool) -> list[bytes]:
    """Return for every byte its shortest escape that the next character can't change."""
    escapes = []
    for byte in range(256):
        if byte in _NAMED:
            escapes.append(_NAMED[byte])
        elif byte < 8 and not is_octal_next:
            escapes.append(b"\\%o" % byte)
        else:
            escapes.append(b"\\%03o" % byte if is_hex_next else b"\\x%02X" % byte)
    return escapes


_BEFORE_OCTAL: Final = _escapes(is_octal_next=True, is_hex_next=True)
_BEFORE_HEX: Final = _escapes(is_octal_next=False, is_hex_next=True)
_BEFORE_OTHERS: Final = _escapes(is_octal_next=False, is_hex_next=False)


def _escaped(found: re.Match[bytes]) -> bytes:
    byte = found[1][0]
    if found.lastindex == 1:
        return _BEFORE_OTHERS[byte]
    return (_BEFORE_OCTAL if found.lastindex == 2 else _BEFORE_HEX)[byte]


def text_string(raw: bytes) -> bytes:
    """Return a quoted string in ASCII."""
    return b'"' + _special.sub(_escaped, raw) + b'"'
