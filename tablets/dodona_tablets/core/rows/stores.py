"""The stores of one tablet: where the versions of its rows are.

Owns: the active store, which takes writes; the passive ones, which were rotated; and the chunks. A
passive store that has been flushed stays as the *backing* of its chunk for as long as a transaction
could come that conflicts with what it has: conflicts are looked for in memory only. So long it is
read in the chunk's place.

Invariants:
- A version that was applied is in exactly one store that is read.
- Stores overlap in time: rows of one lock group may be committed after later ones of another, on
  either side of a rotation. So whoever reads merges by timestamp, and stops early only where the
  timestamps of the rest allow it.
- During replay chunks are attached, and not open: nobody reads before all of them are.
Knows nothing of transactions, nor of when to flush or compact.
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
    """A chunk of a tablet, and the store that it came from while that one is still read."""

    __slots__ = ("attached", "backing", "view")

    def __init__(self, attached: AttachedChunk, backing: int | None = None) -> None:
        self.attached = attached
        self.backing = backing
        self.view: ChunkView | None = None
        """None until the file is open."""


class Stores:
    """See the module. `layers` is what a read has to look at besides the active store."""

    def __init__(self, schema: TableSchema, flushed_ahead: int = 0) -> None:
        """In replay `flushed_ahead` is the number of the last store that will have been flushed
        by the end of the log."""
        self.schema = schema
        self.hot_rows = HotRows()
        self._flushed_ahead = flushed_ahead
        self.active = self._store(1)
        self.passive: list[DynamicStore] = []
        """Oldest first."""
        self.chunks: list[TabletChunk] = []
        self.layers: tuple[DynamicStore | ChunkView, ...] = ()

    def _store(self, number: int) -> DynamicStore:
        return DynamicStore(number, is_ghost=number <= self._flushed_ahead)

    # Changes

    def rotate(self) -> DynamicStore:
        """The active store becomes passive. → it"""
        rotated = self.active
        rotated.sort()
        self.passive.append(rotated)
        self.active = self._store(rotated.number + 1)
        self._arrange()
        return rotated

    def store(self, number: int) -> DynamicStore:
        """A passive store."""
        return next(it for it in self.passive if it.number == number)

    def attach(
        self, attached: AttachedChunk, chunk: Chunk | None, backing: int | None = None
    ) -> None:
        """One more chunk, to be opened later if it is not given."""
        added = TabletChunk(attached, backing)
        if chunk is not None:
            added.view = ChunkView(chunk, attached, self.schema)
        self.chunks.append(added)
        self._arrange()

    def detach(self, attached: AttachedChunk) -> None:
        """One chunk less."""
        self.chunks = [it for it in self.chunks if it.attached != attached]
        self._arrange()

    def drop(self, number: int) -> DynamicStore:
        """Read its chunks instead of a passive store that has been flushed. → the store"""
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
        """The files are there."""
        for it in self.chunks:
            it.view = ChunkView(chunks[it.attached.info.number], it.attached, self.schema)
        self._arrange()

    def restore(
        self, chunks: Sequence[AttachedChunk], unflushed: Sequence[int], active: int
    ) -> None:
        """As they were, without the rows in memory: those are in chunks that are attached later."""
        self.chunks = [TabletChunk(it) for it in chunks]
        self.passive = [self._store(number) for number in unflushed]
        self.active = self._store(active)
        self._arrange()

    def alter(self, schema: TableSchema) -> None:
        """The table has other columns now. Rows in memory are made anew; nobody holds any lock."""
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
        """The versions of a row at or below a timestamp, newest first: so many that no older one
        says anything of the wanted columns. Raises LongHistory if those are very many."""
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
        """The newest versions of a row of since < timestamp ≤ at, so many at most, newest first."""
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
        """All versions of all rows of a range, in key order, newest first. Row by row: for those
        who send them elsewhere, and for tests."""
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

    # What is in them

    @property
    def is_flat(self) -> bool:
        """Whether the active store has all there is."""
        return not self.layers

    @property
    def in_memory(self) -> tuple[DynamicStore, ...]:
        """Where conflicts are looked for, newest first."""
        return (self.active, *reversed(self.passive))

    def oldest_besides(self, *those: DynamicStore | TabletChunk) -> Timestamp:
        """The lowest timestamp in all stores but those: what they have of a row may go on there."""
        stores = [it for it in (self.active, *self.passive) if it not in those]
        chunks = [it.attached for it in self.chunks if it not in those]
        oldest = [it.min_timestamp for it in stores]
        oldest += [it.info.min_timestamp or it.stamp for it in chunks]
        return min(oldest, default=MAX_TIMESTAMP)

    @property
    def unflushed(self) -> list[DynamicStore]:
        """Passive stores that no chunk has, oldest first."""
        return [it for it in self.passive if not it.is_flushed]

    @property
    def has_unflushed_rows(self) -> bool:
        """Whether memory has rows that no chunk has."""
        return bool(self.active.rows) or any(it.rows for it in self.unflushed)

    @property
    def row_count(self) -> int:
        """About: a row that is in several stores counts in each."""
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
