"""Hold the stores of one tablet: all places that have versions of its rows.

Owns: the active store, which takes writes; the passive stores, which were rotated; and the chunks.
A flushed passive store stays as the *backing* of its chunk while a transaction could come that
conflicts with its rows. The reason: conflict checks look in memory only. Meanwhile, reads use the
store and not the chunk.

Invariants:
- A version that was applied is in exactly one store that is read.
- Stores overlap in time. Rows of one lock group may be committed after later rows of another group,
  on either side of a rotation. So a read merges by timestamp. It stops early only where the
  timestamps of the rest allow it.
- During replay, chunks are attached but not open. No read runs before all of them are open.

Knows nothing of transactions, and does not decide when to flush or compact.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter

from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.chunks.reading import versions_of
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.hot_rows import HotRows
from dodona_tablets.core.rows.migration import Migration
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.version import (
    ALL_VERSIONS,
    STEPS_MAX,
    LongHistory,
    Version,
    history,
    is_last,
    versions_between,
    versions_until,
)
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import KEY_MAX, KEY_MIN, MAX_TIMESTAMP, Key, Timestamp


class TabletChunk:
    """A chunk of a tablet, and the store that it came from while reads still use that store."""

    __slots__ = ("attached", "backing", "view")

    def __init__(self, attached: AttachedChunk, backing: int | None = None) -> None:
        self.attached = attached
        self.backing = backing
        self.view: ChunkView | None = None
        """None until the file is open."""


class Stores:
    """The stores of one tablet: see the module. `layers` are the stores and chunks that a read must
    look at besides the active store."""

    def __init__(self, schema: TableSchema, flushed_ahead: int = 0) -> None:
        """Make an empty active store. In replay, `flushed_ahead` is the number of the last store
        that will have been flushed by the end of the log."""
        self.schema = schema
        self.hot_rows = HotRows()
        self._flushed_ahead = flushed_ahead
        self.active = self._store(1)
        self.passive: list[DynamicStore] = []
        """The oldest store is first."""
        self.chunks: list[TabletChunk] = []
        self.layers: tuple[DynamicStore | ChunkView, ...] = ()

    def _store(self, number: int) -> DynamicStore:
        return DynamicStore(number, is_ghost=number <= self._flushed_ahead)

    # Changes

    def rotate(self) -> DynamicStore:
        """Make the active store passive, and return it."""
        rotated = self.active
        rotated.sort()
        self.passive.append(rotated)
        self.active = self._store(rotated.number + 1)
        self._arrange()
        return rotated

    def store(self, number: int) -> DynamicStore:
        """Return the passive store with this number."""
        return next(it for it in self.passive if it.number == number)

    def attach(
        self, attached: AttachedChunk, chunk: Chunk | None, backing: int | None = None
    ) -> None:
        """Add a chunk. Without `chunk`, the file is opened later, by `open`."""
        added = TabletChunk(attached, backing)
        if chunk is not None:
            added.view = ChunkView(chunk, attached, self.schema)
        self.chunks.append(added)
        self._arrange()

    def detach(self, attached: AttachedChunk) -> None:
        """Remove a chunk."""
        self.chunks = [it for it in self.chunks if it.attached != attached]
        self._arrange()

    def drop(self, number: int) -> DynamicStore:
        """Drop a passive store that has been flushed, and return it. From now on, reads use its
        chunks."""
        dropped = self.store(number)
        assert dropped.is_flushed
        if dropped.is_retired:
            self.hot_rows.clear()
        self.passive.remove(dropped)
        for chunk in self.chunks:
            if chunk.backing == number:
                chunk.backing = None
        self._arrange()
        return dropped

    def open(self, chunks: Mapping[int, Chunk]) -> None:
        """Make the views of all chunks, since their files are open now."""
        for it in self.chunks:
            it.view = ChunkView(chunks[it.attached.info.number], it.attached, self.schema)
        self._arrange()

    def restore(
        self, chunks: Sequence[AttachedChunk], unflushed: Sequence[int], active: int
    ) -> None:
        """Restore the stores of a checkpoint, without the rows in memory: chunks that are attached
        later have these rows."""
        self.chunks = [TabletChunk(it) for it in chunks]
        self.passive = [self._store(number) for number in unflushed]
        self.active = self._store(active)
        self._arrange()

    def alter(self, schema: TableSchema) -> None:
        """Change the columns of the stores. Rows in memory are translated. No transaction holds a
        lock."""
        migration = Migration(self.schema, schema)
        self.schema = schema
        self.hot_rows.clear()
        self.active = migration.store(self.active)
        self.passive = [migration.store(it) for it in self.passive]
        for it in self.chunks:
            if it.view is not None:
                it.view = ChunkView(it.view.chunk, it.attached, schema)
        self._arrange()

    def _arrange(self) -> None:
        views = [it.view for it in self.chunks if it.backing is None and it.view is not None]
        self.layers = (*[it for it in reversed(self.passive) if it.rows], *reversed(views))

    # Reads

    def versions(self, key: Key, at: Timestamp, wanted: int) -> list[Version]:
        """Return the versions of a row at or below a timestamp, newest first. Older versions than
        those of the result do not matter for the wanted columns. Raises LongHistory if there are
        too many."""
        found = versions_until(self.active.newest_at(key, at), at, wanted)
        sources = 1 if found else 0
        for layer in self.layers:
            if layer.min_timestamp > at or (found and _is_settled(found, layer, wanted)):
                continue
            if isinstance(layer, DynamicStore):
                more = versions_until(layer.newest_at(key, at), at, wanted)
            else:
                more = layer.versions(key, at, wanted, count_max=STEPS_MAX + 1)
            if more:
                found += more
                sources += 1
                if len(found) > STEPS_MAX:
                    raise LongHistory
                if sources > 1:
                    found.sort(key=itemgetter(0), reverse=True)
        return found

    def versions_between(
        self, key: Key, since: Timestamp, at: Timestamp, count_max: int = ALL_VERSIONS
    ) -> list[Version]:
        """Return the newest versions of a row with `since < timestamp ≤ at`, newest first,
        `count_max` at most."""
        found: list[Version] = []
        sources = 0
        for layer in (self.active, *self.layers):
            if layer.min_timestamp > at or layer.max_timestamp <= since:
                continue
            if isinstance(layer, DynamicStore):
                newest = layer.newest_at(key, at)
                more = versions_between(newest, since, at, count_max)
            else:
                more = layer.versions(key, at, None, since, count_max)
            if more:
                found += more
                sources += 1
        if sources > 1:
            found.sort(key=itemgetter(0), reverse=True)
            del found[count_max:]
        return found

    def rows(
        self, lower: Key = KEY_MIN, upper: Key = KEY_MAX
    ) -> Iterator[tuple[Key, list[Version]]]:
        """Yield the rows of a range in key order, each with all versions, newest first. This works
        row by row: for code that sends the rows elsewhere, and for tests."""
        layers = (self.active, *self.layers)
        walks = [_walk(layer, lower, upper, self.schema) for layer in layers]
        current: Key | None = None
        versions: list[Version] = []
        for key, version in merge(*walks, key=itemgetter(0)):
            if key != current:
                if current is not None:
                    yield current, sorted(versions, key=itemgetter(0), reverse=True)
                current, versions = key, []
            versions.append(version)
        if current is not None:
            yield current, sorted(versions, key=itemgetter(0), reverse=True)

    def check(self) -> None:
        """Assert the invariants; for tests."""
        for store in self.in_memory:
            store.check()
        numbers = [store.number for store in self.in_memory]
        assert numbers == sorted(set(numbers), reverse=True)
        flushed = [store.number for store in self.passive if store.is_flushed]
        assert all(it.backing is None or it.backing in flushed for it in self.chunks)

    # Contents

    @property
    def is_flat(self) -> bool:
        """Whether the active store has all rows."""
        return not self.layers

    @property
    def in_memory(self) -> tuple[DynamicStore, ...]:
        """The stores that conflict checks look at, newest first."""
        return (self.active, *reversed(self.passive))

    def oldest_besides(self, *those: DynamicStore | TabletChunk) -> Timestamp:
        """Return the lowest timestamp in all stores except these. Their rows may have more versions
        in the other stores, from this timestamp on."""
        stores = [it for it in (self.active, *self.passive) if it not in those]
        chunks = [it.attached for it in self.chunks if it not in those]
        oldest = [it.min_timestamp for it in stores]
        oldest += [it.info.min_timestamp or it.stamp for it in chunks]
        return min(oldest, default=MAX_TIMESTAMP)

    @property
    def unflushed(self) -> list[DynamicStore]:
        """The passive stores whose rows no chunk has, oldest first."""
        return [it for it in self.passive if not it.is_flushed]

    @property
    def has_unflushed_rows(self) -> bool:
        """Whether memory has rows that no chunk has."""
        return bool(self.active.rows) or any(it.rows for it in self.unflushed)

    @property
    def row_count(self) -> int:
        """The number of rows, as an estimate: a row that is in several stores counts in each."""
        chunks = sum(it.attached.info.row_count for it in self.chunks if it.backing is None)
        return len(self.active) + sum(map(len, self.passive)) + chunks

    @property
    def memory_bytes(self) -> int:
        size_bytes = self.active.size_bytes + sum([it.size_bytes for it in self.passive])
        return size_bytes + self.hot_rows.size_bytes


def _is_settled(found: list[Version], layer: DynamicStore | ChunkView, wanted: int) -> bool:
    return layer.max_timestamp < found[-1][0] and is_last(found[-1], wanted)


def _walk(
    layer: DynamicStore | ChunkView, lower: Key, upper: Key, schema: TableSchema
) -> Iterator[tuple[Key, Version]]:
    if isinstance(layer, DynamicStore):
        for key, newest in layer.walk(lower, upper):
            for version in history(newest):
                yield key, version
    else:
        for batch in layer.batches(lower, upper):
            yield from versions_of(schema, batch)
