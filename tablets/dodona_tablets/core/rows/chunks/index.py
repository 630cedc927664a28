"""Store the index of a chunk: its columns, and the place and the content of each block.

Owns: the bytes of the index file: a version, a checksum, and MessagePack. The whole index is read
when a chunk is opened. The chunk's description has the checksum of the index, and so says which
index belongs to it. Damage is DataCorrupted, never a wrong answer.
"""

import struct
import zlib
from typing import Any, Final

import msgspec

from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.layout import Layout, format_version
from dodona_wire.errors import DataCorrupted
from dodona_wire.rows.schema import Column
from dodona_wire.types import Key, Timestamp

VERSIONS: Final = (1, 2)
"""The versions of the format that can be read."""
_HEADER: Final = struct.Struct(">BI")


class BlockInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record batch of the file."""

    offset: int
    """The place of its first byte in the file."""
    size_bytes: int
    crc32: int
    row_count: int
    """The number of versions in it."""
    key_count: int
    """The number of different keys in it."""
    lower: Key
    upper: Key
    """`lower` is its first key, and `upper` its last key."""
    min_timestamp: Timestamp
    max_timestamp: Timestamp
    bloom: memoryview
    """The filter of its keys: see `bloom`."""


class ChunkIndex(msgspec.Struct, frozen=True, array_like=True):
    """Everything of a chunk except its rows. A block begins where the one before it ends."""

    number: int
    columns: tuple[Column, ...]
    """The columns of the table when the chunk was written."""
    layout: Layout
    size_bytes: int
    """The size of the Arrow file."""
    head_crc32: int
    """The checksum of the file before its first block."""
    tail_crc32: int
    """The checksum of the file after its last block."""
    garbage_count: int
    blocks: tuple[BlockInfo, ...]

    def describe(self, index_crc32: int) -> ChunkInfo:
        """Return the chunk's description, given the checksum of this index."""
        blocks = self.blocks
        return ChunkInfo(
            self.number,
            sum(it.row_count for it in blocks),
            self.size_bytes,
            blocks[0].lower,
            blocks[-1].upper,
            min(it.min_timestamp for it in blocks),
            max(it.max_timestamp for it in blocks),
            self.garbage_count,
            index_crc32,
        )


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(ChunkIndex)


def encode_index(index: ChunkIndex) -> tuple[bytes, int]:
    """Return the bytes of the index file, and the checksum that identifies it."""
    body = _encoder.encode(index)
    checksum = zlib.crc32(body)
    return _HEADER.pack(format_version(index.layout), checksum) + body, checksum


def decode_index(raw: Any, path: str) -> tuple[ChunkIndex, int]:
    """Return an index and its checksum, from a buffer that the index keeps. Raises DataCorrupted,
    which names `path`."""
    if len(raw) <= _HEADER.size:
        raise DataCorrupted("the index of a chunk is too short", path=path)
    version, checksum = _HEADER.unpack_from(raw)
    if version not in VERSIONS:
        raise DataCorrupted(f"version {version} of a chunk's index is not known here", path=path)
    body = memoryview(raw)[_HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise DataCorrupted("the index of a chunk fails its checksum", path=path)
    try:
        return _decoder.decode(body), checksum
    except msgspec.DecodeError as error:
        raise DataCorrupted(f"the index of a chunk does not decode: {error}", path=path) from error
