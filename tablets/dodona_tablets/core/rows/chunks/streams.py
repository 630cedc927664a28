"""Arrow IPC streams from strangers, read without trusting what they say of their own size.

Owns: the bound on what a stream may come to in memory. A compressed buffer of a few bytes may
claim to be as long as memory is. What each claims is read from the stream's own description, a
FlatBuffers table (Arrow's `Message.fbs`) that pyarrow has verified, before anything is expanded.
Whether the columns fit a table is `ingest`'s.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from dodona_wire.errors import InvalidRequest, LimitExceeded, SchemaViolation

STREAM_BYTES_MAX: Final = 256 << 20
"""What all buffers of a stream may come to."""
STREAM_ROWS_MAX: Final = 4 << 20

_HEADER: Final = 2
"""Place of the record batch in a message's table."""
_BUFFERS: Final = 2
"""Place of the buffers in a record batch's table."""
_COMPRESSION: Final = 3


def names_of(stream: Any) -> list[str]:
    """The names of a stream's columns. Raises InvalidRequest if it is no stream."""
    with _refused():
        return list(_schema_of(next(_messages(stream))).names)


def batches_of(stream: Any, expected: pa.Schema) -> list[pa.RecordBatch]:
    """The record batches of a stream that has just these columns, in this order.

    Raises InvalidRequest if it is no stream, SchemaViolation if its columns are others,
    LimitExceeded if it has too many rows or bytes.
    """
    batches = []
    with _refused():
        messages = _messages(stream)
        _check_columns(_schema_of(next(messages)), expected)
        rows_left, bytes_left = STREAM_ROWS_MAX, STREAM_BYTES_MAX
        for message in messages:
            bytes_left -= _expanded_bytes(message)
            if bytes_left < 0:
                raise LimitExceeded(f"a batch has at most {STREAM_BYTES_MAX} bytes of data")
            batch = pa.ipc.read_record_batch(message, expected)
            rows_left -= batch.num_rows
            if rows_left < 0:
                raise LimitExceeded(f"a batch has at most {STREAM_ROWS_MAX} rows")
            batch.validate(full=True)
            batches.append(batch)
    return batches


@contextmanager
def _refused() -> Iterator[None]:
    """What is no stream is the caller's mistake."""
    try:
        yield
    except StopIteration:
        raise InvalidRequest("not an Arrow IPC stream: it is empty") from None
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise InvalidRequest(f"not an Arrow IPC stream: {error}") from error


def _schema_of(message: pa.ipc.Message) -> pa.Schema:
    _check_type(message, "schema")
    return pa.ipc.read_schema(message)


def _check_columns(found: pa.Schema, expected: pa.Schema) -> None:
    is_native = found.equals(pa.schema(list(found)))  # else its numbers are big end first
    if found.names != expected.names or found.types != expected.types or not is_native:
        raise SchemaViolation(f"the batch has {found}, the table has {expected}")


def _check_type(message: pa.ipc.Message, expected: str) -> None:
    """pyarrow would read any message as that which it is asked for, and crash."""
    if message.type != expected:
        raise InvalidRequest(f"not an Arrow IPC stream: a {message.type}, not a {expected}")


def _messages(stream: Any) -> Iterator[pa.ipc.Message]:
    yield from pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))


def _expanded_bytes(message: pa.ipc.Message) -> int:
    """What the buffers of a record batch come to once they are not compressed."""
    _check_type(message, "record batch")
    body = message.body
    metadata = memoryview(message.metadata)
    batch = _follow(metadata, _field(metadata, _follow(metadata, 0), _HEADER))
    if not _field(metadata, batch, _COMPRESSION):
        return int(body.size)
    first = _follow(metadata, _field(metadata, batch, _BUFFERS))
    (count,) = struct.unpack_from("<I", metadata, first)
    total_bytes = 0
    for offset, size_bytes in struct.iter_unpack("<qq", metadata[first + 4 :][: 16 * count]):
        if size_bytes:
            (expanded,) = struct.unpack_from("<q", body, offset)
            total_bytes += size_bytes if expanded < 0 else expanded
    return total_bytes


def _follow(data: memoryview, at: int) -> int:
    """The place that the offset here points to."""
    (offset,) = struct.unpack_from("<I", data, at)
    return at + int(offset)


def _field(data: memoryview, table: int, place: int) -> int:
    """Where a table has this field; 0 if it leaves it out."""
    (back,) = struct.unpack_from("<i", data, table)
    (size_bytes,) = struct.unpack_from("<H", data, table - back)
    entry = 4 + 2 * place
    if entry >= size_bytes:
        return 0
    (offset,) = struct.unpack_from("<H", data, table - back + entry)
    return table + int(offset) if offset else 0
