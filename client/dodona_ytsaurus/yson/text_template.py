"""Read rows in text fast if they look like those before them.

Owns: the shape that rows of one table share (which columns, in which order), as one regular
expression. A template reads what the general reader would have read, or nothing. The general reader
reads every unusual row. This is a row with a nested value, spaces within, another column, or a
number that does not fit, or a broken or incomplete row. Imports no clock and no I/O.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dodona_ytsaurus.yson import tokens
from dodona_ytsaurus.yson.limits import Malformed
from dodona_ytsaurus.yson.reader import text_of
from dodona_ytsaurus.yson.scalar_format import text_string
from dodona_ytsaurus.yson.values import INT64_MAX, INT64_MIN, UINT64_MAX, Strings, Uint64

# Possessive, so that a row that does not match fails in time that is linear in its length.
_VALUE: Final = (
    rb'("(?:[^"\\]++|\\[\x00-\xff])*+"'
    rb"|-?[0-9]{1,20}+(?:\.[0-9]{0,40}+)?(?:[eE][+-]?[0-9]{1,4}+)?u?|#|%[a-z+\-]{3,5}+)"
)
_is_word: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_\-]*+").fullmatch
_is_plain: Final = re.compile(rb'[^"\\]*+').fullmatch
_CACHED_TOKEN_BYTES_MAX: Final = 3
"""The longest number to cache. There are fewer than two thousand numbers up to this length."""
_QUOTE, _UNSIGNED = 0x22, 0x75


class _Unusual(Exception):
    """The general reader must read this row."""


class _Values(dict[bytes, Any]):
    """By the text of a scalar, its value. Raises Malformed, ValueError or _Unusual."""

    def __init__(self, uint64: type[int], text: Callable[[bytes], Any] | None) -> None:
        super().__init__({b"#": None, **tokens.LITERALS})
        self._uint64 = uint64
        self._text = text

    def __missing__(self, token: bytes) -> Any:
        if token[0] == _QUOTE:
            raw = tokens.quoted_string(token, 0)[0] if b"\\" in token else token[1:-1]
            return raw if self._text is None else self._text(raw)
        if b"." in token or b"e" in token or b"E" in token:
            return float(token)
        value = self._integer(token)
        if len(token) <= _CACHED_TOKEN_BYTES_MAX:
            self[token] = value
        return value

    def _integer(self, token: bytes) -> int:
        if token[-1] == _UNSIGNED:
            value = self._uint64(token[:-1])
            fits = token[0] != 0x2D and value <= UINT64_MAX
        else:
            value = int(token)
            fits = INT64_MIN <= value <= INT64_MAX
        if not fits:
            raise _Unusual
        return value


_VALUES: Final[Mapping[tuple[bool, Strings], _Values]] = {
    (keeps_uint64, strings): _Values(
        Uint64 if keeps_uint64 else int, text_of if strings == "text" else None
    )
    for keeps_uint64 in (True, False)
    for strings in ("bytes", "text")
}


class TextTemplate:
    """A template that reads rows of these columns in this order."""

    __slots__ = ("_bytes_max", "_match", "_value", "names", "with_strings")

    def __init__(
        self, names: Sequence[str], bytes_max: int, strings: Strings, keeps_uint64: bool
    ) -> None:
        self.names = tuple(names)
        self.with_strings = frozenset(names)
        """Any column may hold strings."""
        self._bytes_max = bytes_max
        self._match = re.compile(_pattern(names)).match
        self._value = _VALUES[keeps_uint64, strings].__getitem__

    def read(self, data: bytes, at: int, rows: list[Any], rows_max: int) -> int:
        """Append rows from this place on, until there are `rows_max`, or a row is unusual. Returns
        the place where reading ended."""
        names, value, match, bytes_max = self.names, self._value, self._match, self._bytes_max
        while len(rows) < rows_max:
            found = match(data, at)
            if found is None or found.end() - at > bytes_max:
                return at
            try:
                values = list(map(value, found.groups()))
            except (Malformed, ValueError, _Unusual):
                return at
            rows.append(dict(zip(names, values, strict=True)))
            at = found.end()
        return at


def _pattern(names: Sequence[str]) -> bytes:
    entries = [_key(name.encode()) + b"=" + _VALUE for name in names]
    return rb"[ \n]*+\{" + b";".join(entries) + rb";?\};"


def _key(raw: bytes) -> bytes:
    """Return a pattern of a key: as writers escape it, in plain quotes, or bare, as people write
    it."""
    forms = {text_string(raw): None}
    if _is_plain(raw):
        forms[b'"' + raw + b'"'] = None
    if _is_word(raw):
        forms[raw] = None
    return b"(?:" + b"|".join(map(re.escape, forms)) + b")"
