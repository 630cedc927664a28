"""Spark's way in: `bulk_write` brings a DataFrame into a table, a task for each part of its keys.

    import dodona.spark

    written = dodona.spark.bulk_write(frame, "//bank/entries", url=url, atomicity="none")
    print(written.row_count, written.duration_s)

Reading and writing with `format("dodona")` need no name of this module. Import it all the same,
before the session starts: it sets `PYSPARK_PYTHON`, unless that is set, so that Spark's workers run
this very Python. They run whatever `python3` is otherwise, which need not have Dodona, and Spark
says DATA_SOURCE_NOT_FOUND.

Owns: the public names. Importing this imports neither pyspark nor the connector: its functions load
what they need, which the extra `spark` installs.
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
    """What a bulk write has written."""

    table: str
    row_count: int
    """Of the DataFrame: those of one key count each. 0 if it is skipped."""
    partition_count: int
    """Tasks that wrote."""
    began_at: datetime
    """In UTC, by this machine's clock."""
    duration_s: float
    commit_timestamp: Timestamp | None
    """When all of it became visible; None without atomicity, where there is no such moment."""
    deleted_count: int = 0
    """Rows that an overwrite has removed: those that are not among the ones written."""
    is_skipped: bool = False
    """The application's version was published before, at this timestamp: nothing was written."""


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
    """Write all rows, those of one part of the table by one task and in the order of their keys.
    That takes a shuffle and a sort, and makes for the fewest chunks and requests.

    `mode` and `options` are those of `df.write.format("dodona")`, such as atomicity="none" or
    write_mode="delete"; values may be numbers, booleans, and dicts where JSON is taken.

    `last_by` names columns that say which of several rows with one key is written: the one that is
    last by these; null and NaN come first and last. Columns of them that the table does not have
    are not written. Without it, such rows are an error (DuplicateKey), or with atomicity none
    any one of them is written.

    There is a task for each tablet; more if the session has more cores than that, and fewer, with
    some neighbouring tablets each, if there are more tablets than `spark.sql.shuffle.partitions`.
    `partitions` asks for another number, about.

    `long_rows` is for rows of more than some 100 kB on average: Spark then measures each batch of
    rows that it hands to Python, row by row, which takes a third more time, and memory is bounded
    whatever they hold. With `progress` a line on stderr says how many tasks have ended.

    Raises TableNotFound, TableNotMounted, SchemaViolation for key columns that are not there or of
    another type, InvalidRequest, Unavailable. What is found out later is raised by Spark: its text
    has the DodonaError in it.
    """
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
    """Make `format("dodona")` known to a session by hand. Spark finds the connector by itself where
    it is installed, and looks once: whoever adds it to a session that runs, as with
    `spark.addArtifacts`, registers it."""
    spark.dataSource.register(_connector("pyspark_dodona").DefaultSource)


def _connector(module: str) -> Any:
    """Loaded by its name: it stands on the client, not the client on it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("pyspark", "pyspark_dodona", "pyarrow", "numpy", "pandas"):
            raise
        text = f"Spark needs {missing}: pip install 'dodona[spark]'"
        raise InvalidRequest(text) from error
