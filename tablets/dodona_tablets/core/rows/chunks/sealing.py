"""Check whether the staged chunks of a load may be published, and find the rows to delete then.

Owns: the rules of bulk loads, decided for a window of keys at a time (`merging`):

- No key is in two staged chunks.
- No row that the load changes was changed after its `since`. No row of an erased range was written
  or deleted after it. If one was, that is a conflict, with the name that Delta Lake uses (its
  document "Concurrency control"). In an erased range, the deletion of a row that was not there is
  no change.
- A row that is inserted is not there, and a row that is updated is there.
- Rows of erased ranges that are not staged are deleted. These deletions are the result, in the
  chunk layout `masked`. They are attached together with the staged chunks.

Staged chunks are attached with `MAX_TIMESTAMP`. So their versions are the newest of all, and this
timestamp identifies them. A decision about a row needs two more things: the newest of its other
versions, and whether the row was there at `since`. It needs no values. The caller must make sure
that no version as of `since` is gone.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dodona_tablets.core.rows.chunks.layout import (
    KEY,
    MASK,
    TIMESTAMP,
    chunk_schema,
)
from dodona_tablets.core.rows.chunks.merging import Source, Versions, merged, windows
from dodona_tablets.core.rows.chunks.rows import SLICE_ROWS
from dodona_tablets.core.rows.chunks.vectors import Flags, Places, no_masks
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.chunks.zones import Layer, Range, Zone, lanes_of, zones_of
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.version import history
from dodona_wire.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    DuplicateKey,
    RowNotFound,
    TransactionConflict,
)
from dodona_wire.rows.arrow_keys import decode_keys
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import MAX_TIMESTAMP, NULL_TIMESTAMP, Key, LoadMode, Timestamp

WINDOW_ROWS: Final = 1 << 18
"""About the most rows of one window, even if hundreds of chunks overlap."""


def sealed(
    schema: TableSchema,
    staged: Sequence[ChunkView],
    existing: Sequence[Layer],
    mode: LoadMode,
    since: Timestamp,
    erased: Sequence[Range],
) -> Iterator[pa.RecordBatch]:
    """Yield the deletions that go with the staged chunks, in key order. Some batches have no rows,
    so that other work may run in between. `erased` are ranges `lower ≤ key < upper`, in order and
    apart.

    Raises DuplicateKey, RowNotFound, ConcurrentAppend, ConcurrentDeleteRead or
    ConcurrentDeleteDelete, with a key that is in the way. Raises DataCorrupted about a chunk.
    """
    assert all(view.min_timestamp == MAX_TIMESTAMP for view in staged), "staged chunks have times"
    rules = _Rules(schema, mode, since)
    for zone in zones_of(staged, existing, mode, since, erased):
        sources = _sources(schema, staged, zone, NULL_TIMESTAMP)
        above = NULL_TIMESTAMP if zone.is_erased or mode in ("insert", "update") else since
        sources += _sources(schema, existing, zone, above)
        for pieces, _ in windows(sources, row_count_total=WINDOW_ROWS):
            yield rules.deletions(merged(schema, pieces), zone)


# ---- sources


def _narrow_schema(schema: TableSchema) -> pa.Schema:
    """Return the schema of versions without their values."""
    plain = chunk_schema(schema, "plain")
    return pa.schema([plain.field(name) for name in (KEY, TIMESTAMP, MASK)])


def _sources(
    schema: TableSchema, layers: Sequence[Layer], zone: Zone, above: Timestamp
) -> list[Source]:
    """Return the layers that have rows in a zone, except those without a version above a
    timestamp."""
    layers = [it for it in layers if it.max_timestamp > above]
    views = [it for it in layers if isinstance(it, ChunkView)]
    stores = [it for it in layers if isinstance(it, DynamicStore)]
    narrow = _narrow_schema(schema)
    return [
        *[_of_views(narrow, lane, zone) for lane in lanes_of(views, zone)],
        *[_of_store(narrow, store, zone, above) for store in stores],
    ]


def _of_views(narrow: pa.Schema, views: Sequence[ChunkView], zone: Zone) -> Source:
    for view in views:
        for batch in view.batches(zone.lower, zone.upper):
            columns = [batch.column(name) for name in narrow.names]
            yield pa.RecordBatch.from_arrays(columns, schema=narrow)


def _of_store(narrow: pa.Schema, store: DynamicStore, zone: Zone, above: Timestamp) -> Source:
    """Yield the versions of the rows that have one above a timestamp. The masks only tell writes
    from deletions."""
    no_mask, some_mask = (0, 1) if narrow.field(MASK).type == pa.uint64() else (b"", b"\x01")
    found: list[tuple[Key, Timestamp, Any]] = []
    for key, newest in store.walk(zone.lower, zone.upper):
        if newest[0] <= above:
            continue
        found += [(key, it[0], some_mask if it[1] else no_mask) for it in history(newest)]
        if len(found) >= SLICE_ROWS:
            yield _batch_of(narrow, found)
            found = []
    if found:
        yield _batch_of(narrow, found)


def _batch_of(narrow: pa.Schema, found: list[tuple[Key, Timestamp, Any]]) -> pa.RecordBatch:
    columns = zip(narrow.types, zip(*found, strict=True), strict=True)
    return pa.RecordBatch.from_arrays([pa.array(it, kind) for kind, it in columns], schema=narrow)


# ---- the rules


class _Rules:
    """The rules for one load: see the module."""

    def __init__(self, schema: TableSchema, mode: LoadMode, since: Timestamp) -> None:
        self._schema = schema
        self._mode = mode
        self._since = since
        self._layout = chunk_schema(schema, "masked")
        self._nothing = pa.RecordBatch.from_pylist([], schema=self._layout)

    def deletions(self, versions: Versions, zone: Zone) -> pa.RecordBatch:
        """Return the deletions of rows in a window. Raises an error if a row is in the way of the
        load."""
        rows = _Rows(versions)
        if rows.is_repeated.any():
            key = self._named(versions, int(rows.is_repeated.argmax()))
            raise DuplicateKey(f"the key {key} is written twice by one load", key=key)
        self._check_conflicts(rows, zone)
        self._check_presence(rows)
        goes = rows.is_there & ~rows.is_staged
        if not zone.is_erased or not goes.any():
            return self._nothing
        places = versions.rows_at(rows.firsts[goes])
        return self._batch(versions.batch.column(KEY).take(pa.array(places)))

    def _check_conflicts(self, rows: "_Rows", zone: Zone) -> None:
        is_late = rows.is_known & (rows.newest_timestamps > self._since)
        if not is_late.any():
            return
        is_lost = is_late & rows.is_staged
        was_there = rows.was_there(self._since) if zone.is_erased else None
        if was_there is not None:
            is_lost |= is_late & (was_there | rows.was_written_after(self._since))
        if not is_lost.any():
            return
        row = int(is_lost.argmax())
        is_read = was_there is not None and bool(was_there[row])
        error, verb = self._conflict(rows, row, is_read=is_read)
        key = self._named(rows.versions, int(rows.firsts[row]))
        raise error(
            f"row {key} was {verb} by a concurrent transaction",
            key=key,
            start_timestamp=self._since,
            winner_timestamp=int(rows.newest_timestamps[row]),
        )

    def _conflict(
        self, rows: "_Rows", row: int, *, is_read: bool
    ) -> tuple[type[TransactionConflict], str]:
        """Return the error and the verb for a row that was changed. A row that was there and is
        replaced counts as read."""
        if rows.is_there[row]:
            return ConcurrentAppend, "written"
        is_staged = rows.is_staged[row]
        if is_staged and self._mode == "delete":
            return ConcurrentDeleteDelete, "deleted"
        if is_read or (is_staged and self._mode == "update"):
            return ConcurrentDeleteRead, "deleted"
        return ConcurrentAppend, "changed"

    def _check_presence(self, rows: "_Rows") -> None:
        if self._mode == "insert":
            is_wrong = rows.is_staged & rows.is_there
        elif self._mode == "update":
            is_wrong = rows.is_staged & ~rows.is_there
        else:
            return
        if not is_wrong.any():
            return
        key = self._named(rows.versions, int(rows.firsts[int(is_wrong.argmax())]))
        if self._mode == "insert":
            raise DuplicateKey(f"row {key} is there already", key=key)
        raise RowNotFound(f"row {key} is not there to be updated", key=key)

    def _named(self, versions: Versions, place: int) -> dict[str, Any]:
        return self._schema.named_key(versions.key_at(place))

    def _batch(self, keys: pa.Array) -> pa.RecordBatch:
        """Return deletions of the rows with these keys."""
        count = len(keys)
        columns = [keys, *decode_keys(self._schema, keys)]
        columns += [pa.nulls(count, it.type) for it in self._layout][len(columns) : -1]
        masks = no_masks(self._schema, count)
        return pa.RecordBatch.from_arrays([*columns, masks], schema=self._layout)


class _Rows:
    """The rows of a window. An array has one element for each row, unless its description says that
    it has one for each version."""

    def __init__(self, versions: Versions) -> None:
        groups, stamps = versions.groups, versions.timestamps
        self.versions = versions
        self.firsts: Places = groups.firsts
        """The newest version of each row."""
        is_of_load = stamps == MAX_TIMESTAMP
        self.is_repeated: Flags = is_of_load & ~versions.starts
        """For each version, whether it is another version that the load has of the same row."""
        self.is_staged: Flags = is_of_load[self.firsts]
        newest = self.firsts + self.is_staged
        self.is_known: Flags = newest < np.append(self.firsts[1:], len(stamps))
        """Whether there are versions besides those of the load."""
        newest = np.minimum(newest, len(stamps) - 1)
        self.newest_timestamps = stamps[newest]
        """The timestamp of the newest of these other versions."""
        self.is_there: Flags = self.is_known & ~versions.deletions[newest]

    def was_there(self, at: Timestamp) -> Flags:
        """Return which rows a reader at this timestamp sees."""
        groups = self.versions.groups
        is_old = self.versions.timestamps <= at
        is_seen = is_old & (groups.counts_before(is_old) == 0) & ~self.versions.deletions
        found: Flags = groups.counts(is_seen) > 0
        return found

    def was_written_after(self, at: Timestamp) -> Flags:
        """Return which rows were written after this timestamp. A write of the load counts, too."""
        is_young = self.versions.timestamps > at
        found: Flags = self.versions.groups.counts(is_young & ~self.versions.deletions) > 0
        return found
