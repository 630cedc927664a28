"""The rows of one part of a snapshot: from pages of the client to batches for Spark.

Owns: the steps of a page in a task. It is read one page ahead, filtered, and converted to Spark's
types. A task has a few pages in memory, however long its part is. Spark checks the schema of its
first batch only. So each batch is checked here.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

import dodona
from dodona._core.reading import condition
from dodona._io.computing import compute
from dodona_wire.types import NULL_TIMESTAMP
from pyspark_dodona.changes import renamed
from pyspark_dodona.columns import arrow_for_spark, check_types
from pyspark_dodona.connection import connect
from pyspark_dodona.filters import expression_of
from pyspark_dodona.ranges import Range, is_empty
from pyspark_dodona.snapshot import TableSnapshot, renewed

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS: Final = 65_536
"""Small batches are joined until they have this many rows, or the size below."""
BATCH_BYTES: Final = 8 << 20

Item = TypeVar("Item")


def read_part(
    snapshot: TableSnapshot, schema: StructType, filters: Sequence[Filter], keys: Range
) -> "Iterator[pyarrow.RecordBatch]":
    """Return the rows that all filters keep, in key order.

    Raises the errors of reads, SnapshotTooOld if the snapshot was not held until the end, and
    SchemaViolation if the columns changed."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if is_empty(snapshot.schema, keys):
        return
    wanted = [it.name for it in snapshot.columns]
    names = [*wanted, *[it for it in snapshot.filtered_columns if it not in wanted]]
    expected = to_arrow_schema(schema, timezone="UTC")
    held = renewed(snapshot)
    if snapshot.versioned:
        batches = _versions(snapshot, held, keys, names)
    else:
        batches = held.read_batches(snapshot.path, keys.lower, keys.upper, names)
    keep = _Keep(snapshot, filters)
    for table in ahead(gathered(batches)):
        check_types(snapshot.columns, table.schema, snapshot.path)
        rows = keep(table)
        if rows.num_rows:
            yield from arrow_for_spark(snapshot.columns, rows, expected).to_batches(
                max_chunksize=BATCH_ROWS
            )


def _versions(
    snapshot: TableSnapshot, held: dodona.Snapshot, keys: Range, names: Sequence[str]
) -> "Iterator[pyarrow.RecordBatch]":
    """Return all versions that are left. Tablets never refuse this read as too old. Only the holder
    of the snapshot knows that none of its versions was removed, so this checks the hold. Raises
    SnapshotTooOld."""
    read = connect(snapshot).read_changes
    at, ends = snapshot.timestamp, (keys.lower, keys.upper)
    for batch in read(snapshot.path, NULL_TIMESTAMP, at, *ends, names):
        held.check()
        yield renamed(batch)
    held.check()


class _Keep:
    """Keeps the rows of a table that match the filters."""

    def __init__(self, snapshot: TableSnapshot, filters: Sequence[Filter]) -> None:
        self._condition: condition.Filter | None = None
        if snapshot.filter is not None:
            columns = snapshot.filtered_columns
            self._condition = condition.Filter(snapshot.schema, snapshot.filter, columns)
        self._expressions = [expression_of(snapshot.columns, it) for it in filters]

    def __call__(self, table: "pyarrow.Table") -> "pyarrow.Table":
        for expression in self._expressions:
            table = table.filter(expression)
        if self._condition is not None and table.num_rows:
            kept = partial(self._condition, table)
            table = compute(kept, self._condition.interrupt)
        return table


def gathered(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.Table]":
    """Join batches until they are worth the calls that each of them costs."""
    import pyarrow

    held: list[Any] = []
    row_count = size_bytes = 0
    for batch in batches:
        held.append(batch)
        row_count += batch.num_rows
        size_bytes += batch.nbytes
        if row_count >= BATCH_ROWS or size_bytes >= BATCH_BYTES:
            yield pyarrow.Table.from_batches(held).combine_chunks()
            held, row_count, size_bytes = [], 0, 0
    if held:
        yield pyarrow.Table.from_batches(held).combine_chunks()


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Return the same items, while another thread makes the next one."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="dodona-pages") as others:
        coming = others.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = others.submit(next, items, end)
            yield item  # type: ignore[misc]
