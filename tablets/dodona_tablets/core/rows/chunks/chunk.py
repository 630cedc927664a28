"""Hold an open chunk: its index, and each block from the first time that it is needed.

Owns: the rule that no byte of a block is used before its checksum was compared, once in the life of
a process. `view` says what a tablet sees of the chunk. Several threads may read one chunk. If two
of them open a block at the same time, it is opened twice, which does no harm.

The index of an open chunk is always there. Its rows may be *away*: then an object store has them,
and a read raises `ChunkAway`. One thread brings them and drops them, while no other reads.
"""

import zlib
from typing import Any, Final, Protocol
from weakref import ref

import pyarrow as pa

from dodona_tablets.core.rows.chunks.block import Block
from dodona_tablets.core.rows.chunks.bloom import words_of
from dodona_tablets.core.rows.chunks.index import decode_index
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.layout import chunk_schema
from dodona_wire.errors import DataCorrupted
from dodona_wire.rows.schema import TableSchema

KEEPERS_MIN: Final = 8


class ChunkAway(Exception):
    """The rows of a chunk are not on this machine. The code that catches it has them fetched, and
    begins the work again. No caller ever gets it."""

    def __init__(self, chunk: "Chunk", place: int) -> None:
        """Take the chunk, and the block that was needed."""
        super().__init__(f"chunk {chunk.info.number} is away")
        self.chunk = chunk
        self.place = place


class KeepsBlocks(Protocol):
    """An object that keeps blocks of a chunk."""

    def forget_blocks(self) -> None:
        """Keep no block any more."""
        ...


class Chunk:
    """A chunk over two buffers, which are bytes or mapped files. The buffers must not change."""

    def __init__(self, info: ChunkInfo, data: Any, raw_index: Any, path: str = "") -> None:
        """Open a chunk, without `data` one that is away. `path` says in errors where the chunk is.
        Raises DataCorrupted if the buffers are not the chunk's complete file and index."""
        self.path = path or f"chunk {info.number}"
        self.info = info
        self.index, checksum = decode_index(raw_index, self.path)
        if checksum != info.index_crc32:
            raise self.damage("the index belongs to another chunk")
        self.schema = TableSchema(self.index.columns)
        """The schema of the table when the chunk was written."""
        self.lowers = [it.lower for it in self.index.blocks]
        self.uppers = [it.upper for it in self.index.blocks]
        self.blooms = [words_of(it.bloom) for it in self.index.blocks]
        self._arrow_schema = chunk_schema(self.schema, self.index.layout)
        self._blocks: list[Block | None] = [None] * len(self.index.blocks)
        self._keepers: list[ref[KeepsBlocks]] = []
        self._keepers_max = KEEPERS_MIN
        """At how many notes the ones of objects that are gone are looked for."""
        self.is_used = False
        """Whether a view has read rows since this was last set to False."""
        self.is_away = data is None
        """Whether the rows are not on this machine."""
        self.data = memoryview(b"")
        self._buffer: pa.Buffer | None = None
        if data is not None:
            self.bring(data)

    def bring(self, data: Any) -> None:
        """Take the bytes of the file. Raises DataCorrupted if they are too few or too many."""
        if len(data) != self.info.size_bytes:
            text = f"the file has {len(data)} bytes, not {self.info.size_bytes}"
            raise self.damage(text)
        self.data = memoryview(data)
        self._buffer = pa.py_buffer(data)
        self.is_away = False

    def let_go(self) -> Any:
        """Keep no reference to the bytes of the file. Their map ends with the result, which takes
        some ms for much data: a thread may drop it. No other thread may read the chunk."""
        kept = self._buffer, self._blocks
        self.is_away = True
        self.data, self._buffer = memoryview(b""), None
        self._blocks = [None] * len(self._blocks)
        for it in self._keepers:
            if (keeper := it()) is not None:
                keeper.forget_blocks()
        return kept

    def add_keeper(self, keeper: KeepsBlocks) -> None:
        """Note an object that keeps blocks of this chunk. The note keeps no object alive."""
        if len(self._keepers) >= self._keepers_max:
            self._keepers = [it for it in self._keepers if it() is not None]
            self._keepers_max = max(KEEPERS_MIN, 2 * len(self._keepers))
        self._keepers.append(ref(keeper))

    @property
    def has_specials(self) -> bool:
        """Whether any version may have changes of aggregates or shared locks."""
        return self.index.layout == "special"

    def block(self, place: int) -> Block:
        """Return a verified block. Raises ChunkAway, and DataCorrupted with the place of the
        damage."""
        block = self._blocks[place]
        if block is None:
            block = self._blocks[place] = self._open(place)
        return block

    def _open(self, place: int) -> Block:
        if self._buffer is None:
            raise ChunkAway(self, place)
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
