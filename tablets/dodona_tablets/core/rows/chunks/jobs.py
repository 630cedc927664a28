"""Describe long work on chunks as records: the input of a job, and the batches that it makes.

Owns: the four kinds of work that end with a chunk. A job has only data that does not change while
it runs, so that another thread may run it. It knows nothing of files, of time, or of the cell that
needs the chunk. The code that runs a job writes the batches to a file as they come (`writing`).
"""

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.compacting import compacted
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.ingest import prepare_batch
from dodona_tablets.core.rows.chunks.rows import batches_of_rows, in_key_order
from dodona_tablets.core.rows.chunks.sealing import sealed
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.chunks.writing import write_chunk
from dodona_tablets.core.rows.retention import Terms
from dodona_tablets.core.rows.store import DynamicStore
from dodona_wire.errors import DodonaError
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import KEY_MAX, KEY_MIN, BatchKind, Key, LoadMode, Timestamp

FLUSH_SLICE_ROWS: Final = 512
"""The number of rows in memory that become columns in one step: a millisecond of Python at most."""

ORDERED_BYTES_MAX: Final = 128 << 20
"""The size up to which a flush makes copies of all rows of a store together."""

Batches = Iterable[pa.RecordBatch]
Make = Callable[[Batches], Batches]
"""A function that makes batches as they are taken. It may use another thread."""


class FlushJob(msgspec.Struct, frozen=True):
    """A job that makes a chunk of all versions of a passive store. With terms, it leaves out the
    versions that these do not keep."""

    number: int
    schema: TableSchema
    store: DynamicStore
    terms: Terms | None


class CompactionJob(msgspec.Struct, frozen=True):
    """A job that makes a chunk of what the terms leave of these chunks."""

    number: int
    schema: TableSchema
    views: tuple[ChunkView, ...]
    terms: Terms


class BatchJob(msgspec.Struct, frozen=True):
    """A job that makes a chunk of an Arrow stream with rows of `lower ≤ key < upper`, in any order.
    The kind says which columns the stream has (see `ingest`). A "write" has all columns, an
    "update" the key columns and those that are set, and a "delete" only the key columns."""

    number: int
    schema: TableSchema
    stream: bytes
    lower: Key
    upper: Key
    kind: BatchKind = "write"
    is_exact: bool = False
    """Whether a key that comes twice is an error. Otherwise the last of its rows stays."""


class SealJob(msgspec.Struct, frozen=True):
    """A job that checks whether the staged chunks of a load may be published. Its result is an
    error, or the deletions that go with them, as a chunk without timestamps (see `sealing`)."""

    number: int
    schema: TableSchema
    staged: tuple[ChunkView, ...]
    """The staged chunks, attached with `MAX_TIMESTAMP`."""
    existing: tuple[DynamicStore | ChunkView, ...]
    """All stores and chunks of the tablet. The stores are passive."""
    mode: LoadMode
    since: Timestamp
    """Newer versions are conflicts. With `MAX_TIMESTAMP`, no version is."""
    erased: tuple[tuple[Key, Key], ...]
    """Ranges `lower ≤ key < upper`, in order and apart, in which only staged rows stay."""


Job = FlushJob | CompactionJob | BatchJob | SealJob


class Built(NamedTuple):
    """A chunk that is durable and open."""

    info: ChunkInfo
    chunk: Chunk


def build(job: Job) -> Built | Failure | None:
    """Run a job in memory. Return its chunk, None if no row is left for one, or the failure."""
    file = BytesIO()
    try:
        written = write_chunk(job.number, job.schema, batches_of(job), file)
    except DodonaError as error:
        return failure_of(error)
    if written is None:
        return None
    info, index = written
    return Built(info, Chunk(info, file.getvalue(), index))


def batches_of(job: Job, make: Make = iter) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a job's chunk, in its layout and order, or none if nothing is left.
    Raises the errors of `ingest` about a batch, those of `sealing` about a load, and DataCorrupted
    about a chunk.

    `make` makes batches of rows in memory, which is work of Python and not of Arrow. A shell may
    use another thread for it than the one that takes the batches.
    """
    if isinstance(job, BatchJob):
        batch = prepare_batch(
            job.schema, job.stream, job.lower, job.upper, job.kind, is_exact=job.is_exact
        )
        return iter([batch] if batch.num_rows else [])
    if isinstance(job, CompactionJob):
        sources = [view.batches(KEY_MIN, KEY_MAX) for view in job.views]
        return compacted(job.schema, sources, job.terms)
    if isinstance(job, SealJob):
        return sealed(job.schema, job.staged, job.existing, job.mode, job.since, job.erased)
    return _flushed(job, make)


def _flushed(job: FlushJob, make: Make) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a flush. Rows lie in memory as they came, and to read them in another
    order takes twice as long. So Arrow sorts the columns, unless their copies would be too
    large."""
    schema, store = job.schema, job.store
    is_large = store.size_bytes > ORDERED_BYTES_MAX
    rows = store.walk(KEY_MIN, KEY_MAX) if is_large else store.rows.items()
    slices = batches_of_rows(
        schema, rows, has_specials=store.has_marks, slice_rows=FLUSH_SLICE_ROWS
    )
    batches = make(slices) if is_large else in_key_order(make(slices))
    return iter(batches) if job.terms is None else compacted(schema, [batches], job.terms)
