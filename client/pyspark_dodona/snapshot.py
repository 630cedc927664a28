"""The snapshot of a DataFrame: a table at one timestamp, held by a lease.

Owns: the data that all processes of a read need, and how each process holds the snapshot. The
driver's process that plans a read ends after that. So one reader number holds the snapshot, by a
long lease, and the number travels with the plan. A process that reads a part renews the lease
before it begins, and several times a minute. No process releases the snapshot, because Spark does
not report the end of a DataFrame to a data source.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dodona
from dodona._core.reading import condition
from dodona_wire.errors import MetadataChanged, SnapshotTooOld, TableNotMounted
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.types import ReaderId, Timestamp
from pyspark_dodona.columns import choose_columns
from pyspark_dodona.connection import connect
from pyspark_dodona.options import ReadOptions
from pyspark_dodona.ranges import Range, intersection, range_of

_NOT_KEPT_ANY_MORE = (
    "the versions of this snapshot may be removed. Call load() again, and pass no timestamp or a "
    "newer one. A longer option('lease_s', ...) holds an idle DataFrame for longer. The table's "
    "min_data_ttl says how long versions are kept that no snapshot holds"
)


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """All that a worker needs to read any part of the snapshot."""

    url: str
    path: str
    timestamp: Timestamp
    reader: ReaderId
    lease_ms: int
    table_columns: tuple[Column, ...]
    columns: tuple[Column, ...]
    """The columns of the table that the DataFrame has."""
    filter: str | None
    filtered_columns: tuple[str, ...]
    """The columns that the filter uses."""
    keys: Range
    """A range with the keys of all wanted rows."""
    split_rows: int
    versioned: bool
    """Whether the DataFrame has all versions up to the timestamp."""
    call_timeout_ms: int | None = None
    table: int = 0
    """The id of the table. 0 if the master did not report it."""

    @property
    def schema(self) -> TableSchema:
        """The schema of the whole table."""
        return TableSchema(self.table_columns)


def pin_snapshot(options: ReadOptions) -> TableSnapshot:
    """Choose the snapshot that a DataFrame shows, and hold it.

    Raises TableNotFound, TableNotMounted, SnapshotTooOld. Raises SchemaViolation for a column or a
    key that the table does not have, and InvalidRequest for a filter that is not valid."""
    db = connect(options)
    table = db.get_table(options.path)
    if any(it.state == "unmounted" for it in table.tablets):
        raise TableNotMounted(f"table {options.path} is not mounted: mount it, then read")
    schema = table.schema
    columns = choose_columns(schema.columns, options.columns, options.path)
    ranges: list[Range] = []
    filtered: tuple[str, ...] = ()
    if options.key_range is not None:
        ranges.append(range_of(schema, options.key_range))
    if options.filter is not None:
        wanted = condition.plan(schema, options.filter)
        ranges.append(Range(schema.load_bound(wanted.lower), schema.load_bound(wanted.upper)))
        filtered = wanted.columns
    keys = intersection(schema, ranges)
    lease_ms = options.lease_s * 1000
    with explained():
        held = db.hold_snapshot([options.path], options.timestamp, lease_ms)
    return TableSnapshot(
        options.url,
        options.path,
        held.timestamp,
        held.reader,
        lease_ms,
        schema.columns,
        columns,
        options.filter,
        filtered,
        keys,
        options.split_rows,
        options.versioned,
        options.call_timeout_ms,
        held.tables[options.path],
    )


def renewed(snapshot: TableSnapshot) -> dodona.Snapshot:
    """Return the snapshot, held by this process as well, while the program keeps the result. Raises
    SnapshotTooOld, and MetadataChanged if another table is there now."""
    db = connect(snapshot)
    with explained():
        held = db.hold_snapshot(
            [snapshot.path], snapshot.timestamp, snapshot.lease_ms, snapshot.reader
        )
    table = held.tables[snapshot.path]
    if 0 not in (table, snapshot.table) and table != snapshot.table:
        text = f"another table is at {snapshot.path} now: call load() again to read that table"
        raise MetadataChanged(text, table=snapshot.path)
    return held


@contextmanager
def explained() -> Iterator[None]:
    """Add to a SnapshotTooOld in the block what to do about it."""
    try:
        yield
    except SnapshotTooOld as error:
        text = f"{_NOT_KEPT_ANY_MORE}. Reason: {error.message}"
        raise SnapshotTooOld(text, **error.attributes) from error
