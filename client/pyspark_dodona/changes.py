"""Versions of rows as a DataFrame has them: the table's columns, and what each version is.

Owns: the names and types of those columns, which are valid in Spark SQL without quotes, and the
step from the client's batches to Spark's. All columns but those of the key may be null, since a
deletion has no values and an update has some.
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
"""What the client calls them, and what they are here."""


def changes_schema(columns: Sequence[Column], path: str) -> StructType:
    """The columns of a DataFrame of versions, given those of the table that it has. Raises
    SchemaViolation if the table has a column of such a name itself."""
    has_aggregates = any(column.aggregate for column in columns)
    marks = [field for name, field in _MARKS.items() if name != AGGREGATED or has_aggregates]
    names = {field.name for field in marks}
    for column in columns:
        if column.name in names:
            raise SchemaViolation(
                f"table {path} has a column {column.name!r}, which is what versions have "
                "themselves: choose others by option('columns')"
            )
    fields = [
        StructField(field.name, field.dataType, field.nullable or column.sort_order is None)
        for field, column in zip(spark_schema(columns).fields, columns, strict=True)
    ]
    return StructType([*fields, *marks])


def renamed(batch: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
    """A batch of the client's, with the names that columns have here."""
    names = [_MARKS[name].name if name in _MARKS else name for name in batch.schema.names]
    return batch.rename_columns(names)


def in_commit_order(table: "pyarrow.Table") -> "pyarrow.Table":
    """Versions by their timestamps, and those of one timestamp in key order: that of a table in
    which they are in key order, one after the other where a row has several."""
    import pyarrow.compute

    order = pyarrow.compute.sort_indices(table, sort_keys=[(COMMIT_TIMESTAMP, "ascending")])
    return table.take(order)


def too_old(error: SnapshotTooOld, path: str, since: int) -> SnapshotTooOld:
    """The refusal of changes that are not all there any more, with what to do about it."""
    text = (
        f"the changes of table {path} after {since} are not all there any more ({error.message}). "
        "They were kept for as long as somebody read on from there and for 'lease_s' after that, "
        "and for the table's min_data_ttl in any case: raise those to be longer than the stream "
        "ever stops. To go on, begin anew, with a new checkpoint: either with "
        "starting_timestamp='earliest', which gives all rows once more, or with what has changed "
        "since now"
    )
    return SnapshotTooOld(text, **error.attributes)
