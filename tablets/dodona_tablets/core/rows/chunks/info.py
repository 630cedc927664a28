"""Describe a chunk for a cell that has not opened it.

Owns: the description that the log keeps of each chunk, and of a tablet's part of a chunk. The
statistics here help to choose chunks to read and to compact. This module has no rows.
"""

import msgspec

from dodona_wire.types import KEY_MAX, KEY_MIN, NULL_TIMESTAMP, Key, Timestamp


class ChunkInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One chunk, as it was when it was written. It never changes."""

    number: int
    """The number that names its two files within the cell."""
    row_count: int
    """The number of versions in it."""
    size_bytes: int
    """The size of the Arrow file."""
    lower: Key
    """The first key in it, as the file has it. It is shorter than today's keys if key columns came
    later."""
    upper: Key
    """The last key in it, which belongs to it."""
    min_timestamp: Timestamp
    """The lowest timestamp of its versions. NULL_TIMESTAMP if all get one timestamp when it is
    attached."""
    max_timestamp: Timestamp
    """The highest timestamp of its versions, or NULL_TIMESTAMP as above."""
    garbage_count: int
    """The number of versions that are deletions, or not the newest of their key. Compaction may
    remove these."""
    index_crc32: int
    """The checksum of the index. It says which index belongs to the chunk."""

    @property
    def has_timestamps(self) -> bool:
        """Whether its versions have timestamps of their own."""
        return self.max_timestamp != NULL_TIMESTAMP


class AttachedChunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A chunk as a part of one tablet. Several tablets may have parts of one chunk."""

    info: ChunkInfo
    stamp: Timestamp = NULL_TIMESTAMP
    """The timestamp of all its versions, if they have none of their own."""
    lower: Key = KEY_MIN
    upper: Key = KEY_MAX
    """The tablet has the rows of `lower ≤ key < upper`."""
