"""Write any value as YSON: binary, text, and text that is formatted for people.

Owns: the structure of the output; `scalar_format` owns the form of scalars. The output is byte for
byte YTsaurus's, so that no client can see a difference. Nested calls write nested values, and a
limit bounds them. So a list inside itself is an error too. Imports no clock and no I/O.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_ytsaurus.yson import scalar_format
from dodona_ytsaurus.yson.limits import DEPTH_MAX
from dodona_ytsaurus.yson.values import Attributed, Format, Kind, Uint64

_INDENT: Final = b"    "


def dumps(value: Any, format: Format = "binary", *, kind: Kind = "node") -> bytes:
    """Write a value; a list fragment from any iterable, a map fragment from a dict.

    An int becomes int64, or uint64 where it only fits there, or is a Uint64. A str becomes UTF-8,
    and a tuple becomes a list. Raises InvalidRequest on a value that YSON has no form for,
    LimitExceeded on a value that is nested deeper than 100.
    """
    writer = _Writer(format)
    if kind == "node":
        writer.value(value, 0)
    elif kind == "list_fragment":
        for item in value:
            writer.value(item, 0)
            writer.add(writer.item_end)
    else:
        for key, item in value.items():
            writer.entry(key, item, 0)
            writer.add(writer.item_end)
    return b"".join(writer.parts)


class _Writer:
    """A writer that gathers pieces. `level` is how many lists and maps are open around a value."""

    def __init__(self, format: Format) -> None:
        self.parts: list[bytes] = []
        self.add = self.parts.append
        self._is_pretty = format == "pretty"
        is_binary = format == "binary"
        self.item_end = b";" if is_binary else b";\n"
        self._equals = b" = " if self._is_pretty else b"="
        self._attributes_end = b"> " if self._is_pretty else b">"
        self._scalars = _BINARY if is_binary else _TEXT
        self._string = scalar_format.binary_string if is_binary else scalar_format.text_string

    def value(self, value: Any, level: int) -> None:
        format_value = self._scalars.get(type(value))
        if format_value is not None:
            self.add(format_value(value))
        elif isinstance(value, dict):
            self._map(value, level)
        elif isinstance(value, list | tuple):
            self._list(value, level)
        elif isinstance(value, Attributed):
            self._attributed(value, level)
        else:
            self._unusual(value)

    def entry(self, key: Any, value: Any, level: int) -> None:
        """Write an entry of a map."""
        if not isinstance(key, str | bytes):
            raise InvalidRequest(
                f"A key of a YSON map must be str or bytes, not {type(key).__name__}.",
                key=repr(key)[:40],
            )
        self.add(self._string(raw_string(key)))
        self.add(self._equals)
        self.value(value, level)

    def _list(self, items: list[Any] | tuple[Any, ...], level: int) -> None:
        self.add(b"[")
        inside = self._open(level)
        for item in items:
            self.add(inside)
            self.value(item, level + 1)
            self.add(b";")
        self._close(bool(items), b"]", level)

    def _map(self, entries: Mapping[Any, Any], level: int) -> None:
        self.add(b"{")
        inside = self._open(level)
        for key, value in entries.items():
            self.add(inside)
            self.entry(key, value, level + 1)
            self.add(b";")
        self._close(bool(entries), b"}", level)

    def _attributed(self, whole: Attributed, level: int) -> None:
        if isinstance(whole.value, Attributed):
            raise InvalidRequest("The value has attributes twice.")
        if whole.attributes:
            self.add(b"<")
            inside = self._open(level)
            for key, value in whole.attributes.items():
                self.add(inside)
                self.entry(key, value, level + 1)
                self.add(b";")
            self._close(True, self._attributes_end, level)
        self.value(whole.value, level)

    def _open(self, level: int) -> bytes:
        """Return the bytes that come before each item. Raises LimitExceeded."""
        if level >= DEPTH_MAX:
            raise LimitExceeded(f"The value is nested deeper than {DEPTH_MAX}.")
        return b"\n" + _INDENT * (level + 1) if self._is_pretty else b""

    def _close(self, is_filled: bool, end: bytes, level: int) -> None:
        if is_filled and self._is_pretty:
            self.add(b"\n" + _INDENT * level)
        self.add(end)

    def _unusual(self, value: Any) -> None:
        """Write an instance of a subclass as the class that it stands for. Raises
        InvalidRequest."""
        for kind in (bool, int, float, str, bytes):
            if isinstance(value, kind):
                self.add(self._scalars[kind](value))
                return
        raise InvalidRequest(f"YSON can't hold a value of type {type(value).__name__}.")


def raw_string(value: str | bytes) -> bytes:
    """Return the bytes of a string, which may be str or bytes. Raises InvalidRequest."""
    if isinstance(value, bytes):
        return value
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"The text is not valid Unicode: {error}") from None


_Format = Callable[[Any], bytes]
_BINARY: Final[dict[type, _Format]] = {
    type(None): lambda _: b"#",
    bool: lambda value: b"\x05" if value else b"\x04",
    int: scalar_format.binary_integer,
    Uint64: scalar_format.binary_uint64,
    float: scalar_format.binary_double,
    bytes: scalar_format.binary_string,
    str: lambda value: scalar_format.binary_string(raw_string(value)),
}
_TEXT: Final[dict[type, _Format]] = {
    type(None): lambda _: b"#",
    bool: lambda value: b"%true" if value else b"%false",
    int: scalar_format.text_integer,
    Uint64: scalar_format.text_uint64,
    float: scalar_format.text_double,
    bytes: scalar_format.text_string,
    str: lambda value: scalar_format.text_string(raw_string(value)),
}
