"""Dodona for Spark: `spark.read.format("dodona")` and `df.write.format("dodona")`.

Owns: the entry point. Spark finds this package by its name, and imports it in every session of the
environment. So it must not import: Arrow, the client, or other large modules.
If it is imported before the session starts, Spark's workers run this Python. Otherwise they run
`python3`, which may be of another environment, without this package.
"""

import os
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark_dodona.reader import SnapshotReader
    from pyspark_dodona.snapshot import TableSnapshot
    from pyspark_dodona.stream import ChangeStreamReader
    from pyspark_dodona.stream_writer import StreamWriter
    from pyspark_dodona.writer import TableWriter

__all__ = ["DefaultSource"]

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


class DefaultSource(DataSource):
    """One table of a Dodona cluster, in one `load` or `save`, which have its path.

    The options are those of `pyspark_dodona.options`, which docs/reference/spark.md lists. All
    others are refused. All errors are those of `dodona.errors`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Keep the options, and connect to nothing: the options do not show whether this is a read
        or a write."""
        super().__init__(options)
        self._snapshot: TableSnapshot | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "dodona"

    def __getstate__(self) -> dict[str, Any]:
        """Pin the snapshot, and return the state for pickle.

        Spark creates one instance for a DataFrame in its `load`, or at its first use if `load` was
        given a schema. It pickles the instance, and from then on uses copies. So the snapshot must
        be pinned now. Spark never pickles the instance of a `save`.

        Raises as `schema` does."""
        from pyspark_dodona.options import is_stream_read

        if not is_stream_read(self.options):
            self._pinned()
        return self.__dict__

    def _pinned(self) -> "TableSnapshot":
        from pyspark_dodona.options import parse_read
        from pyspark_dodona.snapshot import pin_snapshot

        if self._snapshot is None:
            self._snapshot = pin_snapshot(parse_read(self.options))
        return self._snapshot

    def schema(self) -> StructType:
        """Return the columns of the table with Spark's types. Raises InvalidRequest for an option
        that is unknown, missing or malformed. Raises TableNotFound, SchemaViolation."""
        from pyspark_dodona.options import is_stream_read, parse_stream_read
        from pyspark_dodona.reader import schema_of

        if is_stream_read(self.options):
            from pyspark_dodona.stream import stream_schema

            return stream_schema(parse_stream_read(self.options))
        return schema_of(self._pinned())

    def reader(self, schema: StructType) -> "SnapshotReader":
        """Return a reader of the pinned snapshot. Raises SchemaViolation if `schema` is not that of
        the table."""
        from pyspark_dodona.options import parse_read
        from pyspark_dodona.reader import reader_of

        pushdown = parse_read(self.options).pushdown
        return reader_of(self._pinned(), schema, pushdown=pushdown)

    def streamReader(self, schema: StructType) -> "ChangeStreamReader":  # noqa: N802
        """Return a reader of the table's changes. Raises InvalidRequest, TableNotFound, and
        SchemaViolation if `schema` is not that of changes."""
        from pyspark_dodona.options import parse_stream_read
        from pyspark_dodona.stream import ChangeStreamReader

        return ChangeStreamReader(parse_stream_read(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "TableWriter":
        """Begin a load, and return its writer. Raises InvalidRequest and other errors before any
        row is written."""
        from pyspark_dodona.options import parse_write
        from pyspark_dodona.writer import TableWriter, begin

        options = parse_write(self.options, is_overwrite=overwrite)
        return TableWriter(options, begin(options, schema))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> "StreamWriter":
        """Return a writer of a stream. Raises InvalidRequest for an option that is unknown or
        malformed."""
        from pyspark_dodona.options import parse_stream_write
        from pyspark_dodona.stream_writer import StreamWriter

        options = parse_stream_write(self.options, is_overwrite=overwrite)
        return StreamWriter(options, schema)
