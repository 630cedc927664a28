"""An Arrow IPC stream that comes in pieces: bytes in, record batches out. Pure.

Owns: where its messages begin and end (Arrow's "encapsulated message format"), and their bounds. A
message is looked at only once it is there whole, and pyarrow reads nothing else, so that what a
length promises is never made room for. What could be far longer than what came of it is refused:
compressed messages, dictionaries, runs, views that show one text many times, and more rows than a
batch has bytes for. Batches are checked
whole: an offset that leads astray would end the process, and not only the request. pyarrow is
imported on first use.
"""

from typing import Any, Final

from dodona_wire.errors import InvalidRequest, LimitExceeded

CONTINUATION: Final = 0xFFFF_FFFF
PREFIX_BYTES: Final = 8
MESSAGE_BYTES_MAX: Final = 64 << 20
METADATA_BYTES_MAX: Final = 4 << 20
BATCH_ROWS_MAX: Final = 4 << 20
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_HEADER_TYPE_FIELD, _HEADER_FIELD, _BODY_LENGTH_FIELD = 1, 2, 3
_COMPRESSION_FIELD: Final = 3
_DICTIONARIES: Final = "the Arrow stream has dictionaries: send the columns as plain values"
_RUNS: Final = "the Arrow stream has columns of runs: send them as plain values"
_VIEW_BYTES: Final = 16
END: Final = CONTINUATION.to_bytes(4, "little") + bytes(4)


class ArrowStream:
    """One stream. After `is_over` nothing may follow."""

    def __init__(self, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._message_bytes_max = message_bytes_max
        self._rest = bytearray()
        self._needed_bytes = PREFIX_BYTES
        self._schema: Any = None
        self.is_over = False

    def feed(self, part: bytes) -> list[Any]:
        """The `pyarrow.RecordBatch`es that are whole with this part. Raises InvalidRequest,
        LimitExceeded."""
        self._rest += part
        batches: list[Any] = []
        while len(self._rest) >= self._needed_bytes and not self.is_over:
            self._needed_bytes = self._message_size()
            if len(self._rest) >= self._needed_bytes:
                message = self._cut(self._needed_bytes)
                self._needed_bytes = PREFIX_BYTES
                batches += self._take(message)
        if self.is_over and self._rest:
            raise InvalidRequest("something follows the end of the Arrow stream")
        return batches

    def finish(self) -> None:
        """That the stream came whole: its end mark may be missing, the end of a message not.
        Raises InvalidRequest."""
        if self._rest or self._schema is None:
            raise InvalidRequest("the Arrow stream ends within a message, or has none")

    def empty_batch(self) -> Any:
        """A batch of no rows. Only after `finish`."""
        import pyarrow

        arrays = [pyarrow.nulls(0, kind) for kind in self._schema.types]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _cut(self, size_bytes: int) -> bytearray:
        """The first bytes of the rest, which they leave. A long message is not copied."""
        if size_bytes == len(self._rest):
            message, self._rest = self._rest, bytearray()
            return message
        message = self._rest[:size_bytes]
        del self._rest[:size_bytes]
        return message

    def _message_size(self) -> int:
        """Of the one that the rest begins with, as far as that is known."""
        mark = int.from_bytes(self._rest[:4], "little")
        metadata_bytes = int.from_bytes(self._rest[4:8], "little")
        if mark != CONTINUATION:
            raise InvalidRequest("this is no Arrow IPC stream (of Arrow 0.15 or later)")
        if metadata_bytes > METADATA_BYTES_MAX:
            raise _too_long(METADATA_BYTES_MAX)
        end = PREFIX_BYTES + metadata_bytes
        if metadata_bytes == 0 or len(self._rest) < end:
            return end
        body_bytes = _Metadata(bytes(self._rest[PREFIX_BYTES:end])).body_bytes
        if not 0 <= body_bytes <= self._message_bytes_max:
            raise _too_long(self._message_bytes_max)
        return end + body_bytes

    def _take(self, message: bytearray) -> list[Any]:
        if len(message) == PREFIX_BYTES:
            self.is_over = True
            return []
        metadata_bytes = int.from_bytes(message[4:8], "little")
        metadata = _Metadata(bytes(message[PREFIX_BYTES : PREFIX_BYTES + metadata_bytes]))
        kind = metadata.kind
        if (kind == _SCHEMA) != (self._schema is None):
            raise InvalidRequest("an Arrow stream begins with its schema, and has one")
        if kind == _SCHEMA:
            self._schema = _read_schema(message)
            return []
        if kind == _DICTIONARY:
            raise InvalidRequest(_DICTIONARIES)
        if kind != _BATCH:
            raise InvalidRequest(f"an Arrow message of kind {kind} is nothing to be written")
        if metadata.is_compressed:
            raise InvalidRequest("the Arrow stream is compressed: send it as it is")
        return [_read_batch(message, self._schema)]


class _Metadata:
    """The few fields of a message's flatbuffer that are needed. Raises InvalidRequest."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._message = self._number(0, 4)

    @property
    def kind(self) -> int:
        at = self._field(self._message, _HEADER_TYPE_FIELD)
        return 0 if at is None else self._number(at, 1)

    @property
    def body_bytes(self) -> int:
        at = self._field(self._message, _BODY_LENGTH_FIELD)
        return 0 if at is None else self._number(at, 8, is_signed=True)

    @property
    def is_compressed(self) -> bool:
        at = self._field(self._message, _HEADER_FIELD)
        if at is None:
            raise InvalidRequest("an Arrow message without a header")
        return self._field(at + self._number(at, 4), _COMPRESSION_FIELD) is not None

    def _field(self, table: int, number: int) -> int | None:
        """Where a table's field is, None if it is not set."""
        layout = table - self._number(table, 4, is_signed=True)
        entry = 4 + 2 * number
        if entry + 2 > self._number(layout, 2):
            return None
        offset = self._number(layout + entry, 2)
        return table + offset if offset else None

    def _number(self, at: int, size_bytes: int, *, is_signed: bool = False) -> int:
        if not 0 <= at <= len(self._content) - size_bytes:
            raise InvalidRequest("an Arrow message's metadata is damaged")
        return int.from_bytes(self._content[at : at + size_bytes], "little", signed=is_signed)


def _read_schema(message: bytearray) -> Any:
    import pyarrow.ipc

    try:
        schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(message))
        fields = [*zip(schema.names, schema.types, strict=True)]  # names may be no text
        coded = [name for name, kind in fields if pyarrow.types.is_dictionary(kind)]
        runs = [name for name, kind in fields if pyarrow.types.is_run_end_encoded(kind)]
    except (pyarrow.ArrowException, OSError, ValueError, EOFError) as error:
        raise InvalidRequest(f"the schema of the Arrow stream can't be read: {error}") from error
    if coded:
        raise InvalidRequest(_DICTIONARIES, columns=coded)
    if runs:
        raise InvalidRequest(_RUNS, columns=runs)
    return schema


def _read_batch(message: bytearray, schema: Any) -> Any:
    import pyarrow.ipc

    try:
        batch = pyarrow.ipc.read_record_batch(pyarrow.py_buffer(message), schema)
        if batch.num_rows > BATCH_ROWS_MAX:
            text = f"a batch of an Arrow stream has at most {BATCH_ROWS_MAX} rows"
            raise LimitExceeded(f"{text}: send smaller ones", rows_max=BATCH_ROWS_MAX)
        batch.validate(full=True)
        _check_views(batch, len(message))
    except (pyarrow.ArrowException, OSError, ValueError, EOFError) as error:
        raise InvalidRequest(f"a batch of the Arrow stream can't be read: {error}") from error
    return batch


def _check_views(batch: Any, size_bytes: int) -> None:
    """Views of a text may overlap: together they are not to be longer than what came."""
    import numpy
    import pyarrow

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if isinstance(column, pyarrow.ExtensionArray):
            column = column.storage
        kind = column.type
        if pyarrow.types.is_string_view(kind) or pyarrow.types.is_binary_view(kind):
            views = numpy.frombuffer(column.buffers()[1], "<i4").reshape(-1, _VIEW_BYTES // 4)
            first = column.offset
            if int(views[first : first + len(column), 0].sum(dtype="i8")) > size_bytes:
                text = "views in an Arrow stream show more than it has: send plain values"
                raise LimitExceeded(text, column=name, bytes_max=size_bytes)


def _too_long(bytes_max: int) -> LimitExceeded:
    text = f"a message of an Arrow stream has at most {bytes_max} bytes: send smaller batches"
    return LimitExceeded(text, bytes_max=bytes_max)
