"""Merge several sorted sources of versions into one, a window of keys at a time.

Owns: the cut of the sources (stores in memory, chunks) into windows of keys, and the order of
versions in a window. A source is an iterator of batches in chunk layout with timestamps. Keys rise
in it, and timestamps fall within a key. Batches are taken one by one. The cursor holds one batch
ahead of the batch that it works on.

Invariants:
- No key lies in two windows. So a window has all versions of its rows.
- A window has at most one batch of each source, or one key if that is longer.

If only one source has keys, its batches are passed on in slices, which copy nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dodona_tablets.core.rows.chunks.layout import (
    BLOCK_ROWS_MAX,
    DELTA,
    KEY,
    MASK,
    SHARED,
    TIMESTAMP,
    chunk_schema,
)
from dodona_tablets.core.rows.chunks.vectors import (
    Flags,
    Groups,
    Places,
    Words,
    first_of_kind,
    has_any_bit,
    no_masks,
    place_of,
    sorted_places,
    words_of,
)
from dodona_wire.errors import DataCorrupted
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Key

ALONE_ROWS_MIN: Final = 1024
"""The rows that one source needs below the first key of all others to get a window of its own."""
CUT_ROWS_MIN: Final = 1024
"""The least rows of each source in a window of many sources. A smaller window takes longer for a
row."""

Source = Iterable[pa.RecordBatch]


# ---- windows


class Window(NamedTuple):
    """The versions that all sources have of some keys."""

    pieces: list[pa.RecordBatch]
    """One piece of each source that has any of the keys, in the order of the sources."""
    upper: Key | None
    """All keys of this window are below it, and no key of a later window is. None means that there
    is no later window."""


def windows(
    sources: Sequence[Source],
    row_count_first: int = BLOCK_ROWS_MAX,
    row_count_total: int | None = None,
) -> Iterator[Window]:
    """Yield all versions of the sources, in windows with rising keys. The first window has about
    `row_count_first` rows of each source at most. Each later window may have twice as many as the
    one before. If `row_count_total` is given, a window has at most about that many rows of all
    sources together."""
    cursors = [cursor for cursor in map(_Cursor, sources) if cursor.rows is not None]
    count = row_count_first
    while cursors:
        upper = _upper(cursors, count)
        if row_count_total is not None:
            while count > CUT_ROWS_MIN and _exceeds(cursors, count, upper, row_count_total):
                count = max(count // 2, CUT_ROWS_MIN)
                upper = _upper(cursors, count)
        pieces = [piece for cursor in cursors if (piece := cursor.take(upper)).num_rows]
        cursors = [cursor for cursor in cursors if cursor.rows is not None]
        yield Window(pieces, upper)
        count = min(2 * count, BLOCK_ROWS_MAX)


def _exceeds(cursors: list["_Cursor"], count: int, upper: Key | None, row_count_total: int) -> bool:
    """Return whether a window with `count` rows of each source, or all rows that it has, is too
    large."""
    if count * len(cursors) <= row_count_total:
        return False
    return sum([cursor.count_below(upper) for cursor in cursors]) > row_count_total


def _upper(cursors: list["_Cursor"], count: int) -> Key | None:
    """Return where the next window ends. Each cursor has all its rows below that key at hand."""
    first, *others = sorted(cursors, key=lambda cursor: cursor.first)
    if others and first.first < others[0].first:
        end = others[0].first
        alone = place_of(first.keys, end)
        if alone == len(first.keys) or alone >= min(ALONE_ROWS_MIN, count):
            bound = first.bound(count)
            return end if bound is None else min(end, bound)
    bounds = [bound for cursor in cursors if (bound := cursor.bound(count)) is not None]
    return min(bounds, default=None)


class _Cursor:
    """A place in one source: the rows at hand, and the batch that follows them."""

    def __init__(self, source: Source) -> None:
        self._batches = (batch for batch in source if batch.num_rows)
        self._hold(next(self._batches, None))
        self._following = next(self._batches, None)

    def _hold(self, rows: pa.RecordBatch | None) -> None:
        self.rows = rows
        self._counted: tuple[Key, int] | None = None
        if rows is not None:
            self.keys = rows.column(KEY)
            self.first = _key_at(rows, 0)

    def bound(self, count: int) -> Key | None:
        """Return a key with about `count` rows below it, all of them at hand. Return None if all
        rows of the source are at hand, and are not more."""
        assert self.rows is not None
        if self._following is not None and _key_at(self._following, 0) == self.first:
            self._gather()
        while count < len(self.keys):
            key = _key_at(self.rows, count)
            if key != self.first:
                return key
            count *= 2
        return None if self._following is None else _key_at(self._following, 0)

    def _gather(self) -> None:
        """Take all batches that have some of the first key, since all rows here have that key."""
        held = [self.rows]
        while self._following is not None and _key_at(self._following, 0) == self.first:
            held.append(self._following)
            self._following = next(self._batches, None)
        self._hold(pa.concat_batches(held))

    def count_below(self, upper: Key | None) -> int:
        """Return how many of the rows at hand are below a key."""
        if upper is None:
            return len(self.keys)
        if self._counted is None or self._counted[0] != upper:
            self._counted = upper, place_of(self.keys, upper)
        return self._counted[1]

    def take(self, upper: Key | None) -> pa.RecordBatch:
        """Return the rows below this key, which are at hand, and move on behind them."""
        assert self.rows is not None
        taken = self.rows
        if upper is not None:
            count = self.count_below(upper)
            taken = self.rows.slice(0, count)
            if count < self.rows.num_rows:
                self._hold(self.rows.slice(count))
                return taken
        self._hold(self._following)
        self._following = next(self._batches, None)
        return taken


def _key_at(batch: pa.RecordBatch, row: int) -> Key:
    key: Key = batch.column(KEY)[row].as_py()
    return key


# ---- the order within a window


class Versions:
    """Versions of whole rows: one group for each key, with the newest version first.

    The versions lie in `batch` in any order. `order` has their rows. It is None if the batch is in
    order. All arrays of this class are in order.
    """

    def __init__(
        self,
        schema: TableSchema,
        batch: pa.RecordBatch,
        order: Places | None = None,
        starts: Flags | None = None,
    ) -> None:
        self.schema = schema
        self.batch = batch
        self.order = order
        self.starts = first_of_kind(batch.column(KEY)) if starts is None else starts
        """Which versions are the newest of their key."""

    def __len__(self) -> int:
        count: int = self.batch.num_rows
        return count

    @cached_property
    def groups(self) -> Groups:
        return Groups(self.starts)

    @cached_property
    def timestamps(self) -> NDArray[np.uint64]:
        found = timestamps_of(self.batch)
        return found if self.order is None else found[self.order]

    @cached_property
    def masks(self) -> Words:
        return self._words(MASK)

    @cached_property
    def deltas(self) -> Words | None:
        """The masks of changes of aggregates, or None if no version has a change."""
        if DELTA not in self.batch.schema.names:
            return None
        words = self._words(DELTA)
        return words if words.any() else None

    def _words(self, name: str) -> Words:
        words = words_of(self.schema, self.batch.column(name))
        return words if self.order is None else words[:, self.order]

    @cached_property
    def deletions(self) -> Flags:
        return ~has_any_bit(self.masks)

    @property
    def has_specials(self) -> bool:
        """Whether some version may have changes of aggregates or shared locks."""
        return DELTA in self.batch.schema.names

    def in_order(self) -> pa.RecordBatch:
        """Return all versions in order: the batch itself if it is in order."""
        return self.batch if self.order is None else self.batch.take(pa.array(self.order))

    def rows_at(self, places: Places) -> Places:
        """Return the rows of the batch in which these versions lie."""
        return places if self.order is None else self.order[places]

    def key_at(self, place: int) -> Key:
        return _key_at(self.batch, place if self.order is None else int(self.order[place]))


def timestamps_of(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """Return the timestamp of each row, in the batch's memory."""
    found: NDArray[np.uint64] = batch.column(TIMESTAMP).to_numpy(zero_copy_only=True)
    return found


def merged(schema: TableSchema, pieces: Sequence[pa.RecordBatch]) -> Versions:
    """Merge the pieces of a window. All have columns of the same names, except those of the layout
    `special`."""
    if len(pieces) == 1:
        return Versions(schema, pieces[0])
    newest_first = sorted(pieces, key=lambda it: int(timestamps_of(it).max()), reverse=True)
    order, starts = sorted_places([piece.column(KEY) for piece in newest_first])
    versions = Versions(schema, pa.concat_batches(_alike(schema, newest_first)), order, starts)
    stamps = versions.timestamps
    late = ~starts[1:] & (stamps[1:] > stamps[:-1])
    if late.any():
        versions = _in_order(versions, np.flatnonzero(late))
    return versions


def _in_order(versions: Versions, late: Places) -> Versions:
    """Sort the versions of the keys in which a newer version comes after an older one."""
    groups, order = versions.groups, versions.order
    assert order is not None
    is_mixed = np.zeros(len(groups), np.bool_)
    is_mixed[groups.numbers[late + 1]] = True
    places = np.flatnonzero(is_mixed[groups.numbers])
    sorting = np.lexsort((~versions.timestamps[places], groups.numbers[places]))
    order[places] = order[places[sorting]]
    return Versions(versions.schema, versions.batch, order, versions.starts)


def check_distinct(versions: Versions) -> None:
    """Check that no key has two versions with one timestamp. Raises DataCorrupted: two stores have
    one version, and to count it twice would be wrong."""
    stamps = versions.timestamps
    same = ~versions.starts[1:] & (stamps[1:] == stamps[:-1])
    if same.any():
        place = int(same.argmax())
        key = versions.key_at(place)
        raise DataCorrupted(
            "two versions of a row have one timestamp",
            key=versions.schema.decode_key(key),
            timestamp=int(stamps[place]),
        )


# ---- layouts


def _alike(schema: TableSchema, pieces: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the pieces with the same columns: those of the layout `special` if any piece has
    it."""
    special = next((piece for piece in pieces if DELTA in piece.schema.names), None)
    return (
        list(pieces)
        if special is None
        else [with_specials(schema, piece, special.schema.names) for piece in pieces]
    )


def with_specials(
    schema: TableSchema, batch: pa.RecordBatch, names: Sequence[str]
) -> pa.RecordBatch:
    """Return a batch with these columns of the layout `special`. Masks that the batch lacks are
    empty."""
    if DELTA in batch.schema.names:
        return batch
    count = batch.num_rows
    nothing = {DELTA: no_masks(schema, count), SHARED: pa.repeat(pa.scalar(0, pa.uint64()), count)}
    columns = [nothing[it] if it in nothing else batch.column(it) for it in names]
    full = chunk_schema(schema, "special")
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([full.field(it) for it in names]))
