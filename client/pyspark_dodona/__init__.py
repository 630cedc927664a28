"""Dodona for Spark: `spark.read.format("dodona")` and `df.write.format("dodona")`.

Owns: the entry point. Spark finds this package by its name and imports it in every session of the
environment, wanted or not: so nothing heavy may be imported here, neither Arrow nor the client.
Imported before the session starts, it has Spark's workers run this very Python: `python3`, which
they run otherwise, need not be of the environment that has this package.
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
    """One table of a Dodona cluster, in one `load` or `save`, which give its path.

    The options are those of `pyspark_dodona.options`, which docs/reference/spark.md lists; any
    other is refused. All errors are those of `dodona.errors`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Connects to nothing: of these options alone nobody can tell a read from a write."""
        super().__init__(options)
        self._snapshot: TableSnapshot | None = None

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "dodona"

    def __getstate__(self) -> dict[str, Any]:
        """Spark makes one instance a DataFrame, in its `load`, or if that was given a schema at its
        first use, and pickles it: copies of it answer from then on. So its snapshot is pinned now
        at the latest. What a `save` makes is never pickled.

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
        """The table's columns as Spark has them. Raises InvalidRequest for an option that is
        unknown, missing or malformed; TableNotFound, SchemaViolation."""
        from pyspark_dodona.options import is_stream_read, parse_stream_read
        from pyspark_dodona.reader import schema_of

        if is_stream_read(self.options):
            from pyspark_dodona.stream import stream_schema

            return stream_schema(parse_stream_read(self.options))
        return schema_of(self._pinned())

    def reader(self, schema: StructType) -> "SnapshotReader":
        """Reads the pinned snapshot. Raises SchemaViolation if `schema` is not the table's."""
        from pyspark_dodona.options import parse_read
        from pyspark_dodona.reader import reader_of

        pushdown = parse_read(self.options).pushdown
        return reader_of(self._pinned(), schema, pushdown=pushdown)

    def streamReader(self, schema: StructType) -> "ChangeStreamReader":  # noqa: N802
        """Reads what becomes of the table. Raises InvalidRequest, TableNotFound, SchemaViolation
        if `schema` is not that of changes."""
        from pyspark_dodona.options import parse_stream_read
        from pyspark_dodona.stream import ChangeStreamReader

        return ChangeStreamReader(parse_stream_read(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "TableWriter":
        """Writes rows. Raises InvalidRequest and its kin before any row is written."""
        from pyspark_dodona.options import parse_write
        from pyspark_dodona.writer import TableWriter, begin

        options = parse_write(self.options, is_overwrite=overwrite)
        return TableWriter(options, begin(options, schema))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> "StreamWriter":
        """Writes a stream. Raises InvalidRequest for an option that is unknown or malformed."""
        from pyspark_dodona.options import parse_stream_write
        from pyspark_dodona.stream_writer import StreamWriter

        options = parse_stream_write(self.options, is_overwrite=overwrite)
        return StreamWriter(options, schema)
