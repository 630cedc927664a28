"""What a cell knows of a chunk without opening it.

Owns: the description that the log keeps of each chunk, and of the part of one that a tablet has.
Statistics here are for choosing chunks to read and to compact; nothing here has rows.
"""

import msgspec

from dodona_wire.types import KEY_MAX, KEY_MIN, NULL_TIMESTAMP, Key, Timestamp


class ChunkInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One chunk, as it was when it was written: it never changes."""

    number: int
    """Names its two files within the cell."""
    row_count: int
    """Versions in it."""
    size_bytes: int
    """Of the Arrow file."""
    lower: Key
    """The first key in it, as the file has it: shorter than today's if key columns came later."""
    upper: Key
    """The last key in it, which belongs to it."""
    min_timestamp: Timestamp
    """Of its versions; NULL_TIMESTAMP if all have the stamp that they get when it is attached."""
    max_timestamp: Timestamp
    """As `min_timestamp`."""
    garbage_count: int
    """Versions that are deletions or not the newest of their key: what compaction may save."""
    index_crc32: int
    """Of the index: which index belongs to it."""

    @property
    def has_timestamps(self) -> bool:
        """Whether its versions have timestamps of their own."""
        return self.max_timestamp != NULL_TIMESTAMP


class AttachedChunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A chunk as a part of one tablet. Several tablets may have parts of one chunk."""

    info: ChunkInfo
    stamp: Timestamp = NULL_TIMESTAMP
    """Of all its versions, if they have none of their own."""
    lower: Key = KEY_MIN
    upper: Key = KEY_MAX
    """The tablet has what is in lower <= key < upper."""
