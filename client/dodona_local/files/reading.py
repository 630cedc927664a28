"""Open a file of rows, or standard input, for reading in any format.

Owns: the common part of all formats: the progress of the reading, and the errors of files that
can't be opened or read. Only one part is in memory at a time.
"""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from dodona_local.files.arrow_reading import open_arrow, open_parquet, schema_of_stream
from dodona_local.files.csv_reading import open_csv
from dodona_local.files.formats import FileFormat
from dodona_local.files.json_reading import open_json
from dodona_local.files.parts import FilePart, Want
from dodona_wire.errors import InvalidRequest

STDIN: Final = Path("-")
BUFFER_BYTES: Final = 1 << 20
TYPED: Final = (FileFormat.PARQUET, FileFormat.ARROW, FileFormat.ARROWS)
"""The formats that name the types of columns."""

Unit = Literal["rows", "bytes"]


class Source:
    """A source of rows. `total` is its size in `unit`s; None if that is not known."""

    def __init__(self, parts: Iterator[FilePart], unit: Unit, total: int | None, name: str) -> None:
        self.unit = unit
        self.total = total
        self._parts = parts
        self._name = name

    def parts(self) -> Iterator[tuple[FilePart, int]]:
        """Yield each part with its share of the total. Raises SchemaViolation, InvalidRequest."""
        while True:
            with _readable(self._name):
                part = next(self._parts, None)
            if part is None:
                return
            yield part, part.count if self.unit == "rows" else part.size_bytes


@contextmanager
def open_source(path: Path, form: FileFormat, want: Want) -> Iterator[Source]:
    """Open a file and yield its source. Raises InvalidRequest if the file can't be read or has
    another format, and SchemaViolation if it has columns that the table lacks."""
    if path == STDIN:
        given: Any = sys.stdin.buffer
        # A second buffer would wait until it is full.
        stream = given if isinstance(given, io.BufferedReader) else io.BufferedReader(given)
        with _readable("standard input"):
            source = source_of(stream, "standard input", None, form, want)
        yield source
        return
    with _readable(str(path)):
        raw: Any = path.open("rb", buffering=0)
        stream = io.BufferedReader(raw, BUFFER_BYTES)
    with stream:
        size_bytes = path.stat().st_size if path.is_file() else None
        with _readable(str(path)):
            source = source_of(stream, str(path), size_bytes, form, want)
        yield source


def schema_of_file(path: Path, form: FileFormat) -> Any:
    """Return the `pyarrow.Schema` of a file in Parquet or Arrow, for a table like it. Raises
    InvalidRequest for other formats, which name no types."""
    if form not in TYPED:
        raise InvalidRequest(
            f"a file in {form} names no types of columns: create the table with a schema first"
        )
    if path == STDIN:
        raise InvalidRequest("standard input is read only once: name a file, or create the table")
    with _readable(str(path)), path.open("rb") as stream:
        return schema_of_stream(stream, is_parquet=form is FileFormat.PARQUET)


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidRequest(f"{name} can't be read: {error.strerror or error}") from error


def source_of(
    stream: io.BufferedReader, name: str, size_bytes: int | None, form: FileFormat, want: Want
) -> Source:
    """Return the source of an open stream. Raises the errors of `open_source`."""
    if form is FileFormat.PARQUET:
        if size_bytes is None:
            raise InvalidRequest("Parquet can't be read from a pipe, only from a file")
        batches, row_count = open_parquet(stream, want)
        return Source(batches, "rows", row_count, name)
    if form in (FileFormat.ARROW, FileFormat.ARROWS):
        return Source(open_arrow(stream, want), "rows", None, name)
    parts: Iterator[FilePart] = (open_csv if form is FileFormat.CSV else open_json)(stream, want)
    unit: Unit = "rows" if size_bytes is None else "bytes"
    return Source(parts, unit, size_bytes, name)
