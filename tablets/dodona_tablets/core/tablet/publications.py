"""Hold the publications of loads in a tablet: the one under way, and recent ones.

Owns: the rows of a publication, which its chunks and its erased ranges say, and which reads it
blocks. While it commits, it holds all of these rows. `publishing` has the checks.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.version import Version
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import MAX_TIMESTAMP, Key, Timestamp


class PublicationRows:
    """The rows that a publication changes: those of its chunks, and those of its erased ranges."""

    def __init__(
        self,
        schema: TableSchema,
        attached: Iterable[AttachedChunk],
        erased: tuple[tuple[Key, Key], ...],
        chunks: Mapping[int, Chunk],
    ) -> None:
        """Take the rows of these chunks and ranges. `chunks` are the cell's open chunks: a chunk
        may be opened after this call."""
        self._schema = schema
        self._attached = tuple(attached)
        self._erased = erased
        self._chunks = chunks
        self._views: tuple[ChunkView, ...] | None = None

    @property
    def views(self) -> tuple[ChunkView, ...]:
        if self._views is None:
            chunks, schema = self._chunks, self._schema
            opened = [ChunkView(chunks[it.info.number], it, schema) for it in self._attached]
            self._views = tuple(opened)
        return self._views

    def versions(self, key: Key) -> Iterator[Version]:
        """Yield the versions that the chunks have of a row."""
        for view in self.views:
            yield from view.versions(key, MAX_TIMESTAMP)

    def has(self, key: Key) -> bool:
        return self.erases(key) or any(True for _ in self.versions(key))

    def erases(self, key: Key) -> bool:
        return any(lower <= key < upper for lower, upper in self._erased)

    def meets(self, lower: Key, upper: Key) -> bool:
        """Return whether some of the rows may lie in `lower ≤ key < upper`."""
        ranges = [*self._erased, *[(view.lower, view.upper) for view in self.views]]
        return any(low < upper and lower < high for low, high in ranges)

    def count_beside(self, others: "PublicationRows") -> int:
        """Return about how many rows are in chunks that the other rows may meet."""
        views = [it for it in self.views if others.meets(it.lower, it.upper)]
        return sum([view.count(view.lower, view.upper) for view in views])


class Publishing(NamedTuple):
    """The publication that holds a tablet until its outcome."""

    transaction: Transaction
    rows: PublicationRows

    def blocks(self, key: Key, at: Timestamp) -> bool:
        """Return whether a read of a row at this timestamp must wait."""
        return self._is_in_sight(at) and self.rows.has(key)

    def blocker_of_range(self, lower: Key, upper: Key, at: Timestamp) -> Transaction | None:
        """Return the transaction that a read of `lower ≤ key < upper` must wait for, or None."""
        is_met = self._is_in_sight(at) and self.rows.meets(lower, upper)
        return self.transaction if is_met else None

    def _is_in_sight(self, at: Timestamp) -> bool:
        other = self.transaction
        if other.state is State.PREPARED:
            return other.prepare_timestamp <= at
        return other.id < at


class Published(NamedTuple):
    """A publication that was committed recently."""

    timestamp: Timestamp
    rows: PublicationRows
