"""Rows that come in pieces, as MessagePack or as lines of JSON: bytes in, rows out. Pure.

Owns: their bounds. A row may be cut anywhere; what is kept is the piece of one row.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgpack
import msgspec

from dodona.errors import InvalidRequest, LimitExceeded
from dodona_gateway.core.arrow_stream import ArrowStream
from dodona_gateway.core.content import Form
from dodona_gateway.core.json_values import check_depth, from_json, may_be_marked

ROW_BYTES_MAX: Final = 32 << 20
NEWLINE: Final = b"\n"

Row = dict[str, Any]


class BatchReader(Protocol):
    """Takes parts of a body; gives what is whole: record batches, or lists of rows."""

    def feed(self, part: bytes) -> list[Any]: ...

    def finish(self) -> list[Any]: ...


class PackedRows:
    """Maps in MessagePack, one after the other."""

    def __init__(self, row_bytes_max: int = ROW_BYTES_MAX) -> None:
        self._row_bytes_max = row_bytes_max
        self._count = 0
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=2 * row_bytes_max,
            max_array_len=row_bytes_max,
            max_map_len=row_bytes_max,
            strict_map_key=False,
        )
        self._fed_bytes = self._whole_bytes = 0
        """Of all that came, and up to the end of the last row that came whole."""

    def feed(self, part: bytes) -> list[Row]:
        """The rows that are whole with this part. Raises InvalidRequest, LimitExceeded."""
        rows: list[Row] = []
        for start in range(0, len(part), self._row_bytes_max):
            rows += self._feed(part[start : start + self._row_bytes_max])
        return rows

    def finish(self) -> list[Row]:
        """No more rows. Raises InvalidRequest if the body ends within one."""
        if self._whole_bytes < self._fed_bytes:
            raise InvalidRequest("the body ends within a row", row_index=self._count)
        return []

    def _feed(self, part: bytes) -> list[Row]:
        rows: list[Row] = []
        self._fed_bytes += len(part)
        try:
            self._unpacker.feed(part)
            for row in self._unpacker:
                rows.append(row)
                self._whole_bytes = self._unpacker.tell()
        except (msgpack.exceptions.UnpackException, ValueError, RecursionError) as error:
            text = f"the body is no row after row in MessagePack: {error or 'nested too deep'}"
            raise InvalidRequest(text, row_index=self._count) from error
        if self._fed_bytes - self._whole_bytes > self._row_bytes_max:
            raise _too_long(self._row_bytes_max, self._count + len(rows))
        for row in rows:
            _check_row(row, self._count)
            self._count += 1
        return rows


class LinesOfJson:
    """A JSON object on each line."""

    def __init__(self, row_bytes_max: int = ROW_BYTES_MAX) -> None:
        self._row_bytes_max = row_bytes_max
        self._count = 0
        self._pieces: list[bytes] = []
        self._rest_bytes = 0
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode

    def feed(self, part: bytes) -> list[Row]:
        """The rows that are whole with this part. Raises InvalidRequest, LimitExceeded."""
        whole, newline, rest = part.rpartition(NEWLINE)
        rows: list[Row] = []
        if newline:
            lines = b"".join((*self._pieces, whole))
            self._pieces, self._rest_bytes = [], 0
            rows = [self._row(line) for line in lines.split(NEWLINE) if line.strip()]
        if rest:
            self._pieces.append(rest)
            self._rest_bytes += len(rest)
        if self._rest_bytes > self._row_bytes_max:
            raise _too_long(self._row_bytes_max, self._count)
        return rows

    def finish(self) -> list[Row]:
        """The row on a last line without an end. Raises InvalidRequest."""
        line = b"".join(self._pieces)
        self._pieces = []
        return [self._row(line)] if line.strip() else []

    def _row(self, line: bytes) -> Row:
        try:
            row = self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = f"the line is no JSON object: {error}"
            raise InvalidRequest(text, row_index=self._count) from error
        if may_be_marked(line):
            row = from_json(row)
        _check_row(row, self._count)
        self._count += 1
        return row  # type: ignore[no-any-return]  # that it is one was checked


class _ArrowBatches:
    """As `ArrowStream`, with an end as the others have."""

    def __init__(self) -> None:
        self._stream = ArrowStream()

    def feed(self, part: bytes) -> list[Any]:
        return self._stream.feed(part)

    def finish(self) -> list[Any]:
        self._stream.finish()
        return []


def reader_of(form: Form) -> BatchReader:
    """What reads a body of that form."""
    if form == "arrow":
        return _ArrowBatches()
    return PackedRows() if form == "msgpack" else LinesOfJson()


def _check_row(row: Any, index: int) -> None:
    if type(row) is not dict:
        text = f"a row is a map from column to value, not {type(row).__name__}"
        raise InvalidRequest(text, row_index=index)
    check_depth(row)


def _too_long(bytes_max: int, index: int) -> LimitExceeded:
    return LimitExceeded(f"a row has at most {bytes_max} bytes", row_index=index)
