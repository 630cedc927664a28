"""Add computed key columns to a DataFrame, so that Spark can divide and sort its rows by the key.

Owns: the way of these columns through Spark, which has no `farm_hash`. Runs in Spark's workers.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from dodona._core.writing.bulk import fit
from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.logical_arrow import user_array
from dodona_wire.rows.schema import Column, TableSchema
from pyspark_dodona.columns import check_type, spark_type

Batches = Callable[[Iterable[Any]], Iterator[Any]]


def with_computed(df: DataFrame, schema: TableSchema, path: str) -> DataFrame:
    """Return the DataFrame with the computed columns that it lacks. Raises SchemaViolation if it
    lacks another key column, or if a key column has a type that does not convert."""
    types = {field.name: field.dataType for field in df.schema.fields}
    missing = [it for it in schema.key_columns if it.expression and it.name not in types]
    if not missing:
        return df
    for column in schema.key_columns:
        if column.name in types:
            check_type(column, types[column.name], path)
        elif column.expression is None:
            text = f"the DataFrame lacks the key column {column.name!r} of table {path}"
            raise SchemaViolation(text)
    fields = [StructField(it.name, spark_type(it)) for it in missing]
    return df.mapInArrow(computing(schema, missing), StructType([*fields, *df.schema.fields]))


def computing(schema: TableSchema, missing: list[Column]) -> Batches:
    """Return a function of record batches, for `mapInArrow`. It puts the missing computed columns
    before the others."""
    names = [it.name for it in schema.key_columns]
    added = [it.name for it in missing]

    def made(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            given = batch.select([it for it in batch.schema.names if it in names])
            keys = fit(schema, given, "delete")
            arrays = [_of_spark(it, keys.column(it.name)) for it in missing]
            yield pyarrow.RecordBatch.from_arrays(
                [*arrays, *batch.columns], names=[*added, *batch.schema.names]
            )

    return made


def _of_spark(column: Column, stored: Any) -> Any:
    """Return a stored column in the Arrow type of the column's type in Spark."""
    from pyspark.sql.pandas.types import to_arrow_type

    kind = column.logical
    array = stored if kind.is_stored else user_array(kind, stored)
    wanted = to_arrow_type(spark_type(column))
    return array.cast(wanted)
