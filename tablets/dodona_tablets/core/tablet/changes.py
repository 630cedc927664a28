"""Return what became of a tablet's rows between two timestamps: their versions, page by page.

Owns: which versions are in a page, how far a page looks, and where the next page begins, which may
be within a row. Stores, chunks and blocks that have nothing new for the reader are skipped by their
timestamps. So few changes of a large table cost little. A page waits for every transaction that may
still commit at or below its timestamp, for any columns that are requested. Changes nothing.

Invariant: no version above the retained timestamp is ever removed (see `retention`). So a reader
that continues from a timestamp at or above it gets every version.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from dodona_tablets.core.rows.chunks.layout import DELTA, KEY, MASK, TIMESTAMP
from dodona_tablets.core.rows.chunks.merging import (
    Source,
    Versions,
    merged,
    timestamps_of,
    windows,
    with_specials,
)
from dodona_tablets.core.rows.chunks.rows import batches_of_rows
from dodona_tablets.core.rows.chunks.vectors import place_of
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.version import (
    ALL_VERSIONS,
    Version,
    chain_of,
    history,
    versions_between,
)
from dodona_tablets.core.tablet.scans import COLUMN_ROWS_MAX, PAGE_BYTES_MAX, fitting_rows
from dodona_tablets.core.tablet.snapshot import blocker_of_range, too_old
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.data import ArrowPage, CountVersions, ScanVersions
from dodona_wire.rows.arrow import arrow_schema, stream_of
from dodona_wire.rows.keys import successor
from dodona_wire.types import NULL_TIMESTAMP, Key, Timestamp

WALKED_KEYS_MAX: Final = 50_000
"""The most keys of stores in memory that one page looks at. All other work waits for about 10 ms
meanwhile."""
LOOKED_AT_MAX: Final = 1_000_000
"""The most versions in blocks that one page looks at. Their timestamps are compared as columns."""
COUNT_STEPS_MAX: Final = 1_000
"""The most steps of one page of counts."""
COUNT: Final = "$count"

_Rows = list[tuple[Key, Version]]


def scan_versions(tablet: Tablet, request: ScanVersions) -> ArrowPage | Transaction:
    """Return a page of versions, or the transaction that it must wait for. Raises SnapshotTooOld,
    InvalidRequest."""
    reach = _Reach(tablet, request)
    columns = _Columns(tablet, request)
    page, resume = _page(columns, reach, request)
    upper = request.upper
    if resume is not None:
        upper = successor(resume.key) if resume.timestamp else resume.key
    groups, at = tablet.schema.lock_mask_all, request.timestamp
    blocker = blocker_of_range(tablet, request.lower, upper, groups, at)
    if blocker is not None:
        return blocker
    return ArrowPage(stream_of(page), page.num_rows, *(resume or (None,)))


def count_versions(tablet: Tablet, request: CountVersions) -> ArrowPage:
    """Return how many versions there are, in steps of time. Raises SnapshotTooOld,
    InvalidRequest."""
    reach = _Reach(tablet, request)
    found = [np.fromiter(reach.timestamps_in_memory(), np.uint64)]
    for view in reach.views:
        for batch in view.batches(request.lower, reach.upper, request.since):
            stamps = timestamps_of(batch)
            found.append(stamps[(stamps > request.since) & (stamps <= request.timestamp)])
    stamps, counts = np.unique(np.concatenate(found), return_counts=True)
    sums = np.cumsum(counts)
    if len(stamps) > COUNT_STEPS_MAX:
        steps = np.linspace(0, sums[-1], COUNT_STEPS_MAX + 1)[1:]
        ends = np.unique(np.searchsorted(sums, np.round(steps)))
        stamps, sums = stamps[ends], sums[ends]
    counts = np.diff(sums, prepend=0).astype(np.uint64)
    batch = pa.RecordBatch.from_arrays([pa.array(stamps), pa.array(counts)], [TIMESTAMP, COUNT])
    resume = reach.upper if reach.upper < request.upper else None
    return ArrowPage(stream_of(batch), batch.num_rows, resume)


# ---- how far a page looks


class _Reach:
    """The stores and chunks that may have versions of a range, and the key up to which one page
    looks."""

    def __init__(self, tablet: Tablet, request: ScanVersions | CountVersions) -> None:
        since, at = request.since, request.timestamp
        _check(tablet, since, at)
        layers = [
            layer
            for layer in (tablet.active, *tablet.stores.layers)
            if layer.max_timestamp > since and layer.min_timestamp <= at
        ]
        stores = [layer for layer in layers if isinstance(layer, DynamicStore)]
        self.views = [layer for layer in layers if isinstance(layer, ChunkView)]
        self.upper = request.upper
        self._range = since, at
        self._first, self._first_at, self._count_max = request.lower, at, ALL_VERSIONS
        if isinstance(request, ScanVersions):
            self._count_max = COLUMN_ROWS_MAX + 1
            if request.lower_timestamp:
                self._first_at = request.lower_timestamp
        self._walked: list[tuple[DynamicStore, _Rows]] = []
        for store in stores:
            count = WALKED_KEYS_MAX // len(stores)
            rows, self.upper = store.newer(request.lower, self.upper, since, count)
            self._walked.append((store, rows))
        for view in self.views:
            count = LOOKED_AT_MAX // len(self.views)
            self.upper = view.reach(request.lower, self.upper, since, count)

    def in_memory(self) -> Iterator[tuple[DynamicStore, Iterator[tuple[Key, Version]]]]:
        """Yield each store with the versions that it has of the range."""
        for store, rows in self._walked:
            yield store, self._versions(store, rows)

    def timestamps_in_memory(self) -> Iterator[Timestamp]:
        """Yield the timestamps of those versions."""
        for _, rows in self.in_memory():
            for _, newest in rows:
                yield from (version[0] for version in history(newest))

    def _versions(
        self, store: DynamicStore, rows: Iterable[tuple[Key, Version]]
    ) -> Iterator[tuple[Key, Version]]:
        """Yield rows, each with no more versions than a page can show. A row with frequent writes
        has more: the next page goes on where this one ends."""
        since, at = self._range
        for key, newest in rows:
            if key >= self.upper:
                return
            if newest[3] is None:
                if newest[0] <= at:
                    yield key, newest
                continue
            is_resumed = key == self._first and self._first_at < at
            newest_seen = store.newest_at(key, self._first_at if is_resumed else at)
            newer = versions_between(newest_seen, since, at, self._count_max)
            if newer:
                yield key, chain_of(newer)  # type: ignore[misc]


def _check(tablet: Tablet, since: Timestamp, at: Timestamp) -> None:
    """Raise InvalidRequest, or SnapshotTooOld if versions above `since` may be gone."""
    if not NULL_TIMESTAMP <= since <= at:
        text = "since must be 0 or more, and not greater than the timestamp to read up to."
        raise InvalidRequest(text, since=since, timestamp=at)
    if NULL_TIMESTAMP < since < tablet.retained_timestamp:
        raise too_old(tablet, since)


# ---- a page


class _Resume(NamedTuple):
    """The place where the next page begins. With a timestamp, it is within that row."""

    key: Key
    timestamp: Timestamp = NULL_TIMESTAMP


class _Columns:
    """The columns of a page, which has versions in chunk layout."""

    def __init__(self, tablet: Tablet, request: ScanVersions) -> None:
        schema = self.schema = tablet.schema
        wanted = schema.plain_mask(request.column_mask)
        marks = [TIMESTAMP, MASK]
        if schema.aggregate_mask:
            marks.append(DELTA)
        known = arrow_schema(schema, wanted)
        self.names = [KEY, *known.names, *marks]
        key_fields = [known.field(name) for name in schema.key_names]
        value_fields = [field.with_nullable(True) for field in list(known)[len(key_fields) :]]
        masks = pa.binary() if schema.is_wide else pa.uint64()
        kinds = {TIMESTAMP: pa.uint64(), MASK: masks, DELTA: masks}
        mark_fields = [pa.field(name, kinds[name], nullable=False) for name in marks]
        self.output = pa.schema([*key_fields, *value_fields, *mark_fields])

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return these columns of a batch, without those of the layout `special` where the batch
        has none."""
        names = batch.schema.names
        return batch.select([name for name in self.names if name in names])

    def in_order(self, versions: Versions) -> pa.RecordBatch:
        """Return all of these columns, of versions in order."""
        return (
            with_specials(self.schema, versions.in_order(), self.names)
            if (DELTA in self.names)
            else versions.in_order()
        )


def _page(
    columns: _Columns, reach: _Reach, request: ScanVersions
) -> tuple[pa.Table, _Resume | None]:
    batches: list[pa.RecordBatch] = []
    count_max = min(max(request.row_count_max, 1), COLUMN_ROWS_MAX)
    count, size_bytes, upper = 0, 0, reach.upper
    for pieces, window_upper in windows(_sources(columns, reach, request), count_max):
        batch = columns.in_order(merged(columns.schema, pieces))
        if not count and request.lower_timestamp:
            batch = _from(batch, request.lower, request.lower_timestamp)
        batches.append(batch)
        count += batch.num_rows
        size_bytes += batch.nbytes
        if count >= count_max or size_bytes >= PAGE_BYTES_MAX:
            upper = reach.upper if window_upper is None else window_upper
            break
    keys = pa.chunked_array([batch.column(KEY) for batch in batches], pa.binary())
    table = pa.Table.from_batches(
        [pa.RecordBatch.from_arrays(it.columns[1:], schema=columns.output) for it in batches],
        columns.output,
    )
    shown = _fitting(table, count_max)
    if shown < len(table):
        return table.slice(0, shown), _place(keys, table.column(TIMESTAMP), shown)
    return table, _Resume(upper) if upper < request.upper else None


def _sources(columns: _Columns, reach: _Reach, request: ScanVersions) -> list[Source]:
    """Return, for each store and chunk, the versions of the range and no others."""

    def of_chunk(view: ChunkView) -> Iterator[pa.RecordBatch]:
        for batch in view.batches(request.lower, reach.upper, request.since):
            stamps = timestamps_of(batch)
            is_seen = (stamps > request.since) & (stamps <= request.timestamp)
            if is_seen.any():
                batch = columns.of(batch)
                yield batch if is_seen.all() else batch.filter(pa.array(is_seen))

    sources: list[Source] = [
        map(columns.of, batches_of_rows(columns.schema, rows, has_specials=store.has_marks))
        for store, rows in reach.in_memory()
    ]
    return [*sources, *map(of_chunk, reach.views)]


def _from(batch: pa.RecordBatch, key: Key, timestamp: Timestamp) -> pa.RecordBatch:
    """Return a batch without the versions of its first row that an earlier page has shown."""
    stamps = timestamps_of(batch)[: place_of(batch.column(KEY), successor(key))]
    count = int(np.count_nonzero(stamps > timestamp))
    return batch.slice(count)


def _fitting(table: pa.Table, count_max: int) -> int:
    """Return how many rows fit into an answer: at least one, if there is one."""
    return fitting_rows(table, min(len(table), count_max), PAGE_BYTES_MAX)


def _place(keys: pa.ChunkedArray, timestamps: pa.ChunkedArray, row: int) -> _Resume:
    """Return the place of a row that is not the first."""
    key = Key(keys[row].as_py())
    is_within = keys[row - 1].as_py() == key
    return _Resume(key, Timestamp(timestamps[row].as_py()) if is_within else NULL_TIMESTAMP)
