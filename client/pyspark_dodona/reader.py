"""Reading a table as a DataFrame: one snapshot, one partition a tablet, Arrow all the way.

Owns: the snapshot (a table at one timestamp, pinned once on the driver) and its partitions. A
partition is a range of keys and not a tablet: tablets may move or be cut while the job runs.
Of a table without atomicity a snapshot is only as firm as its writers' clocks: a bulk write that is
under way may still add rows that lie before the timestamp.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dodona.errors import SchemaViolation, TableNotMounted
from dodona.schema import Column
from dodona.types import Timestamp
from pyspark_dodona.columns import arrow_for_spark, choose_columns, spark_schema
from pyspark_dodona.connection import connect
from pyspark_dodona.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS_MAX: Final = 65_536

Bound = tuple[Any, ...] | None
"""Leading key column values, or None for no bound."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one timestamp: all that a worker needs to know to read any part of it."""

    url: str
    path: str
    timestamp: Timestamp
    columns: tuple[Column, ...]
    pivot_keys: tuple[tuple[Any, ...], ...]


class KeyRange(InputPartition):
    """The rows of lower ≤ key < upper."""

    def __init__(self, lower: Bound, upper: Bound) -> None:
        super().__init__((lower, upper))
        self.lower = lower
        self.upper = upper


def pin_snapshot(options: ReadOptions) -> Snapshot:
    """Fix the timestamp, the columns and the partitions of a read.

    Raises TableNotFound, TableNotMounted, SchemaViolation for a column that is not there.
    """
    db = connect(options.url)
    table = db.get_table(options.path)
    if not table.is_mounted:
        raise TableNotMounted(f"table {options.path} is not mounted: mount it, then read")
    timestamp = db.generate_timestamp() if options.timestamp is None else options.timestamp
    return Snapshot(
        options.url,
        options.path,
        timestamp,
        choose_columns(table.schema.columns, options.columns, options.path),
        tuple(tablet.pivot_key for tablet in table.tablets),
    )


def schema_of(snapshot: Snapshot) -> StructType:
    """The snapshot's columns as Spark has them."""
    return spark_schema(snapshot.columns)


class SnapshotReader(DataSourceReader):
    """Planned on the driver, copied to the workers."""

    def __init__(self, snapshot: Snapshot, schema: StructType) -> None:
        expected = schema_of(snapshot)
        if schema != expected:
            raise SchemaViolation(
                f"table {snapshot.path} is read as {expected.simpleString()}, not as "
                f"{schema.simpleString()}: leave .schema(...) out, and choose by option('columns')"
            )
        self._snapshot = snapshot
        self._schema = expected

    def partitions(self) -> list[InputPartition]:
        """One a tablet. Never empty, since the first tablet begins below every key."""
        lowers: list[Bound] = [pivot or None for pivot in self._snapshot.pivot_keys]
        assert lowers, "a table has at least one tablet"
        uppers: list[Bound] = [*lowers[1:], None]
        return [KeyRange(lower, upper) for lower, upper in zip(lowers, uppers, strict=True)]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The rows of one partition, in key order."""
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, KeyRange)
        snapshot = self._snapshot
        rows = connect(snapshot.url).read_arrow(
            snapshot.path,
            lower=partition.lower,
            upper=partition.upper,
            columns=[column.name for column in snapshot.columns],
            timestamp=snapshot.timestamp,
        )
        table = arrow_for_spark(rows, to_arrow_schema(self._schema, timezone="UTC"))
        yield from table.to_batches(max_chunksize=BATCH_ROWS_MAX)
