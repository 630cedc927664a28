"""Make a page of a scan: the rows that a reader sees in several sources, up to a number of rows.

Owns: how much a page looks at, and where the next page begins. `visibility` decides which versions
are seen. `snapshot` checks locks, since it has the rows in memory.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from dodona_tablets.core.rows.chunks.layout import KEY
from dodona_tablets.core.rows.chunks.merging import Source, windows
from dodona_tablets.core.rows.chunks.visibility import Visibility
from dodona_wire.rows.keys import successor
from dodona_wire.rows.schema import Column
from dodona_wire.types import Key

FIRST_ROWS_MIN: Final = 256
"""The least rows of the first window. A smaller one would not be faster."""
LOOKED_AT_MAX: Final = 1_000_000
"""The most versions that a page looks at. It may end without a row: most versions may be deletions,
or too new."""

_decode: Final = msgspec.msgpack.Decoder().decode


class Page(NamedTuple):
    """One page: rows in key order."""

    keys: pa.ChunkedArray
    """The encoded key of each row."""
    table: pa.Table
    """The key columns and the wanted columns, of type `arrow_schema(schema, wanted)`. Its chunks
    are slices of the sources where that is possible."""
    resume: Key | None
    """Where the next page begins. None if there is no next page."""


def page_of(
    snapshot: Visibility,
    sources: Sequence[Source],
    row_count_max: int,
    looked_at_max: int = LOOKED_AT_MAX,
) -> Page:
    """Return the first rows of the sources, `row_count_max` at most. The sources are cut to the
    requested range.

    Fewer rows do not mean that there are no more. After about `looked_at_max` versions the page
    ends, perhaps without a row, and says where to resume.
    """
    batches: list[pa.RecordBatch] = []
    sources = [_narrowed(snapshot, source) for source in sources]
    rows_left, resume = row_count_max, None
    for pieces, upper in windows(sources, max(row_count_max, FIRST_ROWS_MIN)):
        looked_at_max -= sum([piece.num_rows for piece in pieces])
        seen = snapshot.rows_of(pieces)
        if seen is not None:
            batches.append(seen.slice(0, rows_left))
            rows_left -= batches[-1].num_rows
        if not rows_left:
            resume = successor(batches[-1].column(KEY)[-1].as_py())
            break
        if looked_at_max <= 0:
            resume = upper
            break
    return _page(snapshot, batches, resume)


def _narrowed(snapshot: Visibility, source: Source) -> Iterator[pa.RecordBatch]:
    """Yield the batches with the columns that matter. A row with frequent writes fills whole
    batches, which are held together later. So their hidden versions are removed first."""
    for batch in source:
        keys, batch = batch.column(KEY), snapshot.columns_of(batch)
        is_one_row = len(keys) > 1 and keys[0] == keys[-1]
        yield snapshot.without_hidden(batch) if is_one_row else batch


def _page(snapshot: Visibility, batches: list[pa.RecordBatch], resume: Key | None) -> Page:
    keys = pa.chunked_array([batch.column(KEY) for batch in batches], pa.binary())
    rows = [
        pa.RecordBatch.from_arrays(batch.columns[1:], schema=snapshot.arrow_schema)
        for batch in batches
    ]
    return Page(keys, pa.Table.from_batches(rows, snapshot.arrow_schema), resume)


def rows_of_page(
    snapshot: Visibility, page: Page
) -> tuple[tuple[Key, ...], tuple[tuple[Any, ...], ...]]:
    """Return the same rows as Python objects: keys, and the values of the wanted columns."""
    columns = snapshot.schema.columns_of(snapshot.wanted)
    if not columns:
        return tuple(page.keys.to_pylist()), ((),) * len(page.keys)
    values = [_values(column, page.table.column(column.name)) for column in columns]
    return tuple(page.keys.to_pylist()), tuple(zip(*values, strict=True))


def _values(column: Column, data: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = data.to_pylist()
    if column.type != "any":
        return values
    return [None if value is None else _decode(value) for value in values]
