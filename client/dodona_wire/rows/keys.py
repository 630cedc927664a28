"""Keys as bytes, encoded so that bytes compare as the key columns do.

Owns: the encoding, which keeps the order. Order is by type, then by value. Null comes first, and
the types follow one another as in YTsaurus. Each ascending column is a tag byte and a payload:

- int64, uint64: 8 bytes, big-endian, the sign bit flipped for int64
- double: 8 bytes, the sign bit flipped if positive, all bits flipped if negative; no NaN
- boolean: 1 byte
- string, utf8: the bytes with 00 written as 00 FF, ended by 00 01

A descending column has the same bytes with all bits flipped, those of the tag too. No part of a
column begins another one, so flipped bytes have the opposite order: null comes last. A key type is
a stored type, with a minus sign in front for a descending column: `-int64`.
A prefix of the columns encodes to a prefix of the bytes. So pivot keys and ranges are plain
comparisons of bytes. Imports no clock and no I/O.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

from dodona_wire.errors import DataCorrupted, SchemaViolation
from dodona_wire.types import Key

DESCENDING: Final = "-"
"""The first character of the key type of a descending column."""
NULL_TAG: Final = 0x02
_ASCENDING_TAGS: Final = {
    "int64": 0x03,
    "uint64": 0x04,
    "double": 0x05,
    "boolean": 0x06,
    "string": 0x10,
    "utf8": 0x10,
}
_FLIP: Final = 0xFF
FLIPPED: Final = bytes([byte ^ _FLIP for byte in range(256)])
"""The table with which `bytes.translate` flips all bits."""
TAGS: Final[dict[str, int]] = {
    **_ASCENDING_TAGS,
    **{DESCENDING + name: tag ^ _FLIP for name, tag in _ASCENDING_TAGS.items()},
}
"""The first byte of a value, by key type."""
NULL_TAGS: Final[dict[str, int]] = {
    name: NULL_TAG ^ _FLIP if name.startswith(DESCENDING) else NULL_TAG for name in TAGS
}
"""The byte that stands for null, by key type."""
_NULLS: Final = {name: bytes([tag]) for name, tag in NULL_TAGS.items()}
_INTEGER: Final = struct.Struct(">BQ")
_DOUBLE: Final = struct.Struct(">d")
_BITS: Final = struct.Struct(">Q")
_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1
_STRING_END: Final = b"\x00\x01"
_ESCAPED: Final = b"\x00\xff"
_NO_TAG: Final = (b"", b"\x00")
"""The bytes after the last column of a key, or of its successor."""


def encode_key(values: Sequence[Any], types: Sequence[str]) -> Key:
    """Encode key column values, which were checked before, of these key types; may be a prefix."""
    assert len(values) <= len(types)
    return Key(b"".join([_encode(v, t) for v, t in zip(values, types, strict=False)]))


def null_suffix(types: Sequence[str]) -> bytes:
    """Return the end of a key that has null in its last columns, which have these key types."""
    return b"".join([_NULLS[it] for it in types])


def _encode(value: Any, column_type: str) -> bytes:
    if value is None:
        return _NULLS[column_type]
    match column_type:
        case "int64":
            return _INTEGER.pack(0x03, value + _SIGN)
        case "utf8":
            return _encode_string(value.encode())
        case "string":
            return _encode_string(value)
        case "uint64":
            return _INTEGER.pack(0x04, value)
        case "boolean":
            return b"\x06\x01" if value else b"\x06\x00"
        case "double":
            return b"\x05" + _encode_double(value)
    assert column_type in TAGS, column_type
    return _encode(value, column_type.removeprefix(DESCENDING)).translate(FLIPPED)


def _encode_string(value: bytes) -> bytes:
    return b"\x10" + value.replace(b"\x00", b"\x00\xff") + _STRING_END


def _encode_double(value: float) -> bytes:
    if value != value:
        raise SchemaViolation("NaN is not allowed in a key")
    (bits,) = _BITS.unpack(_DOUBLE.pack(value + 0.0))  # -0.0 becomes 0.0: they are equal keys
    return _BITS.pack(bits ^ _ALL if bits & _SIGN else bits ^ _SIGN)


def decode_key(key: Key, types: Sequence[str]) -> tuple[Any, ...]:
    """Return the values of a whole key. Raises DataCorrupted on bytes that no encoder made."""
    values, position = [], 0
    try:
        for column_type in types:
            value, position = _decode(key, position, column_type)
            values.append(value)
    except (IndexError, struct.error, ValueError) as error:
        raise DataCorrupted(f"not a key: {error}", key=bytes(key)) from error
    if position != len(key):
        raise DataCorrupted("there are bytes after the end of the key", key=bytes(key))
    return tuple(values)


def _decode(key: bytes, at: int, column_type: str) -> tuple[Any, int]:
    tag = key[at]
    expected = _ASCENDING_TAGS.get(column_type)
    if tag != expected:
        if tag == NULL_TAG and expected is not None:
            return None, at + 1
        return _decode_descending(key, at, column_type)
    at += 1
    if tag == 0x10:
        return _decode_string(key, at, column_type)
    if tag == 0x06:
        if key[at] > 1:
            raise ValueError(f"byte {at} is not a boolean")
        return key[at] == 1, at + 1
    (bits,) = _BITS.unpack_from(key, at)
    if tag == 0x03:
        return bits - _SIGN, at + 8
    if tag == 0x04:
        return bits, at + 8
    return _decode_double(bits, at), at + 8


def _decode_descending(key: bytes, at: int, column_type: str) -> tuple[Any, int]:
    tag = key[at]
    if column_type in _ASCENDING_TAGS or tag not in (TAGS[column_type], NULL_TAGS[column_type]):
        raise ValueError(f"tag {tag:#x} at byte {at} is not {column_type}")
    return _decode(key.translate(FLIPPED), at, column_type.removeprefix(DESCENDING))


def _decode_double(bits: int, at: int) -> float:
    bits = bits ^ _SIGN if bits & _SIGN else bits ^ _ALL
    value: float = _DOUBLE.unpack(_BITS.pack(bits))[0]
    if value != value or bits == _SIGN:
        raise ValueError(f"a key has neither NaN nor -0.0, as at byte {at}")
    return value


def _decode_string(key: bytes, at: int, column_type: str) -> tuple[Any, int]:
    end = key.index(_STRING_END, at)  # all other zeros are escaped, so this is no part of the text
    raw = key[at:end]
    if 0 in raw:
        if raw.count(0) != raw.count(_ESCAPED):
            raise ValueError(f"the text at byte {at} does not end")
        raw = raw.replace(_ESCAPED, b"\x00")
    return (raw.decode() if column_type == "utf8" else raw), end + 2


def first_columns(bound: Key, types: Sequence[str]) -> Key:
    """Return a key, a prefix of one, or a `successor`, without the columns after these types.
    Raises DataCorrupted."""
    at = 0
    try:
        for column_type in types:
            if bound[at : at + 1] in _NO_TAG:
                return bound
            _, at = _decode(bound, at, column_type)
    except (IndexError, struct.error, ValueError) as error:
        raise DataCorrupted(f"not a key: {error}", key=bytes(bound)) from error
    return bound if bound[at : at + 1] in _NO_TAG else Key(bound[:at])


def successor(key: Key) -> Key:
    """Return the smallest key above this one: a scan continues there after it."""
    return Key(key + b"\x00")
