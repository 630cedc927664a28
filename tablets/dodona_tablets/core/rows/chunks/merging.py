"""Several sorted sources of versions as one, window by window.

Owns: cutting sources (a store in memory, chunks) into windows of keys, and the order of versions
in a window. A source is an iterator of batches in chunk layout with timestamps, in order (keys
rise, timestamps fall within a key), and is taken batch by batch, one ahead of what is worked on.

Invariants: no key lies in two windows, so that what a window says of a row is all there is to say;
and a window has at most one batch of each source, or, if that is longer, one key. Where only one
source has keys its batches are passed on in slices, which copy nothing.
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
"""So many rows of one source before the first key of any other are worth a window of their own."""
CUT_ROWS_MIN: Final = 1024
"""Of each of many sources: smaller windows take longer for a row."""

Source = Iterable[pa.RecordBatch]


# ---- windows


class Window(NamedTuple):
    """What all sources have of some keys."""

    pieces: list[pa.RecordBatch]
    """Of each source that has any, in the order of the sources."""
    upper: Key | None
    """No key of a later window is below, all of this one are. None: there is no later window."""


def windows(
    sources: Sequence[Source],
    row_count_first: int = BLOCK_ROWS_MAX,
    row_count_total: int | None = None,
) -> Iterator[Window]:
    """All versions of the sources, in windows that rise. The first has about so many rows of each
    source at most, each later one may have twice as many as the one before. Of all sources together
    a window has about so many as the total, if that is given."""
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
    """Whether a window of so many rows of each source, as far as there are any, has too many."""
    if count * len(cursors) <= row_count_total:
        return False
    return sum([cursor.count_below(upper) for cursor in cursors]) > row_count_total


def _upper(cursors: list["_Cursor"], count: int) -> Key | None:
    """Where the next window ends: every cursor has at hand what it has below."""
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
        """A key below which are about so many rows, all at hand; None if all rows are."""
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
        """All rows here are of one key, which goes on: take all that have some of it."""
        held = [self.rows]
        while self._following is not None and _key_at(self._following, 0) == self.first:
            held.append(self._following)
            self._following = next(self._batches, None)
        self._hold(pa.concat_batches(held))

    def count_below(self, upper: Key | None) -> int:
        """Of the rows at hand."""
        if upper is None:
            return len(self.keys)
        if self._counted is None or self._counted[0] != upper:
            self._counted = upper, place_of(self.keys, upper)
        return self._counted[1]

    def take(self, upper: Key | None) -> pa.RecordBatch:
        """The rows below this key, which are at hand, and go on behind them."""
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
    """Versions of whole rows: groups of a key, in each the newest first.

    They lie in `batch` in any order: `order` has their rows, or is None if it is that of the batch.
    All arrays here are in order.
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
        """Which are the newest of their key."""

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
        """None if no version has a change of an aggregate."""
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
        """Whether some version may have specialities."""
        return DELTA in self.batch.schema.names

    def in_order(self) -> pa.RecordBatch:
        """All versions: the batch itself if it is in order."""
        return self.batch if self.order is None else self.batch.take(pa.array(self.order))

    def rows_at(self, places: Places) -> Places:
        """The rows of the batch in which these versions lie."""
        return places if self.order is None else self.order[places]

    def key_at(self, place: int) -> Key:
        return _key_at(self.batch, place if self.order is None else int(self.order[place]))


def timestamps_of(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """Of each row, in the batch's memory."""
    found: NDArray[np.uint64] = batch.column(TIMESTAMP).to_numpy(zero_copy_only=True)
    return found


def merged(schema: TableSchema, pieces: Sequence[pa.RecordBatch]) -> Versions:
    """The versions of a window. Its pieces have columns of the same names, but for specialities."""
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
    """Sort the versions of those keys of which some come after older ones."""
    groups, order = versions.groups, versions.order
    assert order is not None
    is_mixed = np.zeros(len(groups), np.bool_)
    is_mixed[groups.numbers[late + 1]] = True
    places = np.flatnonzero(is_mixed[groups.numbers])
    sorting = np.lexsort((~versions.timestamps[places], groups.numbers[places]))
    order[places] = order[places[sorting]]
    return Versions(versions.schema, versions.batch, order, versions.starts)


def check_distinct(versions: Versions) -> None:
    """That no key has two versions of one timestamp. Raises DataCorrupted: two stores have one
    version, and to count it twice would be wrong."""
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
    """The pieces with the same columns: with those of specialities if any has them."""
    special = next((piece for piece in pieces if DELTA in piece.schema.names), None)
    return (
        list(pieces)
        if special is None
        else [with_specials(schema, piece, special.schema.names) for piece in pieces]
    )


def with_specials(
    schema: TableSchema, batch: pa.RecordBatch, names: Sequence[str]
) -> pa.RecordBatch:
    """A batch with these columns of the special layout, in which it may have no specialities."""
    if DELTA in batch.schema.names:
        return batch
    count = batch.num_rows
    nothing = {DELTA: no_masks(schema, count), SHARED: pa.repeat(pa.scalar(0, pa.uint64()), count)}
    columns = [nothing[it] if it in nothing else batch.column(it) for it in names]
    full = chunk_schema(schema, "special")
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([full.field(it) for it in names]))
