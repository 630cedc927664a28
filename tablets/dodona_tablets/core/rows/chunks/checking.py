"""Check whether a chunk is complete: all its bytes, and all that its index says of them.

Owns: the complete check, for operators. A read checks only the parts that it uses. If a chunk that
was written without a mistake passes the check, its answers are right. No check can tell whether the
values themselves are right.
"""

import zlib

import pyarrow as pa

from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.index import BlockInfo
from dodona_tablets.core.rows.chunks.statistics import NO_ROW, LastRow, Measures, measure


def check_sums(chunk: Chunk) -> None:
    """Compare the checksums of all bytes, without a look at the rows. Raises DataCorrupted, which
    names the place."""
    index, data = chunk.index, chunk.data
    end = index.blocks[0].offset
    if zlib.crc32(data[:end]) != index.head_crc32:
        raise chunk.damage("the file's head fails its checksum", offset_bytes=0)
    for place, info in enumerate(index.blocks):
        if info.offset != end:
            raise chunk.damage("a block does not follow the one before", block=place)
        end += info.size_bytes
        if zlib.crc32(data[info.offset : end]) != info.crc32:
            raise chunk.block_damage(place)
    if zlib.crc32(data[end:]) != index.tail_crc32:
        raise chunk.damage("the file's tail fails its checksum", offset_bytes=end)


def check_chunk(chunk: Chunk) -> None:
    """Read all of a chunk. Raises DataCorrupted, which names the place, if any part is wrong."""
    check_sums(chunk)
    index = chunk.index
    before, garbage_count = NO_ROW, 0
    for place, info in enumerate(index.blocks):
        batch = chunk.block(place).batch
        measures = _measures(chunk, place, batch, before)
        if not _agree(info, batch, measures):
            raise chunk.damage("the index is wrong about a block", block=place)
        before = measures.last
        garbage_count += measures.garbage_count
    if garbage_count != index.garbage_count or index.describe(chunk.info.index_crc32) != chunk.info:
        raise chunk.damage("the statistics are wrong")


def _measures(chunk: Chunk, place: int, batch: pa.RecordBatch, before: LastRow) -> Measures:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise chunk.damage(f"a block is no Arrow data: {error}", block=place) from error
    measures = measure(batch, before)
    if measures.misplaced_row is not None:
        raise chunk.damage("rows are out of order", block=place, row=measures.misplaced_row)
    return measures


def _agree(info: BlockInfo, batch: pa.RecordBatch, measures: Measures) -> bool:
    return batch.num_rows == info.row_count and (
        info.key_count,
        info.lower,
        info.upper,
        info.min_timestamp,
        info.max_timestamp,
        bytes(info.bloom),
    ) == (
        measures.key_count,
        measures.lower,
        measures.upper,
        measures.min_timestamp,
        measures.max_timestamp,
        measures.bloom,
    )
