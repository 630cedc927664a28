"""Read Parquet and Arrow's IPC, files or streams, as parts.

Owns: which of Arrow's two formats a file has, and the errors of damaged files. Columns keep the
types of the file. `dodona._core.writing.bulk` decides whether these fit a table. Columns of type
any have MessagePack.
"""

import io
from collections.abc import Iterator
from typing import Any, Final

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

from dodona_local.files.parts import BatchPart, Want, regrouped
from dodona_wire.errors import InvalidRequest

FILE_MAGIC: Final = b"ARROW1"
BROKEN: Final = (pyarrow.ArrowException, OSError, ValueError)
"""The errors of Arrow for content that it can't read. Names that are no text raise ValueError."""


def open_parquet(stream: io.BufferedReader, want: Want) -> tuple[Iterator[BatchPart], int]:
    """Return the parts, and the number of rows. This call and the parts raise InvalidRequest,
    SchemaViolation."""
    try:
        file = pyarrow.parquet.ParquetFile(stream)
        names = file.schema_arrow.names
    except BROKEN as error:
        raise InvalidRequest(f"not Parquet: {error}") from error
    want.check_names(names)
    batches = file.iter_batches(batch_size=want.rows_per_part)
    return _parts(batches, want, "Parquet"), file.metadata.num_rows


def open_arrow(stream: io.BufferedReader, want: Want) -> Iterator[BatchPart]:
    """Return the parts. This call and the parts raise InvalidRequest, SchemaViolation."""
    schema, batches = _opened(stream)
    want.check_names(schema.names)
    return _parts(batches, want, "Arrow's IPC format")


def _opened(stream: io.BufferedReader) -> tuple[Any, Iterator[Any]]:
    """Return the schema and the batches of Arrow's IPC, a file or a stream."""
    try:
        if stream.peek(len(FILE_MAGIC)).startswith(FILE_MAGIC):
            if not stream.seekable():
                raise InvalidRequest(
                    "an Arrow file can't be read from a pipe: name the file, or send a stream"
                )
            file = pyarrow.ipc.open_file(stream)
            schema, batches = file.schema, map(file.get_batch, range(file.num_record_batches))
        else:
            reader = pyarrow.ipc.open_stream(stream)
            schema, batches = reader.schema, iter(reader)
        _ = schema.names  # names that are no text raise ValueError
    except BROKEN as error:
        raise InvalidRequest(f"not Arrow's IPC format: {error}") from error
    return schema, batches


def schema_of_stream(stream: io.BufferedReader, *, is_parquet: bool) -> Any:
    """Return the `pyarrow.Schema` of a file, without its rows. Raises InvalidRequest."""
    if not is_parquet:
        return _opened(stream)[0]
    try:
        return pyarrow.parquet.ParquetFile(stream).schema_arrow
    except BROKEN as error:
        raise InvalidRequest(f"not Parquet: {error}") from error


def _parts(batches: Iterator[Any], want: Want, name: str) -> Iterator[BatchPart]:
    row_count = 0
    for batch in regrouped(_sound(batches, name), want.rows_per_part):
        yield BatchPart(want, row_count, batch)
        row_count += batch.num_rows


def _sound(batches: Iterator[Any], name: str) -> Iterator[Any]:
    row_count = 0
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                return
            batch.validate(full=True)
        except BROKEN as error:
            raise InvalidRequest(f"not {name}: {error}", row=row_count + 1) from error
        yield batch
        row_count += batch.num_rows
