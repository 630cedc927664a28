"""Read Arrow IPC streams of clients, without trust in the sizes that a stream claims to have.

Owns: the bound on the size of a stream in memory. A compressed buffer of a few bytes may claim to
be as long as all memory. So the claim of each buffer is read before the buffer is expanded. The
claims are in the stream's own description, a FlatBuffers table (`Message.fbs` of Arrow) that
pyarrow has verified. `ingest` checks whether the columns fit a table.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from dodona_wire.errors import InvalidRequest, LimitExceeded, SchemaViolation

STREAM_BYTES_MAX: Final = 256 << 20
"""The most bytes of all buffers of a stream, after they are expanded."""
STREAM_ROWS_MAX: Final = 4 << 20

_HEADER: Final = 2
"""The place of the record batch in a message's table."""
_BUFFERS: Final = 2
"""The place of the buffers in a record batch's table."""
_COMPRESSION: Final = 3


def names_of(stream: Any) -> list[str]:
    """Return the names of a stream's columns. Raises InvalidRequest if it is not a stream."""
    with _refused():
        return list(_schema_of(next(_messages(stream))).names)


def batches_of(stream: Any, expected: pa.Schema) -> list[pa.RecordBatch]:
    """Return the record batches of a stream that has exactly these columns, in this order.

    Raises InvalidRequest if it is not a stream, SchemaViolation if its columns differ, and
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
                raise LimitExceeded(f"the batch has more than {STREAM_BYTES_MAX} bytes. Split it")
            batch = pa.ipc.read_record_batch(message, expected)
            rows_left -= batch.num_rows
            if rows_left < 0:
                raise LimitExceeded(f"the batch has more than {STREAM_ROWS_MAX} rows. Split it")
            batch.validate(full=True)
            batches.append(batch)
    return batches


@contextmanager
def _refused() -> Iterator[None]:
    """Raise InvalidRequest for data that is not a stream: it is the caller's mistake."""
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
    is_native = found.equals(pa.schema(list(found)))  # otherwise its numbers are big-endian
    if found.names != expected.names or found.types != expected.types or not is_native:
        raise SchemaViolation(f"the batch has {found}, the table has {expected}")


def _check_type(message: pa.ipc.Message, expected: str) -> None:
    """Raise InvalidRequest if a message has another type. pyarrow would read it as the expected
    type, and crash."""
    if message.type != expected:
        raise InvalidRequest(f"not an Arrow IPC stream: a {message.type}, not a {expected}")


def _messages(stream: Any) -> Iterator[pa.ipc.Message]:
    yield from pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))


def _expanded_bytes(message: pa.ipc.Message) -> int:
    """Return the bytes of a record batch's buffers after they are expanded."""
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
    """Return the place to which the offset here points."""
    (offset,) = struct.unpack_from("<I", data, at)
    return at + int(offset)


def _field(data: memoryview, table: int, place: int) -> int:
    """Return where a table has this field, or 0 if the table leaves it out."""
    (back,) = struct.unpack_from("<i", data, table)
    (size_bytes,) = struct.unpack_from("<H", data, table - back)
    entry = 4 + 2 * place
    if entry >= size_bytes:
        return 0
    (offset,) = struct.unpack_from("<H", data, table - back + entry)
    return table + int(offset) if offset else 0
