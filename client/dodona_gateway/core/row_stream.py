"""Rows that come in pieces, as MessagePack or as lines of JSON: bytes in, rows out. Pure.

Owns: their bounds. A row may be cut anywhere; what is kept is the piece of one row.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgpack
import msgspec

from dodona_gateway.core.arrow_stream import ArrowStream
from dodona_gateway.core.content import Form
from dodona_wire.errors import InvalidRequest, LimitExceeded, SchemaViolation
from dodona_wire.rows.json_text import column_refusal, repeated_name, without_mark
from dodona_wire.rows.packed_names import repeated_in_packed
from dodona_wire.rows.text_format import may_be_marked, place_of_misread, unmarked

ROW_BYTES_MAX: Final = 32 << 20
NEWLINE: Final = b"\n"
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Row = dict[str, Any]


class BatchReader(Protocol):
    """Takes parts of a body; gives what is whole: record batches, or lists of rows."""

    def feed(self, part: bytes) -> list[Any]: ...

    def finish(self) -> list[Any]: ...


class PackedRows:
    """Maps in MessagePack, one after the other. Where a row ends is found first, and it is decoded
    once it is there: nothing is made room for because a length says so."""

    def __init__(self, row_bytes_max: int = ROW_BYTES_MAX) -> None:
        self._row_bytes_max = row_bytes_max
        self._count = 0
        self._finder = msgpack.Unpacker(max_buffer_size=2 * row_bytes_max)
        self._decode = msgspec.msgpack.Decoder(Row).decode
        self._rest = bytearray()
        self._begin = 0
        """Where in the stream the rest begins."""

    def feed(self, part: bytes) -> list[Row]:
        """The rows that are whole with this part. Raises InvalidRequest, LimitExceeded."""
        rows: list[Row] = []
        for start in range(0, len(part), self._row_bytes_max):
            self._feed(part[start : start + self._row_bytes_max], rows)
        return rows

    def finish(self) -> list[Row]:
        """No more rows. Raises InvalidRequest if the body ends within one."""
        if self._rest:
            raise InvalidRequest("the body ends within a row", row_index=self._count)
        return []

    def _feed(self, part: bytes, rows: list[Row]) -> None:
        self._rest += part
        self._finder.feed(part)
        start = 0
        try:
            with memoryview(self._rest) as content:
                while (end := self._next_end()) is not None:
                    self._check_length(end - start)
                    packed = bytes(content[start:end])
                    row = self._decode(packed)
                    if place := repeated_in_packed(packed, row):
                        raise column_refusal(place, row_index=self._count)
                    rows.append(row)
                    self._count += 1
                    start = end
        except (*_DECODE_ERRORS, msgpack.UnpackException) as error:
            text = f"the body is no row after row in MessagePack: {error or 'nested too deep'}"
            raise InvalidRequest(text, row_index=self._count) from error
        del self._rest[:start]
        self._begin += start
        self._check_length(len(self._rest))

    def _next_end(self) -> int | None:
        """Where in the rest the next row ends, None if that did not come yet."""
        try:
            self._finder.skip()
        except msgpack.OutOfData:
            return None
        end: int = self._finder.tell()
        return end - self._begin

    def _check_length(self, size_bytes: int) -> None:
        if size_bytes > self._row_bytes_max:
            raise _too_long(self._row_bytes_max, self._count)


class LinesOfJson:
    """A JSON object on each line."""

    def __init__(self, row_bytes_max: int = ROW_BYTES_MAX) -> None:
        self._row_bytes_max = row_bytes_max
        self._count = 0
        self._rest = bytearray()
        self._is_begun = False
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(Row).decode

    def feed(self, part: bytes) -> list[Row]:
        """The rows that are whole with this part. Raises InvalidRequest, LimitExceeded."""
        whole, newline, rest = part.rpartition(NEWLINE)
        rows: list[Row] = []
        if newline:
            lines = bytes(self._rest) + whole
            self._rest = bytearray()
            if not self._is_begun:
                self._is_begun, lines = True, without_mark(lines)
            rows = [self._row(line) for line in lines.split(NEWLINE) if line.strip()]
        self._rest += rest
        if len(self._rest) > self._row_bytes_max:
            raise _too_long(self._row_bytes_max, self._count)
        return rows

    def finish(self) -> list[Row]:
        """The row on a last line without an end. Raises InvalidRequest."""
        return self.feed(NEWLINE)

    def _row(self, line: bytes) -> Row:
        if len(line) > self._row_bytes_max:
            raise _too_long(self._row_bytes_max, self._count)
        try:
            row: Row = self._decode(line)
            if place := repeated_name(line, row):
                raise column_refusal(place, row_index=self._count)
        except _DECODE_ERRORS as error:
            text = f"the line is no JSON object: {error}"
            raise InvalidRequest(text, row_index=self._count) from error
        if may_be_marked(line):
            row = self._unmarked(row)
        self._count += 1
        return row

    def _unmarked(self, row: Row) -> Row:
        try:
            found = unmarked(row, "row")
        except SchemaViolation as error:
            error.attributes["row_index"] = self._count
            error.attributes.pop("column", None)  # of no value, if it is the row itself
            for column in place_of_misread(row)[:1]:
                error.attributes["column"] = column
            raise
        if type(found) is not dict:
            text = f"a row is a map from column to value, not {type(found).__name__}"
            raise InvalidRequest(text, row_index=self._count)
        return found


class _ArrowBatches:
    """As `ArrowStream`, with an end as the others have. A stream without rows has columns all the
    same: it ends with a batch of none."""

    def __init__(self) -> None:
        self._stream = ArrowStream()
        self._is_empty = True

    def feed(self, part: bytes) -> list[Any]:
        batches = self._stream.feed(part)
        self._is_empty = self._is_empty and not batches
        return batches

    def finish(self) -> list[Any]:
        self._stream.finish()
        return [self._stream.empty_batch()] if self._is_empty else []


def reader_of(form: Form) -> BatchReader:
    """What reads a body of that form."""
    if form == "arrow":
        return _ArrowBatches()
    return PackedRows() if form == "msgpack" else LinesOfJson()


def _too_long(bytes_max: int, index: int) -> LimitExceeded:
    return LimitExceeded(f"a row has at most {bytes_max} bytes", row_index=index)
