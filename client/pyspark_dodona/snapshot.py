"""The snapshot that a DataFrame is: a table at one timestamp, held by a lease.

Owns: what all processes of a read have to know, and how each of them holds the snapshot. The
processes of the driver that plan a read end with it: so the snapshot is held under one reader's
name, which travels with the plan, by a lease that is long, and whoever reads a part renews it
before, and several times a minute meanwhile. Nobody lets go of it: a DataFrame has no end that a
data source would hear of.
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
from pyspark_dodona.ranges import Range, intersection

_NOT_KEPT_ANY_MORE = (
    "the table does not keep any more what it showed then: load() it anew, in time; "
    "a longer option('lease_s', ...) holds a DataFrame that is idle for longer, and the table's "
    "min_data_ttl says how long everything is kept that nobody holds"
)


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """All that a worker needs to know to read any part of it."""

    url: str
    path: str
    timestamp: Timestamp
    reader: ReaderId
    lease_ms: int
    table_columns: tuple[Column, ...]
    columns: tuple[Column, ...]
    """What the DataFrame has of them."""
    filter: str | None
    filtered_columns: tuple[str, ...]
    """What the filter looks at."""
    keys: Range
    """No row that is wanted has a key outside."""
    split_rows: int
    versioned: bool
    """Whether the DataFrame has all versions up to the timestamp."""
    call_timeout_ms: int | None = None
    table: int = 0
    """Its id; 0 if the master did not say."""

    @property
    def schema(self) -> TableSchema:
        """Of the whole table."""
        return TableSchema(self.table_columns)


def pin_snapshot(options: ReadOptions) -> TableSnapshot:
    """Fix what a DataFrame shows, and have it kept.

    Raises TableNotFound, TableNotMounted, SnapshotTooOld; SchemaViolation for a column or a key
    that the table does not have, InvalidRequest for a filter that is none.
    """
    db = connect(options)
    table = db.get_table(options.path)
    if any(it.state == "unmounted" for it in table.tablets):
        raise TableNotMounted(f"table {options.path} is not mounted: mount it, then read")
    schema = table.schema
    columns = choose_columns(schema.columns, options.columns, options.path)
    ranges: list[Range] = []
    filtered: tuple[str, ...] = ()
    if options.key_range is not None:
        ranges.append(Range(options.key_range.lower, options.key_range.upper))
    if options.filter is not None:
        wanted = condition.plan(schema, options.filter)
        ranges.append(Range(wanted.lower, wanted.upper))
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
    """The snapshot, held by this process as well, for as long as somebody has the result.
    Raises SnapshotTooOld; MetadataChanged if another table is there by now."""
    db = connect(snapshot)
    with explained():
        held = db.hold_snapshot(
            [snapshot.path], snapshot.timestamp, snapshot.lease_ms, snapshot.reader
        )
    table = held.tables[snapshot.path]
    if 0 not in (table, snapshot.table) and table != snapshot.table:
        text = f"another table is at {snapshot.path} since the DataFrame was loaded: load() it anew"
        raise MetadataChanged(text, table=snapshot.path)
    return held


@contextmanager
def explained() -> Iterator[None]:
    """SnapshotTooOld, with what is to be done."""
    try:
        yield
    except SnapshotTooOld as error:
        text = f"{error.message}: {_NOT_KEPT_ANY_MORE}"
        raise SnapshotTooOld(text, **error.attributes) from error
