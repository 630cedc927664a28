"""Read rows that come in pieces, as MessagePack or JSON lines: bytes in, rows out. Pure.

Owns: the limits of these rows. A row may be cut anywhere. The reader keeps only the piece of one
row.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgpack
import msgspec

from dodona_gateway.core.arrow_stream import ArrowStream
from dodona_gateway.core.content import Form
from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.rows.json_text import column_refusal, repeated_name, without_mark
from dodona_wire.rows.packed_names import repeated_in_packed
from dodona_wire.rows.text_format import is_reserved

ROW_BYTES_MAX: Final = 32 << 20
NEWLINE: Final = b"\n"
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Row = dict[str, Any]


class BatchReader(Protocol):
    """A reader that takes parts of a body, and returns the complete content: record batches, or
    lists of rows."""

    def feed(self, part: bytes) -> list[Any]: ...

    def finish(self) -> list[Any]: ...


class PackedRows:
    """A reader of maps in MessagePack, one after the other. It finds the end of a row first, and
    decodes the row when the whole row is there. So a length that is only announced takes no
    memory."""

    def __init__(self, row_bytes_max: int = ROW_BYTES_MAX) -> None:
        self._row_bytes_max = row_bytes_max
        self._count = 0
        self._finder = msgpack.Unpacker(max_buffer_size=2 * row_bytes_max)
        self._decode = msgspec.msgpack.Decoder(Row).decode
        self._rest = bytearray()
        self._begin = 0
        """The place in the stream where the rest begins."""

    def feed(self, part: bytes) -> list[Row]:
        """Return the rows that are complete with this part. Raises InvalidRequest,
        LimitExceeded."""
        rows: list[Row] = []
        for start in range(0, len(part), self._row_bytes_max):
            self._feed(part[start : start + self._row_bytes_max], rows)
        return rows

    def finish(self) -> list[Row]:
        """End the body. Raises InvalidRequest if it ends within a row."""
        if self._rest:
            raise InvalidRequest(
                "The body ends within a row. Send it whole.", row_index=self._count
            )
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
            text = f"The body is not a sequence of MessagePack maps: {error or 'nested too deep'}"
            raise InvalidRequest(text, row_index=self._count) from error
        del self._rest[:start]
        self._begin += start
        self._check_length(len(self._rest))

    def _next_end(self) -> int | None:
        """Return the place in the rest where the next row ends, or None if that has not come
        yet."""
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
    """A reader of a JSON object on each line. The values are as they came: `json_values` converts
    them."""

    def __init__(self, row_bytes_max: int = ROW_BYTES_MAX) -> None:
        self._row_bytes_max = row_bytes_max
        self._count = 0
        self._rest = bytearray()
        self._is_begun = False
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(Row).decode

    def feed(self, part: bytes) -> list[Row]:
        """Return the rows that are complete with this part. Raises InvalidRequest,
        LimitExceeded."""
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
        """Return the row on a last line that has no end. Raises InvalidRequest."""
        return self.feed(NEWLINE)

    def _row(self, line: bytes) -> Row:
        if len(line) > self._row_bytes_max:
            raise _too_long(self._row_bytes_max, self._count)
        try:
            row: Row = self._decode(line)
            if place := repeated_name(line, row):
                raise column_refusal(place, row_index=self._count)
        except _DECODE_ERRORS as error:
            text = f"The line is not a JSON object: {error}"
            raise InvalidRequest(text, row_index=self._count) from error
        if is_reserved(row):
            (name,) = row
            text = f"A row must be a map from column to value, and {name} is no column."
            raise InvalidRequest(text, row_index=self._count)
        self._count += 1
        return row


class _ArrowBatches:
    """An `ArrowStream` that ends like the other readers. A stream without rows has columns too: it
    ends with an empty batch."""

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
    """Return the reader for a body of that form."""
    if form == "arrow":
        return _ArrowBatches()
    return PackedRows() if form == "msgpack" else LinesOfJson()


def _too_long(bytes_max: int, index: int) -> LimitExceeded:
    return LimitExceeded(
        f"A row has at most {bytes_max} bytes. Send a smaller one.", row_index=index
    )
