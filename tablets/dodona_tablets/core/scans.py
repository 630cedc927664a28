"""What a read of a range sees of one tablet at a timestamp, page by page.

Owns: how much is in a page, and whether it is made row by row or column by column: where all rows
are in the active store there are Python objects; where chunks have some, what lies in memory joins
them as columns. Locks are looked at as lookups do. Changes nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from dodona._core.arrow import arrow_from_rows, stream_of
from dodona._core.messages import ArrowPage, Scan, ScanArrow, ScanPage
from dodona.keys import successor
from dodona.types import Key
from dodona_tablets.core.chunks.rows import batches_of_rows
from dodona_tablets.core.chunks.scanning import Page, page_of, rows_of_page
from dodona_tablets.core.chunks.view import ChunkView
from dodona_tablets.core.chunks.visibility import Snapshot
from dodona_tablets.core.snapshot import Look, blocker_of_range
from dodona_tablets.core.store import DynamicStore
from dodona_tablets.core.tablet import Tablet
from dodona_tablets.core.transaction import Transaction
from dodona_tablets.core.version import Values, Version, chain_of, versions_until

COLUMN_ROWS_MAX: Final = 65_536
"""In a page that is made column by column: everybody else waits for some ms."""
WALKED_ROWS_MAX: Final = 10_000
"""That are looked at one by one for a page, which takes as long."""
PAGE_BYTES_MAX: Final = 24 << 20
"""Of columns: a page of longer rows has fewer of them, so that it fits into a frame."""


def scan(tablet: Tablet, request: Scan) -> ScanPage | Transaction:
    """A page of rows as Python objects."""
    look = Look(tablet, request)
    if tablet.stores.is_flat:
        keys, rows, resume = _rows(tablet, request, look)
        answer = ScanPage(tuple(keys), tuple(rows), resume)
    else:
        snapshot, page = _page(tablet, request, look)
        answer = ScanPage(*rows_of_page(snapshot, page), page.resume)
    return _blocker(tablet, request, look, answer.resume) or answer


def scan_arrow(tablet: Tablet, request: ScanArrow) -> ArrowPage | Transaction:
    """A page of rows as Arrow."""
    look = Look(tablet, request)
    if tablet.stores.is_flat:
        keys, rows, resume = _rows(tablet, request, look)
        count, stream = len(keys), arrow_from_rows(tablet.schema, look.wanted, keys, rows)
    else:
        _, page = _page(tablet, request, look)
        resume = page.resume
        count, stream = page.table.num_rows, stream_of(page.table)
    return _blocker(tablet, request, look, resume) or ArrowPage(stream, count, resume)


def _blocker(
    tablet: Tablet, request: Scan | ScanArrow, look: Look, resume: Key | None
) -> Transaction | None:
    """Whom a page must wait for: those who hold locks in what it looked at."""
    upper = request.upper if resume is None else resume
    return blocker_of_range(tablet, request.lower, upper, look.groups, look.at)


def _count_max(request: Scan | ScanArrow, tablet: Tablet) -> int:
    walked_count = sum([len(it) for it in tablet.stores.in_memory])
    by_columns = type(request) is ScanArrow and walked_count <= WALKED_ROWS_MAX
    wanted = max(request.row_count_max, 1)
    return min(wanted, COLUMN_ROWS_MAX if by_columns else WALKED_ROWS_MAX)


def _rows(
    tablet: Tablet, request: Scan | ScanArrow, look: Look
) -> tuple[list[Key], list[Values], Key | None]:
    """Row by row, of the active store."""
    keys: list[Key] = []
    found: list[Values] = []
    count_max, values_of = _count_max(request, tablet), look.values
    for key, newest in tablet.active.walk(request.lower, request.upper):
        values = values_of(newest)
        if values is not None:
            keys.append(key)
            found.append(values)
            if len(keys) == count_max:
                return keys, found, successor(key)
    return keys, found, None


def _page(tablet: Tablet, request: Scan | ScanArrow, look: Look) -> tuple[Snapshot, Page]:
    """Column by column, of all stores."""
    schema, stores = tablet.schema, tablet.stores
    snapshot = Snapshot(schema, look.wanted, look.at, look.oldest)

    def source(layer: DynamicStore | ChunkView) -> Iterator[pa.RecordBatch]:
        if isinstance(layer, DynamicStore):
            rows = _in_sight(layer.walk(request.lower, request.upper), look)
            return batches_of_rows(schema, rows, has_specials=layer.has_marks)
        return layer.batches(request.lower, request.upper)

    sources = [source(layer) for layer in (stores.active, *stores.layers)]
    return snapshot, _cut(page_of(snapshot, sources, _count_max(request, tablet)))


def _in_sight(rows: Iterator[tuple[Key, Version]], look: Look) -> Iterator[tuple[Key, Version]]:
    """Each row with the versions that matter: one that is written all the time has thousands."""
    wanted = look.wanted or -1
    for key, newest in rows:
        if newest[3] is None:
            yield key, newest
        elif (chain := chain_of(versions_until(newest, look.at, wanted))) is not None:
            yield key, chain


def _cut(page: Page) -> Page:
    """As many of its rows as fit into an answer; at least one."""
    count = fitting_rows(page.table, page.table.num_rows, PAGE_BYTES_MAX)
    if count == page.table.num_rows:
        return page
    keys = page.keys.slice(0, count)
    return Page(keys, page.table.slice(0, count), successor(keys[-1].as_py()))


def fitting_rows(table: pa.Table, count: int, size_bytes_max: int) -> int:
    """How many of the first so many rows have so many bytes at most, however uneven they are; at
    least one, if there is one."""
    if table.slice(0, count).nbytes <= size_bytes_max:
        return count
    counts = range(1, count + 1)
    fitting = bisect_right(counts, size_bytes_max, key=lambda it: table.slice(0, it).nbytes)
    return max(fitting, 1)
