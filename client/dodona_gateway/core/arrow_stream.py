"""Read an Arrow IPC stream that comes in pieces: bytes in, record batches out. Pure.

Owns: where messages begin and end (Arrow's "encapsulated message format"), and their limits. The
reader looks at a message only when the whole message is there, and pyarrow reads nothing else. So a
length that is only announced takes no memory.

The reader refuses content that could be far longer than its bytes. This means compressed messages,
dictionaries, runs, and views that show one text many times. It also means more rows than a batch
has bytes for. The reader checks every batch fully, since a wrong offset would end the process, and
not only the request. pyarrow is imported on first use.
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
_DICTIONARIES: Final = "The Arrow stream has dictionaries. Send the columns as plain values."
_RUNS: Final = "The Arrow stream has run-end encoded columns. Send them as plain values."
_VIEW_BYTES: Final = 16
END: Final = CONTINUATION.to_bytes(4, "little") + bytes(4)


class ArrowStream:
    """The reader of one stream. No bytes may follow after `is_over`."""

    def __init__(self, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._message_bytes_max = message_bytes_max
        self._rest = bytearray()
        self._needed_bytes = PREFIX_BYTES
        self._schema: Any = None
        self.is_over = False

    def feed(self, part: bytes) -> list[Any]:
        """Return the `pyarrow.RecordBatch`es that are complete with this part. Raises
        InvalidRequest, LimitExceeded."""
        self._rest += part
        batches: list[Any] = []
        while len(self._rest) >= self._needed_bytes and not self.is_over:
            self._needed_bytes = self._message_size()
            if len(self._rest) >= self._needed_bytes:
                message = self._cut(self._needed_bytes)
                self._needed_bytes = PREFIX_BYTES
                batches += self._take(message)
        if self.is_over and self._rest:
            text = "The body has more bytes after the end of the Arrow stream. Send one stream."
            raise InvalidRequest(text)
        return batches

    def finish(self) -> None:
        """Check that the stream came whole. Its end mark may be missing, but not a part of a
        message. Raises InvalidRequest."""
        if self._rest or self._schema is None:
            raise InvalidRequest("The Arrow stream is cut or empty. Send it whole.")

    def empty_batch(self) -> Any:
        """Return a batch without rows. Call this only after `finish`."""
        import pyarrow

        arrays = [pyarrow.nulls(0, kind) for kind in self._schema.types]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _cut(self, size_bytes: int) -> bytearray:
        """Remove the first bytes from the rest, and return them. A message that is the whole rest
        is not copied."""
        if size_bytes == len(self._rest):
            message, self._rest = self._rest, bytearray()
            return message
        message = self._rest[:size_bytes]
        del self._rest[:size_bytes]
        return message

    def _message_size(self) -> int:
        """Return the size of the first message of the rest, as far as it is known yet."""
        mark = int.from_bytes(self._rest[:4], "little")
        metadata_bytes = int.from_bytes(self._rest[4:8], "little")
        if mark != CONTINUATION:
            text = "The body is not an Arrow IPC stream. Write it with Arrow 0.15 or later."
            raise InvalidRequest(text)
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
            text = "The Arrow stream does not begin with its schema, or has two. Send one, first."
            raise InvalidRequest(text)
        if kind == _SCHEMA:
            self._schema = _read_schema(message)
            return []
        if kind == _DICTIONARY:
            raise InvalidRequest(_DICTIONARIES)
        if kind != _BATCH:
            text = f"The Arrow stream has a message of kind {kind}."
            raise InvalidRequest(f"{text} Send only a schema and record batches.")
        if metadata.is_compressed:
            raise InvalidRequest("The Arrow stream is compressed. Send it without compression.")
        return [_read_batch(message, self._schema)]


class _Metadata:
    """The few fields that the reader needs of a message's flatbuffer. Raises InvalidRequest."""

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
            raise InvalidRequest("An Arrow message has no header. Write it with an Arrow library.")
        return self._field(at + self._number(at, 4), _COMPRESSION_FIELD) is not None

    def _field(self, table: int, number: int) -> int | None:
        """Return the place of a table's field, or None if the field is not set."""
        layout = table - self._number(table, 4, is_signed=True)
        entry = 4 + 2 * number
        if entry + 2 > self._number(layout, 2):
            return None
        offset = self._number(layout + entry, 2)
        return table + offset if offset else None

    def _number(self, at: int, size_bytes: int, *, is_signed: bool = False) -> int:
        if not 0 <= at <= len(self._content) - size_bytes:
            text = "The metadata of an Arrow message is damaged. Write it with an Arrow library."
            raise InvalidRequest(text)
        return int.from_bytes(self._content[at : at + size_bytes], "little", signed=is_signed)


def _read_schema(message: bytearray) -> Any:
    import pyarrow.ipc

    try:
        schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(message))
        fields = [*zip(schema.names, schema.types, strict=True)]  # a name may be no UTF-8
        coded = [name for name, kind in fields if pyarrow.types.is_dictionary(kind)]
        runs = [name for name, kind in fields if pyarrow.types.is_run_end_encoded(kind)]
    except (pyarrow.ArrowException, OSError, ValueError, EOFError) as error:
        raise InvalidRequest(f"The schema of the Arrow stream can't be read: {error}") from error
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
            text = f"A batch of an Arrow stream has at most {BATCH_ROWS_MAX} rows."
            raise LimitExceeded(f"{text} Send smaller batches.", rows_max=BATCH_ROWS_MAX)
        batch.validate(full=True)
        _check_views(batch, len(message))
    except (pyarrow.ArrowException, OSError, ValueError, EOFError) as error:
        raise InvalidRequest(f"A batch of the Arrow stream can't be read: {error}") from error
    return batch


def _check_views(batch: Any, size_bytes: int) -> None:
    """Check that the views of a column are together no longer than the message: they may overlap.
    Raises LimitExceeded."""
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
                text = "The views of a column are longer than their message. Send plain values."
                raise LimitExceeded(text, column=name, bytes_max=size_bytes)


def _too_long(bytes_max: int) -> LimitExceeded:
    text = f"A message of an Arrow stream has at most {bytes_max} bytes. Send smaller batches."
    return LimitExceeded(text, bytes_max=bytes_max)
