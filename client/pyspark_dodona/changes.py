"""Versions of rows as a DataFrame: the columns of the table, and columns that describe each
version.

Owns: the names and types of those columns, and the conversion of the client's batches to Spark's.
Spark SQL accepts the names without quotes. All columns except key columns may be null, because a
deletion has no values and an update has only some.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from dodona._core.reading.changes import AGGREGATED, CHANGE_TYPE, COLUMNS, TIMESTAMP
from dodona_wire.errors import SchemaViolation, SnapshotTooOld
from dodona_wire.rows.schema import Column
from pyspark_dodona.columns import spark_schema

if TYPE_CHECKING:
    import pyarrow

COMMIT_TIMESTAMP: Final = "_commit_timestamp"
_MARKS: Final = {
    TIMESTAMP: StructField(COMMIT_TIMESTAMP, LongType(), nullable=False),
    CHANGE_TYPE: StructField("_change_type", StringType(), nullable=False),
    COLUMNS: StructField("_changed_columns", ArrayType(StringType(), containsNull=True)),
    AGGREGATED: StructField("_aggregated_columns", ArrayType(StringType(), containsNull=True)),
}
"""The columns that describe a version, by the names that the client gives them."""


def changes_schema(columns: Sequence[Column], path: str) -> StructType:
    """Return the schema of a DataFrame of versions with these columns of the table. Raises
    SchemaViolation if the table has a column with the name of one that describes a version."""
    has_aggregates = any(column.aggregate for column in columns)
    marks = [field for name, field in _MARKS.items() if name != AGGREGATED or has_aggregates]
    names = {field.name for field in marks}
    for column in columns:
        if column.name in names:
            raise SchemaViolation(
                f"table {path} has a column {column.name!r}, which is also the name of a column "
                "that versions add: choose other columns by option('columns')"
            )
    fields = [
        StructField(field.name, field.dataType, field.nullable or column.sort_order is None)
        for field, column in zip(spark_schema(columns).fields, columns, strict=True)
    ]
    return StructType([*fields, *marks])


def renamed(batch: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
    """Return a batch of the client with the column names of a DataFrame."""
    names = [_MARKS[name].name if name in _MARKS else name for name in batch.schema.names]
    return batch.rename_columns(names)


def in_commit_order(table: "pyarrow.Table") -> "pyarrow.Table":
    """Return the versions sorted by timestamp, and then by key. `table` must be in key order, and
    each row may have several versions."""
    import pyarrow.compute

    order = pyarrow.compute.sort_indices(table, sort_keys=[(COMMIT_TIMESTAMP, "ascending")])
    return table.take(order)


def too_old(error: SnapshotTooOld, path: str, since: int) -> SnapshotTooOld:
    """Return the error for changes that are no longer complete, with what to do about it."""
    text = (
        f"some changes of table {path} after {since} were removed ({error.message}). The table "
        "keeps changes while the stream reads them, for 'lease_s' after that, and for its "
        "min_data_ttl in any case. Raise 'lease_s' or min_data_ttl above the longest pause of the "
        "stream. To continue, start with a new checkpoint, and with starting_timestamp='earliest' "
        "for all rows again, or 'latest' for changes from now on"
    )
    return SnapshotTooOld(text, **error.attributes)
