"""Read the rows of a table at one timestamp, in batches: to show them, or to write a file.

Owns: that all rows are of one snapshot, even if other transactions write meanwhile, and that a file
has all rows or does not exist.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dodona._core.reading.reading import Projection
from dodona.client import Client
from dodona.snapshot import Snapshot
from dodona_local.files.formats import FileFormat
from dodona_local.files.formatting import Shape
from dodona_local.files.replacing import replacing
from dodona_local.files.writing import writer_to
from dodona_local.progress import Progress
from dodona_wire.errors import MetadataChanged
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Timestamp


class Selection(NamedTuple):
    """Rows and columns of a table, and the timestamp to read at; None for now."""

    path: str
    schema: TableSchema
    lower: Sequence[Any] | None = None
    upper: Sequence[Any] | None = None
    columns: Sequence[str] | None = None
    timestamp: Timestamp | None = None

    @property
    def shape(self) -> Shape:
        """Return the shape of the rows. Raises SchemaViolation for a column that the table does not
        have."""
        return Shape.of_columns(Projection(self.schema, self.columns).columns)


class Exported(NamedTuple):
    """The result of an export."""

    row_count: int
    timestamp: Timestamp


@contextmanager
def scan(db: Client, selection: Selection) -> Iterator[tuple[Snapshot, Iterator[Any]]]:
    """Yield the snapshot, and its record batches. The end of the block raises SnapshotTooOld if the
    rows were not of one snapshot. Reads raise the errors of `Snapshot.read_batches`."""
    shape = selection.shape
    with db.hold_snapshot([selection.path], selection.timestamp) as snapshot:
        yield snapshot, _batches(snapshot, selection, shape)


def _batches(snapshot: Snapshot, selection: Selection, shape: Shape) -> Iterator[Any]:
    path, lower, upper, columns = selection.path, *selection[2:5]
    for batch in snapshot.read_batches(path, lower, upper, columns):
        if not batch.schema.equals(shape.schema):
            raise MetadataChanged(
                "the table was altered during the export: export again", table=path
            )
        yield batch


def export(
    db: Client,
    selection: Selection,
    file: Path,
    form: FileFormat,
    progress: Progress,
    *,
    is_overwriting: bool = False,
) -> Exported:
    """Write the rows to a file. If an error is raised, the file is as it was. Raises InvalidRequest
    if the file exists or can't be written, SnapshotTooOld, and the errors of reads."""
    row_count = 0
    with (
        replacing(file, is_overwriting=is_overwriting) as sink,
        scan(db, selection) as (snapshot, batches),
    ):
        progress.begin("exporting", None, "rows")
        writer = writer_to(sink, form, selection.shape)
        for batch in batches:
            writer.write(batch)
            row_count += batch.num_rows
            progress.advance(batch.num_rows)
        writer.finish()
    return Exported(row_count, snapshot.timestamp)


def limited(batches: Iterator[Any], limit: int | None) -> Iterator[Any]:
    """Yield the batches with the first `limit` rows; all rows for None."""
    if limit is None:
        yield from batches
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return
