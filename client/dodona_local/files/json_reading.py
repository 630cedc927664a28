"""Read JSON as parts: an object in each line, or one array of objects. The first character shows
which it is. If an object has several lines, as in pretty-printed text, the next object follows it.

Owns: cutting the text into objects without the whole text in memory, and the lines of the objects.
`dodona_wire.rows.text_format` reads the values.
"""

import codecs
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from dodona_local.files.parts import PART_BYTES, Row, RowPart, Want
from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.rows.json_text import Place, column_refusal, repeated_name
from dodona_wire.rows.text_format import reader_of
from dodona_wire.shown import shown

TEXT_BYTES_MAX: Final = 512 << 20
"""The bound on the text of one object: more than a row may have in any text form."""
READ_BYTES: Final = 1 << 20
SAID_LENGTH_MAX: Final = 40
BLANK: Final = b" \t\r\n"
LONGEST_WORD: Final = 16
"""The length of the longest word that can be cut, such as a literal or an escape."""
TRUNCATED: Final = "truncated"
"""The word of msgspec's error for a text that ends too early."""
_DECODER: Final = json.JSONDecoder()

Reader = Callable[[Any], Any]
Piece = tuple[int, int, Any]
"""The line on which an object begins, the length of its text, and its value."""


def open_json(stream: io.BufferedReader, want: Want) -> Iterator[RowPart]:
    """Return the parts, which raise SchemaViolation, InvalidRequest."""
    line, first = _skip_blank(stream)
    pieces = _of_array(stream, line) if first == b"[" else _of_lines(stream, line)
    return _parts(pieces, want)


def _skip_blank(stream: io.BufferedReader) -> tuple[int, bytes]:
    """Skip blanks. Return the line number, and the first character, which is not read yet."""
    line = 1
    if stream.peek(3).startswith(codecs.BOM_UTF8):
        stream.read(3)
    while (first := stream.peek(1)[:1]) and first in BLANK:
        line += stream.read(1) == b"\n"
    return line, first


def _parts(pieces: Iterator[Piece], want: Want) -> Iterator[RowPart]:
    readers = {column.name: reader_of(column) for column in want.columns}
    rows: list[Row] = []
    lines: list[int] = []
    first_row = size_bytes = 0
    for line, length, found in pieces:
        rows.append(_row_of(found, readers, {"row": first_row + len(rows) + 1, "line": line}))
        lines.append(line)
        size_bytes += length
        if len(rows) >= want.rows_per_part or size_bytes >= PART_BYTES:
            yield RowPart(want, first_row, rows, lines, size_bytes)
            first_row, size_bytes, rows, lines = first_row + len(rows), 0, [], []
    if rows:
        yield RowPart(want, first_row, rows, lines, size_bytes)


class _Repeated:
    """An object that has a name twice."""

    def __init__(self, name: Place) -> None:
        self.name = name


def _row_of(found: Any, readers: dict[str, Reader], place: dict[str, int]) -> Row:
    if isinstance(found, _Repeated):
        raise column_refusal(found.name, **place)
    if not isinstance(found, dict):
        raise SchemaViolation(
            f"a row must be an object, not {shown(found, SAID_LENGTH_MAX)}", **place
        )
    try:
        return {name: readers[name](value) for name, value in found.items()}
    except KeyError:
        strangers = [name for name in found if name not in readers]
        known = list(readers)
        raise SchemaViolation("no such column", columns=strangers, known=known, **place) from None
    except SchemaViolation as error:
        error.attributes.update(place)
        raise


# ---- an object a line


def _of_lines(stream: io.BufferedReader, line: int) -> Iterator[Piece]:
    while raw := stream.readline(TEXT_BYTES_MAX):
        if len(raw) == TEXT_BYTES_MAX:
            raise InvalidRequest(f"a line is longer than {TEXT_BYTES_MAX} bytes", line=line)
        if raw.isspace():
            line += 1
            continue
        try:
            found = _decoded(raw, line)
        except InvalidRequest as error:
            if TRUNCATED not in error.message:
                raise
            yield from _of_text(_Text(stream, line, raw))
            return
        yield line, len(raw), found
        line += 1


def _of_text(text: "_Text") -> Iterator[Piece]:
    """Yield objects, which may end anywhere in a line."""
    while text.next_character():
        yield text.value()


def _decoded(raw: bytes, line: int) -> Any:
    try:
        found = msgspec.json.decode(raw)
        name = repeated_name(raw, found) if type(found) is dict else None
        return _Repeated(name) if name else found
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(f"not JSON: {error}", line=line) from error


# ---- one array


def _of_array(stream: io.BufferedReader, line: int) -> Iterator[Piece]:
    text = _Text(stream, line)
    text.take("[")
    if text.next_character() == "]":
        text.take("]")
    else:
        while True:
            yield text.value()
            if text.next_character() != ",":
                break
            text.take(",")
        text.take("]")
    if rest := text.next_character():
        raise text.refusal(f"{rest!r} follows the array")


class _Text:
    """A window of a text, which is read further when needed. `begun` is the part that was read
    before. Methods raise InvalidRequest."""

    def __init__(self, stream: io.BufferedReader, line: int, begun: bytes = b"") -> None:
        self._read: Callable[[], bytes] = partial(stream.read1, READ_BYTES)
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._line = line
        self._at = 0
        self._is_over = False
        self._window = self._text_of(begun)

    def next_character(self) -> str:
        """Return the next character that is not blank; an empty text at the end."""
        while True:
            while self._at < len(self._window):
                character = self._window[self._at]
                if character not in " \t\r\n":
                    return character
                self._line += character == "\n"
                self._at += 1
            if not self._more():
                return ""

    def take(self, expected: str) -> None:
        """Take the next character. Raises InvalidRequest if it is another one."""
        found = self.next_character()
        if found != expected:
            what = repr(found) if found else "the end"
            raise self.refusal(f"{what} is where {expected!r} must be")
        self._at += 1

    def value(self) -> Piece:
        """Return the next value. Raises InvalidRequest."""
        self.next_character()
        while True:
            try:
                _, end = _DECODER.raw_decode(self._window, self._at)
                break
            except (ValueError, RecursionError) as error:
                if not (self._is_cut(error) and self._more()):
                    raise self.refusal(str(error)) from error
        piece, line = self._window[self._at : end], self._line
        self._line += piece.count("\n")
        self._at = end
        return line, len(piece), _decoded(piece.encode(), line)

    def refusal(self, reason: str) -> InvalidRequest:
        return InvalidRequest(f"not JSON: {reason}", line=self._line)

    def _is_cut(self, error: Exception) -> bool:
        """Return whether the error may mean that the text continues."""
        if not isinstance(error, json.JSONDecodeError):
            return False
        is_near_end = error.pos > len(self._window) - LONGEST_WORD
        is_short = len(self._window) - self._at <= TEXT_BYTES_MAX
        return is_short and (is_near_end or error.msg.startswith("Unterminated string"))

    def _more(self) -> bool:
        """Read at least as much text as the window has, so that a long value is not scanned too
        often."""
        if self._is_over:
            return False
        kept = [self._window[self._at :]]
        wanted = max(READ_BYTES, len(kept[0]))
        size_bytes = 0
        while size_bytes < wanted and not self._is_over:
            raw = self._read()
            self._is_over = not raw
            size_bytes += len(raw)
            kept.append(self._text_of(raw))
        self._window, self._at = "".join(kept), 0
        return True

    def _text_of(self, raw: bytes) -> str:
        try:
            return self._decode.decode(raw, final=self._is_over)
        except UnicodeDecodeError as error:
            raise self.refusal(f"not UTF-8: {error}") from error
