"""Read a table as a DataFrame: one snapshot in parts, as Arrow data.

Owns: the plan. A partition is a range of keys and not a tablet, because tablets may move or be cut
while the job runs. In a table without atomicity, a read sees each tablet as it was at the first
read at the timestamp. So it may see only a part of a bulk write that is in progress.
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
"""The program in which Spark plans a read if its setting for pushdown is on, and only then."""


class ReadPartition(InputPartition):
    """A range of the rows of a snapshot."""

    def __init__(self, keys: Range) -> None:
        super().__init__(keys)
        self.keys = keys


def schema_of(snapshot: TableSnapshot) -> StructType:
    """Return the columns of the snapshot with Spark's types. Raises SchemaViolation for versions if
    a column of the table has the name of a column that versions add."""
    if snapshot.versioned:
        return changes_schema(snapshot.columns, snapshot.path)
    return spark_schema(snapshot.columns)


def reader_of(
    snapshot: TableSnapshot, schema: StructType, *, pushdown: bool | None
) -> "SnapshotReader":
    """Return a reader. It takes filters if `pushdown` is true, or if it is None and Spark's setting
    is on. If the setting is off, Spark refuses readers that can take filters. Raises
    SchemaViolation if `schema` is not that of the snapshot."""
    is_wanted = _is_switched_on() if pushdown is None else pushdown
    return (PushdownReader if is_wanted else SnapshotReader)(snapshot, schema)


def _is_switched_on() -> bool:
    """Return whether Spark's setting for pushdown is on. There is no other way to find out."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHDOWN_WORKER in sys.modules or getattr(main, "name", None) == PUSHDOWN_WORKER


class SnapshotReader(DataSourceReader):
    """A reader of a snapshot. Spark plans it on the driver, and copies it to the workers."""

    def __init__(self, snapshot: TableSnapshot, schema: StructType) -> None:
        expected = schema_of(snapshot)
        if schema != expected:
            raise SchemaViolation(
                f"table {snapshot.path} is read as {expected.simpleString()}, not as "
                f"{schema.simpleString()}: leave .schema(...) out, and choose columns by "
                "option('columns')"
            )
        self._snapshot = snapshot
        self._schema = expected
        self._filters: tuple[Filter, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each tablet, or more if the tablet has many rows. The list is
        never empty, because Spark would add a partition of its own. Raises SnapshotTooOld,
        TableNotMounted, Unavailable."""
        snapshot = self._snapshot
        schema = snapshot.schema
        keys = intersection(schema, [snapshot.keys, key_range_of(schema, self._filters)])
        if is_empty(schema, keys):
            return [ReadPartition(keys)]
        held = renewed(snapshot)
        cuts = held.split(snapshot.path, snapshot.split_rows, keys.lower, keys.upper)
        return [ReadPartition(it) for it in cut(keys, cuts)]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """Return the rows of one partition, in key order. Raises SnapshotTooOld,
        SchemaViolation."""
        assert isinstance(partition, ReadPartition)
        with explained():
            yield from read_part(self._snapshot, self._schema, self._filters, partition.keys)


class PushdownReader(SnapshotReader):
    """A reader that applies the filters of the DataFrame that it understands."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Keep the filters that reads can apply. Returns the others, which Spark applies itself."""
        columns = self._snapshot.columns
        self._filters = tuple([it for it in filters if expression_of(columns, it) is not None])
        return [it for it in filters if expression_of(columns, it) is None]
