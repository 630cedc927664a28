"""The entry point for Spark: `bulk_write` writes a DataFrame to a table.

    import dodona.spark

    written = dodona.spark.bulk_write(frame, "//bank/entries", url=url, atomicity="none")
    print(written.row_count, written.duration_s)

Reads and writes with `format("dodona")` need no name of this module. Import it anyway, before the
session starts. The import sets `PYSPARK_PYTHON` to this Python, unless the variable is set. Without
it, Spark's workers run the first `python3` on PATH. That Python may not have Dodona, and then Spark
reports DATA_SOURCE_NOT_FOUND.

Owns: the public names. The import of this module loads neither pyspark nor the connector. Its
functions load them. The extra `spark` installs them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from dodona._io.spark_python import choose_this_python
from dodona_wire.errors import InvalidRequest
from dodona_wire.types import Timestamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BulkWrite", "bulk_write", "register"]

choose_this_python()


@dataclass(frozen=True, slots=True)
class BulkWrite:
    """The result of a bulk write."""

    table: str
    row_count: int
    """The rows of the DataFrame. Rows with the same key all count. 0 if the write is skipped."""
    partition_count: int
    """The number of tasks that wrote."""
    began_at: datetime
    """The beginning of the write, in UTC, by the clock of this machine."""
    duration_s: float
    commit_timestamp: Timestamp | None
    """The timestamp at which all rows became visible. None with atomicity `"none"`, where no such
    timestamp exists."""
    deleted_count: int = 0
    """The number of rows that an overwrite removed: old rows that are not among the new ones."""
    is_skipped: bool = False
    """Whether the version of the application was published before, at `commit_timestamp`. Then
    nothing was written."""


def bulk_write(
    df: "DataFrame",
    table: str,
    *,
    url: str,
    mode: str = "append",
    last_by: str | Sequence[str] = (),
    partitions: int | None = None,
    long_rows: bool = False,
    progress: bool = False,
    **options: Any,
) -> BulkWrite:
    """Write all rows of a DataFrame to a table, sorted by key. One task writes the rows of each
    part of the table.

    This needs a shuffle and a sort, and makes the fewest chunks and requests.

    - `mode`, `options`: as for `df.write.format("dodona")`, for example `atomicity="none"` or
      `write_mode="delete"`. Values may also be numbers and booleans, and dicts for options that
      take JSON.
    - `last_by`: columns that choose one of several rows with the same key. The last row by these
      columns is written. Null sorts first, and NaN sorts last. If the table does not have one of
      these columns, the column is not written. Without `last_by`, such rows raise DuplicateKey.
      With atomicity `"none"`, any one of them is written.
    - `partitions`: about how many tasks write. The default is one for each tablet. If the session
      has more cores than tablets, there are more tasks. If there are more tablets than
      `spark.sql.shuffle.partitions`, there are fewer, and each task gets several neighbouring
      tablets.
    - `long_rows`: for rows of more than about 100 kB on average. Spark then measures each batch
      that it passes to Python, row by row. This takes a third more time, and limits memory for rows
      of any length.
    - `progress`: write a line to stderr that counts the finished tasks.

    Raises TableNotFound, TableNotMounted, SchemaViolation (key columns are missing or have another
    type), InvalidRequest, Unavailable. For later errors, Spark raises its own exception, whose text
    has the DodonaError."""
    bulk = _connector("pyspark_dodona.bulk")
    return cast(
        BulkWrite,
        bulk.bulk_write(
            df,
            table,
            url=url,
            mode=mode,
            last_by=(last_by,) if isinstance(last_by, str) else tuple(last_by),
            partitions=partitions,
            has_long_rows=long_rows,
            tells_progress=progress,
            options=options,
        ),
    )


def register(spark: "SparkSession") -> None:
    """Register `format("dodona")` in a session by hand. If the connector is installed, Spark finds
    it, but looks only once. So call this if you add the connector to a running session, as with
    `spark.addArtifacts`."""
    spark.dataSource.register(_connector("pyspark_dodona").DefaultSource)


def _connector(module: str) -> Any:
    """Import a module of the connector by its name. The connector depends on the client, and not
    the reverse. Raises InvalidRequest if a package is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("pyspark", "pyspark_dodona", "pyarrow", "numpy", "pandas"):
            raise
        text = f"Spark needs {missing}: pip install 'dodona[spark]'"
        raise InvalidRequest(text) from error
