"""Read CSV text in blocks of whole rows, and check every quote before Arrow reads the text.

Owns: where a row ends, and which quotes are allowed. A cell that begins with a quote is quoted. It
ends at the next quote that is not doubled, and then a comma or the end of the row follows. A quote
in any other place of a cell is text. Arrow takes quotes that break these rules as text too. Then
one quote hides all rows up to the next quote.
Must not import: Dodona's protocols.
"""

import io
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy
import pyarrow

from dodona_wire.errors import InvalidRequest

SAID_LENGTH_MAX: Final = 200
QUOTE: Final = ord('"')
LF: Final = ord("\n")
CR: Final = ord("\r")
WINDOW_BYTES: Final = 1 << 16
"""The bytes that are searched at a time for the end of a row."""
_ENDS_CELL: Final = numpy.isin(numpy.arange(256), [ord(","), LF, CR])
_ENDS_CELL_OR_DOUBLES: Final = _ENDS_CELL | (numpy.arange(256) == QUOTE)


class _Fault(NamedTuple):
    """A quote that breaks the rules: the start of its cell, and the reason."""

    cell_start: int
    reason: str


class _Quoted(NamedTuple):
    """The quoted ranges of a text, in order: after `starts[i]` and before `ends[i]`."""

    starts: Any
    ends: Any
    fault: _Fault | None = None

    def stretch_around(self, place: int) -> int | None:
        """Return the start of the range that contains this place, None if no range does."""
        index = int(numpy.searchsorted(self.starts, place)) - 1
        if index < 0 or (index < len(self.ends) and self.ends[index] < place):
            return None
        return int(self.starts[index])


def whole_rows(stream: io.BufferedReader, block_bytes: int) -> Iterator[Any]:
    """Yield `pyarrow.Buffer`s of whole rows, each of at most `block_bytes`. The memory belongs to
    Arrow, and only the caller's thread reads the stream, so no thread of Arrow holds anything.

    Raises InvalidRequest at the first quote that breaks the rules, after the rows before it.
    """
    rest = b""
    while True:
        block = pyarrow.allocate_buffer(block_bytes)
        view = memoryview(block).cast("B")
        view[: len(rest)] = rest
        size_bytes = len(rest) + stream.readinto(view[len(rest) :])
        if not size_bytes:
            return
        text = numpy.frombuffer(view[:size_bytes], "u1")
        is_last = size_bytes < block_bytes
        quoted = _quoted(text, is_last=is_last)
        cut = _rows_end(text, quoted, is_last=is_last)
        if cut:
            yield block.slice(0, cut)
        if quoted.fault is not None:
            raise _refusal(text, quoted.fault.cell_start, quoted.fault.reason)
        if is_last:
            return
        if not cut:
            raise _too_long(text, quoted, block_bytes)
        rest = bytes(view[cut:size_bytes])


def _quoted(text: Any, *, is_last: bool) -> _Quoted:
    """Return the quoted ranges of a text that begins with a row. Unless the text is the last one,
    its last cell may continue."""
    places = numpy.flatnonzero(text == QUOTE)
    before = text[places - 1]
    after = text[numpy.minimum(places + 1, len(text) - 1)]
    if len(places) and places[0] == 0:
        before[0] = LF
    if len(places) and places[-1] == len(text) - 1:
        after[-1] = LF
    starts, ends = places[::2], places[1::2]
    is_ordinary = (
        _ENDS_CELL_OR_DOUBLES[before[::2]].all() and _ENDS_CELL_OR_DOUBLES[after[1::2]].all()
    )
    if is_ordinary and (len(starts) == len(ends) or not is_last):
        return _Quoted(starts, ends)
    return _quoted_one_by_one(places, _ENDS_CELL[before], after, is_last=is_last)


def _quoted_one_by_one(places: Any, begins_cell: Any, after: Any, *, is_last: bool) -> _Quoted:
    """Return the quoted ranges of a text in which some quotes are text, or break the rules."""
    starts: list[int] = []
    ends: list[int] = []
    at, begins, follows = 0, begins_cell.tolist(), after.tolist()
    while at < len(follows):
        if not begins[at]:
            at += 1
            continue
        starts.append(int(places[at]))
        at += 1
        while at < len(follows) and follows[at] == QUOTE:
            at += 2
        if at >= len(follows):
            reason = "the quote at the beginning of a cell is not closed"
            return _Quoted(starts, ends, _Fault(starts[-1], reason) if is_last else None)
        if not _ENDS_CELL[follows[at]]:
            reason = 'text follows the closing quote of a cell: write a quote inside quotes as ""'
            return _Quoted(starts, ends, _Fault(starts[-1], reason))
        ends.append(int(places[at]))
        at += 1
    return _Quoted(starts, ends)


def _rows_end(text: Any, quoted: _Quoted, *, is_last: bool) -> int:
    """Return how many bytes of the text are whole rows without a fault."""
    if quoted.fault is None and is_last:
        return len(text)
    end = len(text) if quoted.fault is None else quoted.fault.cell_start
    while (place := _last_line_end(text, end)) is not None:
        start = quoted.stretch_around(place)
        if start is None:
            return place + 1
        end = start
    return 0


def _last_line_end(text: Any, end: int) -> int | None:
    """Return the last place before `end` where a line ends. A carriage return as the last known
    byte does not count, because a line feed may follow."""
    while end > 0:
        start = max(end - WINDOW_BYTES, 0)
        window = text[start:end]
        found = numpy.flatnonzero((window == LF) | (window == CR))
        if len(found) and start + found[-1] == len(text) - 1 and window[found[-1]] == CR:
            found = found[:-1]
        if len(found):
            return start + int(found[-1])
        end = start
    return None


def _too_long(text: Any, quoted: _Quoted, block_bytes: int) -> InvalidRequest:
    if len(quoted.starts) > len(quoted.ends):
        reason = f"the quote at the beginning of a cell is not closed within {block_bytes} bytes"
        return _refusal(text, int(quoted.starts[-1]), reason)
    return InvalidRequest(f"a row of CSV is longer than {block_bytes} bytes: use JSON or Parquet")


def _refusal(text: Any, cell_start: int, reason: str) -> InvalidRequest:
    cell = bytes(text[cell_start : cell_start + SAID_LENGTH_MAX]).decode(errors="replace")
    return InvalidRequest(f"not CSV: {reason}", cells=cell)
