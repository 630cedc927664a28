"""Show a chunk as one tablet sees it: the tablet's part, in the columns that the table has today.

Owns: the lookup of a row's versions, and the walk over blocks in key order. Rows without timestamps
have the timestamp with which their chunk was attached. A view holds no rows itself. For each block
that was read, it keeps a few functions over the block's buffers.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from dodona_tablets.core.rows.chunks.block import Block, first_row_at
from dodona_tablets.core.rows.chunks.bloom import may_have
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.chunks.mapping import Mapping
from dodona_tablets.core.rows.chunks.reading import VersionReader
from dodona_tablets.core.rows.version import ALL_VERSIONS, Version
from dodona_wire.rows.keys import successor
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import DELETE_MASK, NULL_TIMESTAMP, Key, Timestamp


class Extent(NamedTuple):
    """A range `lower ≤ key < upper` with a part of a tablet's rows, none newer than
    `max_timestamp`."""

    lower: Key
    upper: Key
    max_timestamp: Timestamp


class ChunkView:
    """A view of one attached chunk of a tablet. Reading raises DataCorrupted where the chunk is
    damaged, and ChunkAway if its rows are not on this machine."""

    def __init__(self, chunk: Chunk, attached: AttachedChunk, schema: TableSchema) -> None:
        assert attached.info == chunk.info, "another chunk was opened than was attached"
        self.chunk = chunk
        self.attached = attached
        self.schema = schema
        self._mapping = Mapping(chunk.schema, schema, has_specials=chunk.has_specials)
        self._suffix = self._mapping.suffix
        self._has_timestamps = chunk.info.has_timestamps
        self._firsts = [Key(key + self._suffix) for key in chunk.lowers]
        self._lasts = [Key(key + self._suffix) for key in chunk.uppers]
        self.lower = max(attached.lower, self._firsts[0])
        """No key that the tablet has of the chunk is below."""
        self.upper = min(attached.upper, successor(self._lasts[-1]))
        """All keys that the tablet has of the chunk are below."""
        self.min_timestamp = chunk.info.min_timestamp or attached.stamp
        self.max_timestamp = chunk.info.max_timestamp or attached.stamp
        assert self.max_timestamp != NULL_TIMESTAMP, "a chunk without times needs a stamp"
        self.forget_blocks()
        chunk.add_keeper(self)

    def forget_blocks(self) -> None:
        """Keep no block any more."""
        self._opened: list[tuple[Block, VersionReader] | None] = [None] * len(self._firsts)

    @property
    def has_specials(self) -> bool:
        """Whether `batches` have the columns of the layout `special`."""
        return self.chunk.has_specials

    def may_have(self, keys: Iterable[Key]) -> bool:
        """Return whether a read of one of these keys would look at rows."""
        return any(self._may_have(key) for key in keys if self.lower <= key < self.upper)

    def _may_have(self, key: Key) -> bool:
        place = bisect_left(self._lasts, key)
        if self._firsts[place] > key or not key.endswith(self._suffix):
            return False
        return may_have(self.chunk.blooms[place], key[: len(key) - len(self._suffix)])

    def meets(self, lower: Key, upper: Key) -> bool:
        """Return whether a block has keys of `lower ≤ key < upper`."""
        return len(self._places(lower, upper)) > 0

    # One row

    def versions(
        self,
        key: Key,
        timestamp: Timestamp,
        wanted: int | None = None,
        since: Timestamp = NULL_TIMESTAMP,
        count_max: int = ALL_VERSIONS,
    ) -> list[Version]:
        """Return the versions of a row at or below a timestamp, newest first; none if the row is
        not here.

        `wanted` is the mask of the value columns that a read needs. With it, versions may be left
        out that the read cannot see. Those are older than a deletion, or older than plain values of
        all these columns. Versions at or below `since` are left out, and so are all but the newest
        `count_max`.
        """
        if not self.lower <= key < self.upper or timestamp < self.min_timestamp:
            return []
        place = bisect_left(self._lasts, key)
        if self._firsts[place] > key:
            return []
        if self._suffix:
            if not key.endswith(self._suffix):
                return []
            key = Key(key[: -len(self._suffix)])
        if not may_have(self.chunk.blooms[place], key):
            return []
        block, reader = self._opened[place] or self._open(place)
        self.chunk.is_used = True
        row = block.find(key)
        if row < 0:
            return []
        if block.is_alone(row) and since < reader.timestamps[row] <= timestamp:
            return [reader.version(row)]
        return self._versions_from(place, row, timestamp, wanted, since, count_max)

    def _open(self, place: int) -> tuple[Block, VersionReader]:
        block = self.chunk.block(place)
        mapping = self._mapping
        reader = VersionReader(
            block.batch,
            mapping.value_types,
            mapping.plans,
            stamp=self.attached.stamp,
            is_migrated=mapping.is_needed,
        )
        self._opened[place] = block, reader
        return block, reader

    def _versions_from(
        self,
        place: int,
        row: int,
        timestamp: Timestamp,
        wanted: int | None,
        since: Timestamp,
        count_max: int,
    ) -> list[Version]:
        """Return versions of the key that begins at this row, and that may go on in the next
        blocks."""
        found: list[Version] = []
        while True:
            block, reader = self._opened[place] or self._open(place)
            end = block.end_of(row)
            stamps = reader.timestamps
            for at in range(first_row_at(stamps, row, end, timestamp), end):
                if stamps[at] <= since or len(found) == count_max:
                    return found
                version = reader.version(at)
                found.append(version)
                if wanted is not None:
                    wanted &= _not_settled(version)
                    if not wanted:
                        return found
            if end < block.row_count or not self._goes_on(place):
                return found
            place, row = place + 1, 0

    def _goes_on(self, place: int) -> bool:
        """Return whether the last key of a block is the first one of the next."""
        return place + 1 < len(self._firsts) and self._firsts[place + 1] == self._lasts[place]

    # Ranges

    def extents(self) -> Iterator[Extent]:
        """Yield where the tablet's rows of this chunk are, block by block, from the index."""
        for place, info in enumerate(self.chunk.index.blocks):
            lower = max(self._firsts[place], self.lower)
            upper = min(successor(self._lasts[place]), self.upper)
            if lower < upper:
                yield Extent(lower, upper, info.max_timestamp or self.attached.stamp)

    def batches(
        self, lower: Key, upper: Key, since: Timestamp = NULL_TIMESTAMP
    ) -> Iterator[pa.RecordBatch]:
        """Yield the versions of `lower ≤ key < upper` that the tablet has, in order, block by
        block, in the layout of chunks with timestamps. Where the table's columns have not changed,
        blocks are slices of the file. Blocks with nothing above `since` are skipped."""
        for place in self._newer_places(lower, upper, since):
            block = self.chunk.block(place)
            self.chunk.is_used = True
            start, end = self._rows_within(block, place, lower, upper)
            if start < end:
                yield self._mapping.apply(self._marked(block.batch.slice(start, end - start)))

    def reach(self, lower: Key, upper: Key, since: Timestamp, row_count: int) -> Key:
        """Return a bound above `lower`. Below it are about `row_count` versions in blocks that have
        some above `since`. A reader looks through that many before other work gets its turn."""
        for place in self._newer_places(lower, upper, since):
            if row_count <= 0 and self._firsts[place] > lower:
                return self._firsts[place]
            row_count -= self.chunk.index.blocks[place].row_count
        return upper

    def count(self, lower: Key, upper: Key) -> int:
        """Return how many keys of `lower ≤ key < upper` are here. This is an estimate, since blocks
        are counted whole."""
        blocks = self.chunk.index.blocks
        return sum([blocks[place].key_count for place in self._places(lower, upper)])

    def sample(
        self, lower: Key, upper: Key, step: int, blocks_max: int
    ) -> Iterator[tuple[Key, int]]:
        """Yield some keys of `lower ≤ key < upper`, each with a number of keys. The number counts
        the key itself and the keys behind it, up to the next sample. Samples are the first keys of
        blocks. A block with more than four steps gives keys within it, too, unless the chunk is
        away. At most `blocks_max` blocks are opened for that."""
        for place in self._places(lower, upper):
            count = self.chunk.index.blocks[place].key_count
            if count <= 4 * step or blocks_max <= 0 or self.chunk.is_away:
                yield max(self._firsts[place], lower), count
                continue
            blocks_max -= 1
            block = self.chunk.block(place)
            start, end = self._rows_within(block, place, lower, upper)
            rows_per_key = block.row_count / count
            stride = max(int(step * rows_per_key), 1)
            for row in range(start, end, stride):
                key = Key(block.key_at(row) + self._suffix)
                yield key, -int(-min(stride, end - row) // rows_per_key)

    def _places(self, lower: Key, upper: Key) -> range:
        """Return the blocks that have keys of `lower ≤ key < upper`, and of the tablet's own
        range."""
        lower, upper = max(lower, self.lower), min(upper, self.upper)
        first = bisect_left(self._lasts, lower)
        return range(first, max(first, bisect_left(self._firsts, upper)))

    def _newer_places(self, lower: Key, upper: Key, since: Timestamp) -> Iterator[int]:
        """Yield those of these blocks that may have versions above a timestamp."""
        blocks = self.chunk.index.blocks
        for place in self._places(lower, upper):
            if (blocks[place].max_timestamp or self.max_timestamp) > since:
                yield place

    def _rows_within(self, block: Block, place: int, lower: Key, upper: Key) -> tuple[int, int]:
        """Return the bounds of a block's rows that have keys of `lower ≤ key < upper`."""
        lower, upper = max(lower, self.lower), min(upper, self.upper)
        start, end = 0, block.row_count
        if self._firsts[place] < lower:
            start = block.row_at_or_above(lower, self._suffix)
        if self._lasts[place] >= upper:
            end = block.row_at_or_above(upper, self._suffix)
        return start, end

    def _marked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with a timestamp and a mask for each row."""
        if self._has_timestamps:
            return batch
        columns, count = batch.columns, batch.num_rows
        has_masks = self.chunk.index.layout == "masked"
        masks = columns.pop() if has_masks else self._full_masks.slice(0, count)
        return pa.RecordBatch.from_arrays(
            [*columns, self._stamps.slice(0, count), masks], schema=self._mapping.file_schema
        )

    @cached_property
    def _stamps(self) -> pa.Array:
        return pa.repeat(pa.scalar(self.attached.stamp, pa.uint64()), self._block_rows_max)

    @cached_property
    def _full_masks(self) -> pa.Array:
        return self._mapping.full_masks(self._block_rows_max)

    @property
    def _block_rows_max(self) -> int:
        return max([it.row_count for it in self.chunk.index.blocks])


def _not_settled(version: Version) -> int:
    """Return the columns in which a reader that sees this version also sees older ones."""
    mask = version[1]
    if mask == DELETE_MASK:
        return 0
    return ~mask if len(version) == 4 else ~mask | version[4]
