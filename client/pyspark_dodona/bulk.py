"""A bulk write: partition and sort the DataFrame as the table is, then save it.

Owns: the order of the steps, the settings of the session meanwhile, and the result. First, computed
key columns are added, which Spark can't compute. The rows of one
tablet come from one task, so that the tablet gets few chunks. They come in key order. So no later
step sorts them, and chunks of one task do not overlap.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from dodona import Load
from dodona.spark import BulkWrite
from dodona_wire.errors import InvalidRequest, TableNotMounted
from pyspark_dodona.computed import with_computed
from pyspark_dodona.connection import connect
from pyspark_dodona.last_rows import last_rows
from pyspark_dodona.options import WriteOptions, parse_write
from pyspark_dodona.partitioning import KeyColumns, Partitioning, share_out
from pyspark_dodona.progress import told
from pyspark_dodona.writer import begin

BATCH_SETTING: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
UNMEASURED: Final = str((1 << 31) - 1)
"""With this setting, Spark does not measure a batch again for each row that it adds."""
ROW_COUNT: Final = "row_count"

_log: Final = logging.getLogger("pyspark_dodona")


def bulk_write(
    df: DataFrame,
    table: str,
    *,
    url: str,
    mode: str,
    last_by: tuple[str, ...],
    partitions: int | None,
    has_long_rows: bool,
    tells_progress: bool,
    options: Mapping[str, Any],
) -> BulkWrite:
    """Write all rows of a DataFrame to a table. See `dodona.spark.bulk_write`."""
    began_at, began_s = datetime.now(UTC), time.monotonic()
    session = df.sparkSession
    given = {name: option_text(name, it) for name, it in options.items() if it is not None}
    given = {**given, "url": url, "path": table}
    checked = _checked(given, mode)
    info = connect(checked).get_table(table)
    if not info.is_mounted:
        raise TableNotMounted(f"table {table} is not mounted: mount it, then write")
    df = with_computed(df, info.schema, table)
    keys = KeyColumns(info.schema.columns, df.schema, table)
    partitioning = share_out(
        [tablet.pivot_key for tablet in info.tablets],
        partitions,
        parallelism=parallelism_of(session),
        partitions_max=int(session.conf.get("spark.sql.shuffle.partitions", "200") or 200),
    )
    known = {column.name for column in info.schema.columns}
    last_by = tuple(_column_of(df, name) for name in last_by)
    counted = Observation()
    frame = arranged(df, keys, partitioning, last_by)
    frame = frame.observe(counted, f.count(f.lit(1)).alias(ROW_COUNT))
    if last_by and options.get("atomicity", "full") == "full":  # a load takes each key only once
        frame = frame.mapInArrow(last_rows(keys.names), frame.schema)
    frame = frame.drop(*[name for name in last_by if name not in known])
    # This process renews the lease of its load, however long the shuffle takes.
    load = connect(checked).loads.join(begin(checked, frame.schema))
    given["load_ticket"] = load.ticket.to_text()
    telling = told(session, f"writing to {table}") if tells_progress else nullcontext()
    with _given_up_on_error(load), telling, _unmeasured_batches(session, has_long_rows):
        frame.write.format("dodona").mode(mode).options(**given).save()
    is_atomic = load.ticket.atomicity == "full"
    published = load.publish([]) if is_atomic else None  # the save has published it: get the result
    is_skipped = published is not None and published.is_skipped
    written = BulkWrite(
        table,
        0 if is_skipped else int(counted.get[ROW_COUNT]),
        partitioning.count,
        began_at,
        time.monotonic() - began_s,
        None if published is None else published.timestamp,
        0 if published is None else published.deleted_count,
        is_skipped,
    )
    _log.info("%s", written)
    return written


def _column_of(df: DataFrame, name: str) -> str:
    """Return the name of a column as the DataFrame has it. Spark ignores upper and lower case."""
    if name in df.columns:
        return name
    return next((it for it in df.columns if it.lower() == name.lower()), name)


def _checked(options: dict[str, str], mode: str) -> WriteOptions:
    """Check the options of the write. Raises InvalidRequest."""
    if mode not in ("append", "overwrite"):
        raise InvalidRequest(f"mode must be 'append' or 'overwrite', not {mode!r}")
    if "load_ticket" in options:
        raise InvalidRequest("bulk_write begins a load of its own: leave load_ticket out")
    return parse_write(options, is_overwrite=mode == "overwrite")


@contextmanager
def _given_up_on_error(load: Load) -> Iterator[None]:
    """Abort the load if the block fails. Spark itself aborts only a write that it has begun."""
    try:
        yield
    except BaseException as error:
        load.abort(f"the bulk write failed: {type(error).__name__}")
        raise


def arranged(
    df: DataFrame, keys: KeyColumns, partitioning: Partitioning, last_by: tuple[str, ...] = ()
) -> DataFrame:
    """Return the same rows, partitioned like this and in the order of their keys."""
    number = f.expr(keys.partition(partitioning))
    if hasattr(df, "repartitionById"):
        df = df.repartitionById(partitioning.count, number)
    else:  # in Spark 4.0, some partitions get the rows of several numbers, and some get none
        df = df.repartition(partitioning.count, number)
    last = [f.col(it).asc_nulls_first() for it in last_by]
    return df.sortWithinPartitions(*sort_columns(keys), *last)


def sort_columns(keys: KeyColumns) -> list[Column]:
    """Return the columns by which to sort rows in the order of the table."""
    return [
        f.expr(it).desc_nulls_last() if is_descending else f.expr(it).asc_nulls_first()
        for it, is_descending in keys.order()
    ]


def parallelism_of(session: SparkSession) -> int:
    """Return how many tasks run at the same time. Returns 1 if the session is on another machine,
    where the number is not known."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except PySparkException:
        return 1


def option_text(name: str, value: Any) -> str:
    """Return the value of an option as text for Spark. Raises InvalidRequest."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case dict():
            return json.dumps(value)
    what = "text, a number, a boolean or a dict"
    raise InvalidRequest(f"the option {name!r} takes {what}, not {type(value).__name__}")


@contextmanager
def _unmeasured_batches(session: SparkSession, has_long_rows: bool) -> Iterator[None]:
    """Limit batches of rows for Python by their number alone. If the session has a limit in bytes,
    that limit stays."""
    if has_long_rows or BATCH_SETTING in session.conf.getAll:
        yield
        return
    session.conf.set(BATCH_SETTING, UNMEASURED)
    try:
        yield
    finally:
        session.conf.unset(BATCH_SETTING)
