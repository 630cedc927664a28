"""Chunks for tests: made of rows, in memory, and opened.

Owns: `Made`, a chunk's file and index as bytes, and short ways to make and open one. Blocks are as
small as a test wants.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN, NULL_TIMESTAMP, Key, Timestamp
from dodona_tablets.core.rows.chunks import writing
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import AttachedChunk, ChunkInfo
from dodona_tablets.core.rows.chunks.reading import versions_of
from dodona_tablets.core.rows.chunks.rows import batches_of_rows
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.version import Version

SCHEMA = TableSchema.parse(
    [
        Column("id", "int64", sort_order="ascending"),
        Column("a", "int64"),
        Column("b", "utf8", lock="b"),
        Column("sum", "double", aggregate="sum"),
    ]
)
FULL = SCHEMA.full_mask

Rows = Mapping[Key, list[Version]]
"""The versions of each row, newest first, without the older ones in each."""


class Made(NamedTuple):
    """A chunk as it is on disk."""

    info: ChunkInfo
    data: bytes
    raw_index: bytes

    def open(self) -> Chunk:
        return Chunk(self.info, self.data, self.raw_index)

    def view(
        self,
        schema: TableSchema = SCHEMA,
        stamp: Timestamp = NULL_TIMESTAMP,
        lower: Key = KEY_MIN,
        upper: Key = KEY_MAX,
    ) -> ChunkView:
        return ChunkView(self.open(), AttachedChunk(self.info, stamp, lower, upper), schema)


def made(batches: Iterable[pa.RecordBatch], schema: TableSchema = SCHEMA, number: int = 7) -> Made:
    """The chunk of these batches, which have rows."""
    sink = io.BytesIO()
    written = writing.write_chunk(number, schema, batches, sink)
    assert written is not None
    return Made(written[0], sink.getvalue(), written[1])


def made_of(
    rows: Rows,
    schema: TableSchema = SCHEMA,
    *,
    number: int = 7,
    has_specials: bool = False,
    slice_rows: int = 4096,
) -> Made:
    """The chunk of these rows."""
    batches = batches_of_rows(
        schema, items_of(rows), has_specials=has_specials, slice_rows=slice_rows
    )
    return made(batches, schema, number)


def batches_of(
    rows: Rows, slice_rows: int = 4096, *, has_specials: bool = False
) -> list[pa.RecordBatch]:
    """These rows in chunk layout."""
    items = items_of(rows)
    return list(batches_of_rows(SCHEMA, items, has_specials=has_specials, slice_rows=slice_rows))


def items_of(rows: Rows) -> Iterator[tuple[Key, Version]]:
    """In key order, as a store has them: the newest version with the older ones behind it."""
    for key in sorted(rows):
        chain: Version | None = None
        for version in reversed(rows[key]):
            chain = (*version[:3], chain, *version[4:])
        if chain is not None:
            yield key, chain


@contextmanager
def small_blocks(rows_max: int, bytes_max: int = 1 << 20) -> Iterator[None]:
    """Blocks of at most so many rows and bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "BLOCK_ROWS_MAX", rows_max)
        patch.setattr(writing, "BLOCK_BYTES_MAX", bytes_max)
        yield


def key(*values: object, schema: TableSchema = SCHEMA) -> Key:
    return schema.bound_of(values)


def at(timestamp: int, a: int | None = 0, b: str | None = "x", c: float | None = 0.5) -> Version:
    """A write of all columns."""
    return Timestamp(timestamp), FULL, (a, b, c), None


def deletion(timestamp: int) -> Version:
    return Timestamp(timestamp), 0, (), None


def rows_of_batches(
    schema: TableSchema, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[Key, Version]]:
    """The rows of batches that have timestamps: each key with its newest version, at the head of
    the older ones."""
    versions = (it for batch in batches for it in versions_of(schema, batch))
    for key, group in groupby(versions, key=itemgetter(0)):
        chain: Any = None
        for _, version in reversed(list(group)):
            chain = (*version[:3], chain, *version[4:])
        yield key, chain
