"""Hold an open chunk: its index, and each block from the first time that it is needed.

Owns: the rule that no byte of a block is used before its checksum was compared, once in the life of
a process. `view` says what a tablet sees of the chunk. Several threads may read one chunk. If two
of them open a block at the same time, it is opened twice, which does no harm.
"""

import zlib
from typing import Any

import pyarrow as pa

from dodona_tablets.core.rows.chunks.block import Block
from dodona_tablets.core.rows.chunks.bloom import words_of
from dodona_tablets.core.rows.chunks.index import decode_index
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.layout import chunk_schema
from dodona_wire.errors import DataCorrupted
from dodona_wire.rows.schema import TableSchema


class Chunk:
    """A chunk over two buffers, which are bytes or mapped files. The buffers must not change."""

    def __init__(self, info: ChunkInfo, data: Any, raw_index: Any, path: str = "") -> None:
        """Open a chunk. `path` says in errors where the chunk is. Raises DataCorrupted if the
        buffers are not the chunk's complete file and index."""
        self.path = path or f"chunk {info.number}"
        self.info = info
        self.index, checksum = decode_index(raw_index, self.path)
        if checksum != info.index_crc32:
            raise self.damage("the index belongs to another chunk")
        if len(data) != info.size_bytes:
            text = f"the file has {len(data)} bytes, not {info.size_bytes}"
            raise self.damage(text)
        self.data = memoryview(data)
        self.schema = TableSchema(self.index.columns)
        """The schema of the table when the chunk was written."""
        self.lowers = [it.lower for it in self.index.blocks]
        self.uppers = [it.upper for it in self.index.blocks]
        self.blooms = [words_of(it.bloom) for it in self.index.blocks]
        self._buffer = pa.py_buffer(data)
        self._arrow_schema = chunk_schema(self.schema, self.index.layout)
        self._blocks: list[Block | None] = [None] * len(self.index.blocks)

    @property
    def has_specials(self) -> bool:
        """Whether any version may have changes of aggregates or shared locks."""
        return self.index.layout == "special"

    def block(self, place: int) -> Block:
        """Return a verified block. Raises DataCorrupted with the place of the damage."""
        block = self._blocks[place]
        if block is None:
            block = self._blocks[place] = self._open(place)
        return block

    def _open(self, place: int) -> Block:
        info = self.index.blocks[place]
        end = info.offset + info.size_bytes
        if zlib.crc32(self.data[info.offset : end]) != info.crc32:
            raise self.block_damage(place)
        message = self._buffer.slice(info.offset, info.size_bytes)
        return Block(pa.ipc.read_record_batch(message, self._arrow_schema), info.key_count)

    def block_damage(self, place: int) -> DataCorrupted:
        """Return the error that names a damaged block."""
        info = self.index.blocks[place]
        about = {"offset_bytes": info.offset, "size_bytes": info.size_bytes}
        return self.damage("a block fails its checksum", block=place, **about)

    def damage(self, text: str, **place: int) -> DataCorrupted:
        """Return the error that names the damage and its place."""
        text = f"{text}: the chunk is damaged"
        return DataCorrupted(text, path=self.path, chunk=self.info.number, **place)
