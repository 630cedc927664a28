"""Dodona for Spark: `spark.read.format("dodona")` and `df.write.format("dodona")`.

Owns: the entry point. Spark finds this package by its name and imports it in every session of the
environment, wanted or not: so nothing heavy may be imported here, neither Arrow nor the client.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark_dodona.reader import SnapshotReader
    from pyspark_dodona.writer import TableWriter

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """One table of a Dodona cluster, in one `load` or `save`, which give its path.

    Options of both: `url` of the master. To read: `timestamp` (an integer; by default a fresh one,
    taken once a `load`), `columns` (names with commas between; by default all). To write:
    `atomicity`, which must say "none", and `durability`, "sync" (default) or "async".
    Any other option is refused. All errors are those of `dodona.errors`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raises InvalidRequest for an option that is unknown, missing or malformed."""
        super().__init__(options)
        from pyspark_dodona.options import is_write, parse_read
        from pyspark_dodona.reader import pin_snapshot

        # Spark makes one instance a `load` and copies it from then on; the methods below run any
        # number of times. So the snapshot of the whole DataFrame can be pinned here and only here.
        self._snapshot = None if is_write(options) else pin_snapshot(parse_read(options))

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "dodona"

    def schema(self) -> StructType:
        """The table's columns as Spark has them. Raises TableNotFound, SchemaViolation."""
        from pyspark_dodona.options import parse_read
        from pyspark_dodona.reader import pin_snapshot, schema_of

        return schema_of(self._snapshot or pin_snapshot(parse_read(self.options)))

    def reader(self, schema: StructType) -> "SnapshotReader":
        """Reads the pinned snapshot. Raises SchemaViolation if `schema` is not the table's."""
        from pyspark_dodona.options import parse_read
        from pyspark_dodona.reader import SnapshotReader, pin_snapshot

        return SnapshotReader(self._snapshot or pin_snapshot(parse_read(self.options)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "TableWriter":
        """Appends rows. Raises InvalidRequest and its kin before any row is written."""
        from pyspark_dodona.options import parse_write
        from pyspark_dodona.writer import TableWriter, check_job

        options = parse_write(self.options, is_overwrite=overwrite)
        check_job(options, schema)
        return TableWriter(options)
