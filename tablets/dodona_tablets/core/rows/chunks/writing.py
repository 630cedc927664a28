"""Write sorted batches as a chunk: a file of blocks, and the index of these blocks.

Owns: where blocks begin and end. It also refuses to write rows that are out of order, since readers
of a chunk find rows by their order. It works on one block at a time, even for large chunks, and on
whole columns. All versions of a key are in one block, unless they do not fit in it.
"""

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final

import pyarrow as pa

from dodona_tablets.core.rows.chunks.index import BlockInfo, ChunkIndex, encode_index
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.layout import (
    BLOCK_BYTES_MAX,
    BLOCK_ROWS_MAX,
    KEY,
    chunk_schema,
    layout_of,
)
from dodona_tablets.core.rows.chunks.statistics import NO_ROW, measure
from dodona_wire.rows.schema import TableSchema

_MAGIC: Final = b"ARROW1\0\0"
"""The bytes at the beginning of a file, before the schema."""


def write_chunk(
    number: int, schema: TableSchema, batches: Iterable[pa.RecordBatch], sink: BinaryIO
) -> tuple[ChunkInfo, bytes] | None:
    """Write the Arrow file of a chunk, and return its description and its index.

    Batches have one layout and any size. Empty batches are allowed. Keys must rise, and timestamps
    must fall strictly within a key: AssertionError if not. Without rows, nothing is written, and
    the result is None.
    """
    writer = None
    for block in blocks_of(_laid_out(schema, batches)):
        if writer is None:
            writer = _Writer(number, schema, block.schema, sink)
        writer.add(block)
    return None if writer is None else writer.finish()


def _laid_out(schema: TableSchema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches with the exact schema of their layout. The first batch sets the layout."""
    expected = None
    for batch in batches:
        if expected is None:
            expected = chunk_schema(schema, layout_of(batch.schema.names))
        assert batch.schema.names == expected.names, "a batch has another layout"
        assert batch.schema.types == expected.types, "a batch has another layout"
        yield pa.RecordBatch.from_arrays(batch.columns, schema=expected)


class _Sink:
    """A file that counts the bytes that pass through it, and computes their checksum."""

    closed = False

    def __init__(self, file: BinaryIO, head_bytes: int) -> None:
        self._file = file
        self._head_bytes = head_bytes
        self._checksum = 0
        self.size_bytes = 0
        self.head_crc32 = 0
        """The checksum of all bytes before the first block. Arrow writes them together with that
        block."""

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._checksum = zlib.crc32(data, self._checksum)
        size_bytes = memoryview(data).nbytes
        self.size_bytes += size_bytes
        if self.size_bytes == self._head_bytes:
            self.head_crc32 = self.take_checksum()
        return size_bytes

    def flush(self) -> None:
        self._file.flush()

    def take_checksum(self) -> int:
        """Return the checksum of the bytes that were written since the last call."""
        taken, self._checksum = self._checksum, 0
        return taken


class _Writer:
    """A chunk's file while it is written."""

    def __init__(
        self, number: int, schema: TableSchema, arrow_schema: pa.Schema, sink: BinaryIO
    ) -> None:
        self._number = number
        self._schema = schema
        self._layout = layout_of(arrow_schema.names)
        self._end = len(_MAGIC) + arrow_schema.serialize().size
        self._sink = _Sink(sink, self._end)
        self._file = pa.ipc.new_file(self._sink, arrow_schema)
        self._blocks: list[BlockInfo] = []
        self._garbage_count = 0
        self._last = NO_ROW

    def add(self, block: pa.RecordBatch) -> None:
        measures = measure(block, self._last)
        if measures.misplaced_row is not None:
            row = len(self._blocks), measures.misplaced_row
            raise AssertionError(f"rows of a chunk are out of order at block and row {row}")
        assert measures.mask_max <= self._schema.full_mask, "a mask has strange columns"
        self._file.write_batch(block)
        offset, self._end = self._end, self._sink.size_bytes
        self._blocks.append(
            BlockInfo(
                offset,
                self._end - offset,
                self._sink.take_checksum(),
                block.num_rows,
                measures.key_count,
                measures.lower,
                measures.upper,
                measures.min_timestamp,
                measures.max_timestamp,
                memoryview(measures.bloom),
            )
        )
        self._garbage_count += measures.garbage_count
        self._last = measures.last

    def finish(self) -> tuple[ChunkInfo, bytes]:
        self._file.close()
        index = ChunkIndex(
            self._number,
            self._schema.columns,
            self._layout,
            self._sink.size_bytes,
            self._sink.head_crc32,
            self._sink.take_checksum(),
            self._garbage_count,
            tuple(self._blocks),
        )
        raw, checksum = encode_index(index)
        return index.describe(checksum), raw


# Where blocks begin and end


def blocks_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, gathered and cut into blocks. Rows are copied only to be gathered."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for piece in _pieces(batches):
        rows += piece.num_rows
        size_bytes += piece.nbytes
        if held and (rows > BLOCK_ROWS_MAX or size_bytes > BLOCK_BYTES_MAX):
            block = pa.concat_batches(held)
            if _is_half_full(block) and _key(block, -1) != _key(piece, 0):
                yield block
                held = []
            else:
                rest = pa.concat_batches([block, piece])
                while _fitting_rows(rest) < rest.num_rows:
                    end = _block_end(rest)
                    yield rest.slice(0, end)
                    rest = rest.slice(end)
                held, piece = [], rest
            rows, size_bytes = piece.num_rows, piece.nbytes
        held.append(piece)
    if held:
        yield pa.concat_batches(held)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches that are not larger than a block and not empty."""
    for rest in batches:
        while rest.num_rows:
            count = _fitting_rows(rest)
            yield rest.slice(0, count)
            rest = rest.slice(count)


def _fitting_rows(batch: pa.RecordBatch) -> int:
    """Return how many of the first rows fit into a block: at least one."""
    count: int = min(batch.num_rows, BLOCK_ROWS_MAX)
    if batch.slice(0, count).nbytes <= BLOCK_BYTES_MAX:
        return count
    counts = range(1, count)
    fitting = bisect_right(counts, BLOCK_BYTES_MAX, key=lambda it: batch.slice(0, it).nbytes)
    return max(1, fitting)


def _is_half_full(block: pa.RecordBatch) -> bool:
    return bool(2 * block.num_rows >= BLOCK_ROWS_MAX or 2 * block.nbytes >= BLOCK_BYTES_MAX)


def _block_end(batch: pa.RecordBatch) -> int:
    """Return where the first block of a batch ends, if the batch does not fit in one block. It ends
    before the first key that does not fit, unless that is the only key."""
    count = _fitting_rows(batch)
    key = _key(batch, count)
    if _key(batch, count - 1) != key:
        return count
    start = bisect_left(range(count), key, key=lambda row: _key(batch, row))
    return start or count


def _key(batch: pa.RecordBatch, row: int) -> bytes:
    key: bytes = batch.column(KEY)[row].as_py()
    return key
