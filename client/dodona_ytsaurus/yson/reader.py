"""The general reader of YSON: it reads any value, in any mixture of forms.

Owns: the grammar (lists, maps, attributes, fragments) and the counting against the limits. Nested
calls read nested values, and the depth limit bounds them. If the buffer ends inside a value, the
reader raises NeedMore. A reader of parts can then try again with more bytes. Imports no clock and
no I/O.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from dodona_wire.shown import shown
from dodona_ytsaurus.yson import tokens
from dodona_ytsaurus.yson.limits import (
    DEFAULT_LIMITS,
    Excess,
    Malformed,
    NeedMore,
    YsonLimits,
)
from dodona_ytsaurus.yson.values import Attributed, Kind, Strings, Uint64

SPACES: Final = b" \t\n\v\f\r"
_after_spaces: Final = re.compile(rb"[ \t\n\v\f\r]*").match

_QUOTE, _SEMICOLON, _EQUALS, _STRING = 0x22, 0x3B, 0x3D, 0x01
_LIST_END, _MAP_END, _ATTRIBUTES, _ATTRIBUTES_END = 0x5D, 0x7D, 0x3C, 0x3E
_NONE: Final = -1
"""The end mark of a fragment, which can only end with the buffer."""


def loads(
    data: bytes | bytearray | memoryview,
    limits: YsonLimits = DEFAULT_LIMITS,
    *,
    kind: Kind = "node",
    strings: Strings = "bytes",
    keeps_uint64: bool = True,
) -> Any:
    """Return the value of `data`: a list for a list fragment, a dict for a map fragment.

    A map has each key once. Without `keeps_uint64`, a uint64 becomes a plain int. Raises
    InvalidRequest on anything other than YSON, LimitExceeded, both with the `offset`.
    """
    reader = Reader(bytes(data), limits, strings, keeps_uint64, is_last=True)
    try:
        return reader.whole(kind)
    except NeedMore:
        raise Malformed("it ends too early", len(data)).public(0) from None
    except Malformed as error:
        raise error.public(0) from None


class Reader:
    """A reader of values in one buffer, whose places are counted from 0."""

    __slots__ = ("_data", "_is_last", "_is_text", "_left", "_limits", "_uint64")

    def __init__(
        self, data: bytes, limits: YsonLimits, strings: Strings, keeps_uint64: bool, is_last: bool
    ) -> None:
        """`is_last` says that nothing follows `data`."""
        self._data = data
        self._limits = limits
        self._is_text = strings == "text"
        self._uint64: type[int] = Uint64 if keeps_uint64 else int
        self._is_last = is_last
        self._left = limits.values_max

    def whole(self, kind: Kind) -> Any:
        """Return all that the buffer contains."""
        if len(self._data) > self._limits.bytes_max:
            raise Excess(f"more than {self._limits.bytes_max} bytes", self._limits.bytes_max)
        try:
            if kind == "list_fragment":
                return self._items(0, _NONE, 0)[0]
            if kind == "map_fragment":
                return self._entries(0, _NONE, 0)[0]
            value, at = self._value(self._skip(0), 0)
        except IndexError:
            raise NeedMore(len(self._data) + 1) from None
        if (at := self._skip(at)) < len(self._data):
            raise Malformed(f"{self._shown(at)} after the end of the value", at)
        return value

    def item(self, at: int) -> tuple[Any, int] | None:
        """Return the next item of a list fragment, and the place after its semicolon; None if only
        spaces are left."""
        self._left = self._limits.values_max
        try:
            at = self._skip(at)
            if at == len(self._data):
                return None
            value, at = self._value(at, 0)
            at = self._skip(at)
            if at == len(self._data) and self._is_last:
                return value, at
            if self._data[at] != _SEMICOLON:
                raise Malformed(f"{self._shown(at)} where ; should be", at)
            return value, at + 1
        except IndexError:
            raise NeedMore(len(self._data) + 1) from None

    def _value(self, at: int, depth: int) -> tuple[Any, int]:
        return _READERS[self._data[at]](self, at, depth)

    # ---- what holds values

    def _list(self, at: int, depth: int) -> tuple[Any, int]:
        self._open(at, depth)
        return self._items(at + 1, _LIST_END, depth + 1)

    def _map(self, at: int, depth: int) -> tuple[Any, int]:
        self._open(at, depth)
        return self._entries(at + 1, _MAP_END, depth + 1)

    def _attributed(self, at: int, depth: int) -> tuple[Any, int]:
        self._open(at, depth)
        attributes, at = self._entries(at + 1, _ATTRIBUTES_END, depth + 1)
        at = self._skip(at)
        if self._data[at] == _ATTRIBUTES:
            raise Malformed("a value has attributes twice", at)
        value, at = self._value(at, depth)
        return (Attributed(value, attributes) if attributes else value), at

    def _open(self, at: int, depth: int) -> None:
        if depth >= self._limits.depth_max:
            raise Excess(f"nested deeper than {self._limits.depth_max}", at)

    def _items(self, at: int, end: int, depth: int) -> tuple[list[Any], int]:
        data = self._data
        items: list[Any] = []
        while not self._is_end(at := self._skip(at), end):
            item, at = _READERS[data[at]](self, at, depth)
            items.append(item)
            self._left -= 1
            if self._left < 0:
                raise Excess(f"more than {self._limits.values_max} values", at)
            at = self._separated(at, end)
        return items, at + (end != _NONE)

    def _entries(self, at: int, end: int, depth: int) -> tuple[dict[str, Any], int]:
        data = self._data
        entries: dict[str, Any] = {}
        while not self._is_end(at := self._skip(at), end):
            begin = at
            key, at = self._key(at)
            if key in entries:
                raise Malformed(f"the map has the key {shown(key)} twice", begin)
            if data[at] != _EQUALS:
                at = self._skip(at)
                if data[at] != _EQUALS:
                    raise Malformed(f"{self._shown(at)} where = should be", at)
            at += 1
            entries[key], at = _READERS[data[at]](self, at, depth)
            self._left -= 1
            if self._left < 0:
                raise Excess(f"more than {self._limits.values_max} values", at)
            at = self._separated(at, end)
        return entries, at + (end != _NONE)

    def _is_end(self, at: int, end: int) -> bool:
        """Return whether there is no further item or entry."""
        if end == _NONE:
            return at == len(self._data)
        return self._data[at] == end

    def _separated(self, at: int, end: int) -> int:
        """Return the place after the semicolon, which may be missing before the end."""
        data = self._data
        if at == len(data) and end == _NONE:
            return at
        if data[at] == _SEMICOLON:
            return at + 1
        at = self._skip(at)
        if self._is_end(at, end):
            return at
        if data[at] != _SEMICOLON:
            raise Malformed(f"{self._shown(at)} where ; should be", at)
        return at + 1

    def _skip(self, at: int) -> int:
        data = self._data
        if at < len(data) and data[at] not in SPACES:
            return at
        found = _after_spaces(data, at)
        assert found is not None, at
        return found.end()

    def _key(self, at: int) -> tuple[str, int]:
        byte = self._data[at]
        if byte == _STRING:
            raw, end = tokens.binary_string(self._data, at + 1)
        elif byte == _QUOTE:
            raw, end = tokens.quoted_string(self._data, at)
        elif _READERS[byte] is Reader._unquoted:
            raw, end = tokens.unquoted_string(self._data, at, self._is_last)
        else:
            raise Malformed(f"{self._shown(at)} where a key should be", at)
        try:
            return raw.decode(), end
        except UnicodeDecodeError:
            raise Malformed("a key is not valid UTF-8", at) from None

    # ---- scalars

    def _string(self, at: int, depth: int) -> tuple[Any, int]:
        raw, at = tokens.binary_string(self._data, at + 1)
        return (text_of(raw) if self._is_text else raw), at

    def _quoted(self, at: int, depth: int) -> tuple[Any, int]:
        raw, at = tokens.quoted_string(self._data, at)
        return (text_of(raw) if self._is_text else raw), at

    def _unquoted(self, at: int, depth: int) -> tuple[Any, int]:
        raw, at = tokens.unquoted_string(self._data, at, self._is_last)
        return (raw.decode() if self._is_text else raw), at

    def _int64(self, at: int, depth: int) -> tuple[Any, int]:
        return tokens.binary_int64(self._data, at + 1)

    def _unsigned(self, at: int, depth: int) -> tuple[Any, int]:
        number, at = tokens.varint(self._data, at + 1)
        return self._uint64(number), at

    def _double(self, at: int, depth: int) -> tuple[Any, int]:
        return tokens.binary_double(self._data, at + 1)

    def _false(self, at: int, depth: int) -> tuple[Any, int]:
        return False, at + 1

    def _true(self, at: int, depth: int) -> tuple[Any, int]:
        return True, at + 1

    def _entity(self, at: int, depth: int) -> tuple[Any, int]:
        return None, at + 1

    def _number(self, at: int, depth: int) -> tuple[Any, int]:
        value, at, is_unsigned = tokens.number(self._data, at, self._is_last)
        return (self._uint64(value) if is_unsigned else value), at

    def _literal(self, at: int, depth: int) -> tuple[Any, int]:
        return tokens.literal(self._data, at, self._is_last)

    def _spaced(self, at: int, depth: int) -> tuple[Any, int]:
        at = self._skip(at)
        return _READERS[self._data[at]](self, at, depth)

    def _unknown(self, at: int, depth: int) -> tuple[Any, int]:
        raise Malformed(f"{self._shown(at)} where a value should be", at)

    def _shown(self, at: int) -> str:
        """Return the byte at a place, for an error's text."""
        return ascii(chr(self._data[at])) if at < len(self._data) else "the end"


def text_of(raw: bytes) -> str | bytes:
    """Return the bytes as text if they are UTF-8, otherwise unchanged."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


_ByteReader = Callable[[Reader, int, int], tuple[Any, int]]
_FIRST_BYTES: Final[dict[bytes, _ByteReader]] = {
    b"\x01": Reader._string,
    b"\x02": Reader._int64,
    b"\x03": Reader._double,
    b"\x04": Reader._false,
    b"\x05": Reader._true,
    b"\x06": Reader._unsigned,
    b"#": Reader._entity,
    b"%": Reader._literal,
    b'"': Reader._quoted,
    b"0123456789+-": Reader._number,
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_": Reader._unquoted,
    b"[": Reader._list,
    b"{": Reader._map,
    b"<": Reader._attributed,
    SPACES: Reader._spaced,
}


def _by_byte() -> list[_ByteReader]:
    readers: list[_ByteReader] = [Reader._unknown] * 256
    for first_bytes, read in _FIRST_BYTES.items():
        for byte in first_bytes:
            readers[byte] = read
    return readers


_READERS: Final = _by_byte()
"""By the first byte of a value, the method that reads it."""
