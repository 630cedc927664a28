"""Return what a read of a range sees of one tablet at a timestamp, page by page.

Owns: how much is in a page, and whether a page is made row by row or column by column. If the
active store has all rows, the page is made of Python objects. Otherwise the rows in memory join the
rows of chunks as columns. Locks are checked as for lookups. Changes nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pyarrow as pa

from dodona_tablets.core.rows.chunks.layout import KEY
from dodona_tablets.core.rows.chunks.rows import batches_of_rows
from dodona_tablets.core.rows.chunks.scanning import Page, page_of, rows_of_page
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.chunks.visibility import Visibility
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.version import (
    ALL_VERSIONS,
    LongHistory,
    Values,
    Version,
    chain_of,
    versions_until,
)
from dodona_tablets.core.tablet.snapshot import Look, blocker_of_range, values_of_hot_row
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.messages.data import ArrowPage, Scan, ScanArrow, ScanPage
from dodona_wire.rows.arrow import arrow_from_rows, stream_of
from dodona_wire.rows.keys import successor
from dodona_wire.types import Key

COLUMN_ROWS_MAX: Final = 65_536
"""The most rows of a page that is made column by column. All other work waits for some ms
meanwhile."""
WALKED_ROWS_MAX: Final = 10_000
"""The most rows that a page looks at one by one, which takes as long."""
HOT_VERSIONS_MIN: Final = 1_024
"""A row with more versions gets a page of its own, from its second scan on."""
PAGE_BYTES_MAX: Final = 24 << 20
"""The most bytes of columns in a page. If rows are long, a page has fewer of them, so that it fits
into a frame."""


def scan(tablet: Tablet, request: Scan) -> ScanPage | Transaction:
    """Return a page of rows as Python objects, or the transaction that it must wait for."""
    look = Look(tablet, request)
    if (found := _row_by_row(tablet, request, look)) is not None:
        keys, rows, resume = found
        answer = ScanPage(tuple(keys), tuple(rows), resume)
    else:
        snapshot, page = _page(tablet, request, look)
        answer = ScanPage(*rows_of_page(snapshot, page), page.resume)
    return _blocker(tablet, request, look, answer.resume) or answer


def scan_arrow(tablet: Tablet, request: ScanArrow) -> ArrowPage | Transaction:
    """Return a page of rows as Arrow, or the transaction that it must wait for."""
    look = Look(tablet, request)
    if (found := _row_by_row(tablet, request, look)) is not None:
        keys, rows, resume = found
        count, stream = len(keys), arrow_from_rows(tablet.schema, look.wanted, keys, rows)
    else:
        _, page = _page(tablet, request, look)
        resume = page.resume
        count, stream = page.table.num_rows, stream_of(page.table)
    return _blocker(tablet, request, look, resume) or ArrowPage(stream, count, resume)


def _blocker(
    tablet: Tablet, request: Scan | ScanArrow, look: Look, resume: Key | None
) -> Transaction | None:
    """Return the transaction that a page must wait for: one that holds locks in the range that the
    page looked at."""
    upper = request.upper if resume is None else resume
    return blocker_of_range(tablet, request.lower, upper, look.groups, look.at, look)


def _count_max(request: Scan | ScanArrow, tablet: Tablet) -> int:
    walked_count = sum([len(it) for it in tablet.stores.in_memory])
    by_columns = type(request) is ScanArrow and walked_count <= WALKED_ROWS_MAX
    wanted = max(request.row_count_max, 1)
    return min(wanted, COLUMN_ROWS_MAX if by_columns else WALKED_ROWS_MAX)


def _row_by_row(
    tablet: Tablet, request: Scan | ScanArrow, look: Look
) -> tuple[list[Key], list[Values], Key | None] | None:
    """Return a page of rows of the active store, or of one hot row at its beginning. Return None if
    the page must be made column by column."""
    if tablet.stores.is_flat:
        return _rows(tablet, request, look)
    key = tablet.stores.hot_rows.first(request.lower, request.upper)
    if key != request.lower or look.oldest:
        return None
    values = values_of_hot_row(tablet.stores, key, look)
    following = successor(key)
    resume = following if following < request.upper else None
    return ([], [], resume) if values is None else ([key], [values], resume)


def _rows(
    tablet: Tablet, request: Scan | ScanArrow, look: Look
) -> tuple[list[Key], list[Values], Key | None]:
    """Make a page row by row, of the active store."""
    keys: list[Key] = []
    found: list[Values] = []
    count_max, values_of = _count_max(request, tablet), look.values
    stores = tablet.stores
    hot = stores.hot_rows if stores.hot_rows.newest_timestamp else ()
    for key, newest in tablet.active.walk(request.lower, request.upper):
        try:
            values = values_of_hot_row(stores, key, look) if key in hot else values_of(newest)
        except LongHistory:
            values = values_of_hot_row(stores, key, look)
        if values is not None:
            keys.append(key)
            found.append(values)
            if len(keys) == count_max:
                return keys, found, successor(key)
    return keys, found, None


def _page(tablet: Tablet, request: Scan | ScanArrow, look: Look) -> tuple[Visibility, Page]:
    """Make a page column by column, of all stores."""
    schema, stores = tablet.schema, tablet.stores
    snapshot = Visibility(schema, look.wanted, look.at, look.oldest)
    hot = None if look.oldest else stores.hot_rows.first(request.lower, request.upper)
    upper = request.upper if hot is None else hot
    found_hot: dict[Key, None] = {}

    def source(layer: DynamicStore | ChunkView) -> Iterator[pa.RecordBatch]:
        if isinstance(layer, DynamicStore):
            rows = _in_sight(layer, request.lower, upper, look, found_hot)
            return batches_of_rows(schema, rows, has_specials=layer.has_marks)
        return _noted(layer.batches(request.lower, upper), look, found_hot)

    sources = [source(layer) for layer in (stores.active, *stores.layers)]
    page = _cut(page_of(snapshot, sources, _count_max(request, tablet)))
    for key in found_hot if not look.oldest else ():
        values_of_hot_row(stores, key, look)
    return snapshot, page if page.resume is not None else page._replace(resume=hot)


def _in_sight(
    store: DynamicStore, lower: Key, upper: Key, look: Look, found_hot: dict[Key, None]
) -> Iterator[tuple[Key, Version]]:
    """Yield each row with the versions that matter. A row with frequent writes has thousands of
    versions."""
    for key, newest in store.walk(lower, upper):
        if newest[3] is None:
            yield key, newest
            continue
        versions = versions_until(store.newest_at(key, look.at), look.at, look.wanted, ALL_VERSIONS)
        if len(versions) > HOT_VERSIONS_MIN:
            found_hot[key] = None
        if versions:
            yield key, versions[0] if len(versions) == 1 else chain_of(versions)  # type: ignore[misc]


def _noted(
    batches: Iterator[pa.RecordBatch], look: Look, found_hot: dict[Key, None]
) -> Iterator[pa.RecordBatch]:
    """Yield these batches, and note the rows with so many versions that to fold them takes long."""
    if look.columns is None:
        yield from batches
        return
    step = HOT_VERSIONS_MIN // 2
    for batch in batches:
        keys = batch.column(KEY).take(pa.array(range(0, batch.num_rows, step))).to_pylist()
        found_hot.update((Key(one), None) for one, next_one in pairwise(keys) if one == next_one)
        yield batch


def _cut(page: Page) -> Page:
    """Return the page with as many of its rows as fit into an answer: at least one."""
    count = fitting_rows(page.table, page.table.num_rows, PAGE_BYTES_MAX)
    if count == page.table.num_rows:
        return page
    keys = page.keys.slice(0, count)
    return Page(keys, page.table.slice(0, count), successor(keys[-1].as_py()))


def fitting_rows(table: pa.Table, count: int, size_bytes_max: int) -> int:
    """Return how many of the first `count` rows have `size_bytes_max` bytes at most, however uneven
    the rows are. The result is at least one if there is a row."""
    if table.slice(0, count).nbytes <= size_bytes_max:
        return count
    counts = range(1, count + 1)
    fitting = bisect_right(counts, size_bytes_max, key=lambda it: table.slice(0, it).nbytes)
    return max(fitting, 1)
