"""Write rows, a batch at a time, to a file or to standard output.

Owns: the writers, one for each format, with the beginning and the end of each format. A writer does
not close its output.
"""

import io
from typing import Any, BinaryIO, Final, Protocol

import msgspec
import pyarrow
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from dodona_local.files.formats import FileFormat
from dodona_local.files.formatting import (
    Shape,
    csv_batch,
    json_columns,
    rows_of,
    shown,
    shown_columns,
)

COMPRESSION: Final = "zstd"
WIDTH_MAX: Final = 60
"""The width of a column on a screen, at most. A longer value moves the rest of its line to the
right."""
ROWS_MEASURED: Final = 1_000


class Writer(Protocol):
    """Takes record batches of one shape."""

    def write(self, batch: Any) -> None: ...

    def finish(self) -> None:
        """Write the end of the format, after the last row."""
        ...


def writer_to(sink: BinaryIO, form: FileFormat, shape: Shape) -> Writer:
    """Return the writer of a file."""
    match form:
        case FileFormat.CSV:
            return CsvWriter(sink, shape)
        case FileFormat.JSONL:
            return LinesWriter(sink, shape)
        case FileFormat.JSON:
            return ArrayWriter(sink, shape)
        case FileFormat.PARQUET:
            return _ArrowWriter(
                pyarrow.parquet.ParquetWriter(sink, shape.schema, compression=COMPRESSION)
            )
        case FileFormat.ARROW:
            options = pyarrow.ipc.IpcWriteOptions(compression=COMPRESSION)
            return _ArrowWriter(pyarrow.ipc.new_file(sink, shape.schema, options=options))
        case FileFormat.ARROWS:
            return StreamWriter(sink, shape)


class _ArrowWriter:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, batch: Any) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> None:
        self._writer.close()


class StreamWriter(_ArrowWriter):
    """Writes Arrow's IPC stream."""

    def __init__(self, sink: BinaryIO, shape: Shape) -> None:
        super().__init__(pyarrow.ipc.new_stream(sink, shape.schema))


class CsvWriter:
    """Writes a heading and rows. Text is quoted, which distinguishes it from null."""

    def __init__(self, sink: BinaryIO, shape: Shape) -> None:
        self._sink = sink
        self._shape = shape
        self._options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
        heading = [pyarrow.array([name]) for name in shape.names]
        self._write(pyarrow.RecordBatch.from_arrays(heading, names=shape.names))

    def write(self, batch: Any) -> None:
        self._write(csv_batch(self._shape, batch))

    def _write(self, batch: Any) -> None:
        text = io.BytesIO()
        pyarrow.csv.write_csv(batch, text, self._options)
        self._sink.write(text.getbuffer())

    def finish(self) -> None:
        """Write nothing: CSV has no end."""


class LinesWriter:
    """Writes one object in each line."""

    def __init__(self, sink: BinaryIO, shape: Shape) -> None:
        self._sink = sink
        self._shape = shape
        self._encoder = msgspec.json.Encoder()

    def write(self, batch: Any) -> None:
        rows = rows_of(self._shape, json_columns(self._shape, batch))
        self._sink.write(self._encoder.encode_lines(rows))

    def finish(self) -> None:
        """Write nothing: the format has no end."""


class ArrayWriter:
    """Writes one array, with one object in each line."""

    def __init__(self, sink: BinaryIO, shape: Shape) -> None:
        self._sink = sink
        self._shape = shape
        self._encoder = msgspec.json.Encoder()
        self._is_empty = True

    def write(self, batch: Any) -> None:
        for row in rows_of(self._shape, json_columns(self._shape, batch)):
            self._sink.write(b"[\n" if self._is_empty else b",\n")
            self._sink.write(self._encoder.encode(row))
            self._is_empty = False

    def finish(self) -> None:
        self._sink.write(b"[]\n" if self._is_empty else b"\n]\n")


class TableWriter:
    """Writes a table for people: columns under their names, as wide as their first rows need."""

    def __init__(self, sink: BinaryIO, shape: Shape) -> None:
        self._sink = sink
        self._shape = shape
        self._widths: list[int] = []
        kinds = [shape.schema.field(place).type for place in range(len(shape.names))]
        self._is_number = [_is_number(kind) for kind in kinds]

    def write(self, batch: Any) -> None:
        columns = shown_columns(self._shape, batch)
        if not self._widths:
            self._begin(columns)
        self._lines(columns)

    def finish(self) -> None:
        if not self._widths:
            self._begin([[] for _ in self._shape.names])

    def _begin(self, columns: list[list[str]]) -> None:
        names = [shown(name) for name in self._shape.names]
        for name, values in zip(names, columns, strict=True):
            longest = max(map(len, values[:ROWS_MEASURED]), default=0)
            self._widths.append(max(min(longest, WIDTH_MAX), len(name)))
        self._lines([[name] for name in names])

    def _lines(self, columns: list[list[str]]) -> None:
        cells = [
            [text.rjust(width) if is_number else text.ljust(width) for text in texts]
            for texts, width, is_number in zip(columns, self._widths, self._is_number, strict=True)
        ]
        lines = ["  ".join(row).rstrip() + "\n" for row in zip(*cells, strict=True)]
        self._sink.write("".join(lines).encode())


def _is_number(kind: Any) -> bool:
    types = pyarrow.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
