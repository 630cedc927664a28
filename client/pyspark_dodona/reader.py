"""Reading a table as a DataFrame: one snapshot in parts, Arrow all the way.

Owns: the plan. A partition is a range of keys and not a tablet: tablets may move or be cut while
the job runs. Of a table without atomicity each tablet is seen as it was when it was first read at
the timestamp: of a bulk write that is under way that is a part.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from dodona_wire.errors import SchemaViolation
from pyspark_dodona.changes import changes_schema
from pyspark_dodona.columns import spark_schema
from pyspark_dodona.filters import expression_of, key_range_of
from pyspark_dodona.pages import read_part
from pyspark_dodona.ranges import Range, cut, intersection, is_empty
from pyspark_dodona.snapshot import TableSnapshot, explained, renewed

if TYPE_CHECKING:
    import pyarrow

PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The program that Spark plans a read in, if and only if its switch for pushdown is on."""


class ReadPartition(InputPartition):
    """Some rows of a snapshot."""

    def __init__(self, keys: Range) -> None:
        super().__init__(keys)
        self.keys = keys


def schema_of(snapshot: TableSnapshot) -> StructType:
    """The snapshot's columns as Spark has them. Raises SchemaViolation for versions of a table that
    has columns of the names that versions have."""
    if snapshot.versioned:
        return changes_schema(snapshot.columns, snapshot.path)
    return spark_schema(snapshot.columns)


def reader_of(
    snapshot: TableSnapshot, schema: StructType, *, pushdown: bool | None
) -> "SnapshotReader":
    """One that takes filters, if it is to, or for None if Spark's switch is on: with it off, Spark
    refuses readers that could. Raises SchemaViolation if `schema` is not the snapshot's."""
    is_wanted = _is_switched_on() if pushdown is None else pushdown
    return (PushdownReader if is_wanted else SnapshotReader)(snapshot, schema)


def _is_switched_on() -> bool:
    """Spark says it in no other way."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHDOWN_WORKER in sys.modules or getattr(main, "name", None) == PUSHDOWN_WORKER


class SnapshotReader(DataSourceReader):
    """Planned on the driver, copied to the workers."""

    def __init__(self, snapshot: TableSnapshot, schema: StructType) -> None:
        expected = schema_of(snapshot)
        if schema != expected:
            raise SchemaViolation(
                f"table {snapshot.path} is read as {expected.simpleString()}, not as "
                f"{schema.simpleString()}: leave .schema(...) out, and choose by option('columns')"
            )
        self._snapshot = snapshot
        self._schema = expected
        self._filters: tuple[Filter, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """One a tablet, or more if it has many rows. Never empty: Spark would make one of its own.
        Raises SnapshotTooOld, TableNotMounted, Unavailable."""
        snapshot = self._snapshot
        schema = snapshot.schema
        keys = intersection(schema, [snapshot.keys, key_range_of(schema, self._filters)])
        if is_empty(schema, keys):
            return [ReadPartition(keys)]
        held = renewed(snapshot)
        cuts = held.split(snapshot.path, snapshot.split_rows, keys.lower, keys.upper)
        return [ReadPartition(it) for it in cut(keys, cuts)]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The rows of one partition, in key order. Raises SnapshotTooOld, SchemaViolation."""
        assert isinstance(partition, ReadPartition)
        with explained():
            yield from read_part(self._snapshot, self._schema, self._filters, partition.keys)


class PushdownReader(SnapshotReader):
    """With filters of the DataFrame, as far as they are understood."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Keep those that reading can apply. → the others, which Spark applies itself."""
        columns = self._snapshot.columns
        self._filters = tuple([it for it in filters if expression_of(columns, it) is not None])
        return [it for it in filters if expression_of(columns, it) is None]
