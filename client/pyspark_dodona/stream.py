"""The streaming source: the changes of a table in micro-batches, in commit order.

Owns: the offsets, the size of a micro-batch, and the lease that keeps the versions that a query has
not read yet. An offset is a timestamp up to which all changes were read. Spark asks one process for
offsets, as long as the query runs. Copies of this reader in other processes only read.

Invariants:
- A micro-batch is every version with start < timestamp ≤ end, whenever it is read, because the
  oracle had issued the end. So a micro-batch that Spark repeats has the same rows.
- All changes of a transaction are in one micro-batch.
- An offset also has the beginning of its micro-batch. Spark keeps the ends of micro-batches only.
  It asks again where a query begins until the first micro-batch is done. A later answer would leave
  out rows of this micro-batch.
- From the first call on, the snapshot at the offset that was committed last is held. Only a later
  snapshot replaces it. Its lease is how long a query may stop.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

import dodona
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    SchemaViolation,
    SnapshotTooOld,
    TableNotMounted,
    Unavailable,
)
from dodona_wire.types import NULL_TIMESTAMP, Timestamp
from pyspark_dodona.changes import changes_schema, in_commit_order, renamed, too_old
from pyspark_dodona.columns import arrow_for_spark, check_types, choose_columns
from pyspark_dodona.connection import connect
from pyspark_dodona.options import StreamReadOptions
from pyspark_dodona.ranges import Range, cut

if TYPE_CHECKING:
    import pyarrow

PART_ROWS: Final = 50_000
"""A micro-batch with fewer rows is read by one task, however many tablets the table has."""
BATCH_ROWS: Final = 65_536

Offset = dict[str, Any]
Counts = list[tuple[Timestamp, int]]
_TIMESTAMP: Final = "timestamp"
_SINCE: Final = "since"
_TABLE: Final = "table"


class ChangePart(InputPartition):
    """The changes of a range of rows between two timestamps."""

    def __init__(self, keys: Range, since: Timestamp, until: Timestamp) -> None:
        super().__init__((keys, since, until))
        self.keys = keys
        self.since = since
        self.until = until


def stream_schema(options: StreamReadOptions) -> StructType:
    """Return the columns of the stream. Raises TableNotFound, SchemaViolation."""
    table = connect(options).get_table(options.path)
    columns = choose_columns(table.schema.columns, options.columns, options.path)
    return changes_schema(columns, options.path)


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of changes, as the module describes. All errors are those of
    `dodona.errors`."""

    def __init__(self, options: StreamReadOptions, schema: StructType) -> None:
        table = connect(options).get_table(options.path)
        self._options = options
        self._columns = choose_columns(table.schema.columns, options.columns, options.path)
        self._schema = changes_schema(self._columns, options.path)
        if schema != self._schema:
            raise SchemaViolation(
                f"changes of table {options.path} are {self._schema.simpleString()}, not "
                f"{schema.simpleString()}: leave .schema(...) out, choose columns by "
                "option('columns'), and ask for changes by option('versioned', 'true')"
            )
        self._table: int | None = None
        self._initial: Offset | None = None
        self._held: dodona.Snapshot | None = None
        self._target: Timestamp | None = None
        self._counts: Counts = []
        self._counted = NULL_TIMESTAMP, NULL_TIMESTAMP
        """The timestamps between which `_counts` has counted changes."""

    # ---- where micro-batches begin and end

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset where a new query begins."""
        if self._initial is None:
            options, db = self._options, connect(self._options)
            table = self._identify(None)
            at = options.starting_timestamp
            if at is None:
                at = db.generate_timestamp()
                # After this read, writes without atomicity get timestamps above `at`.
                list(db.read_changes(options.path, at, at, columns=[]))
            self._keep(at)
            self._initial = {_TIMESTAMP: at, _SINCE: at, _TABLE: table}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch that the option sets."""
        return ReadMaxRows(self._options.max_rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query at the current timestamp. Later commits are for another run."""
        self._target = connect(self._options).generate_timestamp()
        self._counts = []

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch, or `start` if there are no new changes. While the
        table is not mounted, there are none, unless the query has a fixed end (trigger
        availableNow)."""
        options = self._options
        table, since = self._identify(start), Timestamp(start[_TIMESTAMP])
        if self._target is None and not _is_readable(connect(options).get_table(options.path)):
            return start
        self._keep(since)
        counts = self._counts_after(since)
        if not counts:
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = end_of(counts, most) or self._counted[1]
        return {_TIMESTAMP: end, _SINCE: since, _TABLE: table}

    def _counts_after(self, since: Timestamp) -> Counts:
        """Return the counts of versions after an offset, by time. One count serves all
        micro-batches that it makes."""
        left = [it for it in self._counts if it[0] > since]
        if left and since >= self._counted[0]:
            return left
        options, db = self._options, connect(self._options)
        until = self._target or db.generate_timestamp()
        if until <= since:
            return []
        with _Explained(options.path, since):
            self._counts = db.count_changes(options.path, since, until)
        self._counted = since, until
        return self._counts

    def commit(self, end: Offset) -> None:
        """Hold the snapshot at `end` instead of the one before, because all changes up to there
        were processed. While the table can't be reached, keep the one before."""
        known, self._held = self._held, None
        try:
            self._keep(Timestamp(end[_TIMESTAMP]))
        except (TableNotMounted, Unavailable):
            self._held = known
            return
        if known is not None:
            known.release()

    def stop(self) -> None:
        """Stop renewing the lease. From now on it runs out."""
        self._held = None

    # ---- micro-batches

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return ranges of keys. Each has whole tablets, and several of them if there are few
        changes."""
        options, db = self._options, connect(self._options)
        self._identify(end)
        since, until = Timestamp(end[_SINCE]), Timestamp(end[_TIMESTAMP])
        if start == end or since == until:
            return []
        self._keep(since)
        with _Explained(options.path, since):
            counts = db.count_changes(options.path, since, until)
        pivots = [it.pivot_key for it in db.get_table(options.path).tablets]
        part_count = min(-(-sum(count for _, count in counts) // PART_ROWS), len(pivots)) or 1
        firsts = [pivots[len(pivots) * at // part_count] for at in range(1, part_count)]
        return [ChangePart(keys, since, until) for keys in cut(Range(), firsts)]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """Return the versions of one range, by timestamp and then by key. All of them are in
        memory. `max_rows_per_batch` limits their number."""
        import pyarrow
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, ChangePart)
        options, since = self._options, partition.since
        schema = to_arrow_schema(self._schema, timezone="UTC")
        with _Explained(options.path, since):
            batches = connect(options).read_changes(
                options.path,
                since,
                partition.until,
                partition.keys.lower,
                partition.keys.upper,
                [column.name for column in self._columns],
            )
            found = [renamed(batch) for batch in batches]
        if found:
            table = pyarrow.Table.from_batches(found)
            check_types(self._columns, table.schema, options.path)
            ordered = in_commit_order(arrow_for_spark(self._columns, table, schema))
            yield from ordered.to_batches(max_chunksize=BATCH_ROWS)

    # ---- the table, and the snapshot that is held

    def _identify(self, offset: Offset | None) -> int:
        """Return the id of the table. Raises InvalidRequest if the offset belongs to another table
        that was at this path."""
        path = self._options.path
        if self._table is None:
            self._table = connect(self._options).get(f"{path}/@id")
        if offset is not None and offset.get(_TABLE) != self._table:
            raise InvalidRequest(
                f"the table at {path} was replaced since the stream began: start with a new "
                "checkpoint",
                table=path,
            )
        assert self._table is not None
        return self._table

    def _keep(self, at: Timestamp) -> None:
        """Hold the versions after an offset. If nothing of this query was committed yet, hold the
        versions that are left now."""
        known, options = self._held, self._options
        is_early = known is not None and (at == NULL_TIMESTAMP or known.timestamp <= at)
        if known is None or not is_early or not _is_firm(known):
            with _Explained(options.path, at):
                self._held = connect(options).hold_snapshot(
                    [options.path], at or None, options.lease_s * 1000
                )


def end_of(counts: Counts, row_count_max: int | None) -> Timestamp | None:
    """Return the largest timestamp up to which there are at most `row_count_max` versions. If the
    first step of the counts has more, return its timestamp. None means all of them."""
    if row_count_max is None:
        return None
    total, end = 0, None
    for at, count in counts:
        total += count
        if total > row_count_max:
            return end or at
        end = at
    return None


def _is_readable(table: dodona.TableInfo) -> bool:
    return all(it.state not in ("unmounted", "unmounting") for it in table.tablets)


def _is_firm(held: dodona.Snapshot) -> bool:
    try:
        held.check()
    except DodonaError:
        return False
    return True


class _Explained:
    """Adds to a SnapshotTooOld in its block what to do about it."""

    def __init__(self, path: str, since: Timestamp) -> None:
        self._path = path
        self._since = since

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SnapshotTooOld):
            raise too_old(error, self._path, self._since) from error
