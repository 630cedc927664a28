"""Long work on chunks, as records: what goes in, and the batches that come out.

Owns: the four kinds of work that end with a chunk. A job has only what does not change while it
runs, so that another thread may run it; it knows nothing of files, of time, or of the cell that
wants its chunk. Whoever runs it writes the batches to a file as they come (`writing`).
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
from dodona_wire.messages.base import Failure
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import KEY_MAX, KEY_MIN, BatchKind, Key, LoadMode, Timestamp

FLUSH_SLICE_ROWS: Final = 512
"""Of rows in memory so many become columns at a time: a millisecond, at most, of Python."""

ORDERED_BYTES_MAX: Final = 128 << 20
"""Of a store: up to there a flush makes copies of all its rows at once."""

Batches = Iterable[pa.RecordBatch]
Make = Callable[[Batches], Batches]
"""Has batches made, as they are taken, by whoever shall."""


class FlushJob(msgspec.Struct, frozen=True):
    """All of a passive store; with terms, but for what these let go of it."""

    number: int
    schema: TableSchema
    store: DynamicStore
    terms: Terms | None


class CompactionJob(msgspec.Struct, frozen=True):
    """What the terms leave of these chunks."""

    number: int
    schema: TableSchema
    views: tuple[ChunkView, ...]
    terms: Terms


class BatchJob(msgspec.Struct, frozen=True):
    """An Arrow stream of rows of lower ≤ key < upper, in any order. Its columns are all of the
    table, the key's and those that are set, or the key's: as its kind says (see `ingest`)."""

    number: int
    schema: TableSchema
    stream: bytes
    lower: Key
    upper: Key
    kind: BatchKind = "write"
    is_exact: bool = False
    """Whether a key that comes twice is an error, or the last of its rows stays."""


class SealJob(msgspec.Struct, frozen=True):
    """Whether the staged chunks of a load are fit to be seen: an error, or what has to be deleted
    when they are, as a chunk without timestamps (see `sealing`)."""

    number: int
    schema: TableSchema
    staged: tuple[ChunkView, ...]
    """Attached with the stamp `MAX_TIMESTAMP`."""
    existing: tuple[DynamicStore | ChunkView, ...]
    """All that the tablet has. Stores among them are passive."""
    mode: LoadMode
    since: Timestamp
    """What is newer is a conflict: nothing for `MAX_TIMESTAMP`."""
    erased: tuple[tuple[Key, Key], ...]
    """Ranges, in order and apart, of which only staged rows stay: lower ≤ key < upper."""


Job = FlushJob | CompactionJob | BatchJob | SealJob


class Built(NamedTuple):
    """A chunk that is durable, and open."""

    info: ChunkInfo
    chunk: Chunk


def build(job: Job) -> Built | Failure | None:
    """Run a job in memory: its chunk, None if nothing is left to be one, or why there is none."""
    file = BytesIO()
    try:
        written = write_chunk(job.number, job.schema, batches_of(job), file)
    except DodonaError as error:
        return Failure(error.kind, error.message, error.attributes)
    if written is None:
        return None
    info, index = written
    return Built(info, Chunk(info, file.getvalue(), index))


def batches_of(job: Job, make: Make = iter) -> Iterator[pa.RecordBatch]:
    """In the layout and order of a chunk; none where nothing is left. Raises what `ingest` raises
    about a batch, what `sealing` raises about a load, and DataCorrupted about a chunk.

    `make` has batches made of rows in memory, which is Python's work and not Arrow's: a shell may
    have another thread do it than the one that takes them.
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
    """Rows lie in memory as they came, and to read them in another order takes twice as long: so
    columns are put in order, which is Arrow's work, unless their copies would be too large."""
    schema, store = job.schema, job.store
    is_large = store.size_bytes > ORDERED_BYTES_MAX
    rows = store.walk(KEY_MIN, KEY_MAX) if is_large else store.rows.items()
    slices = batches_of_rows(
        schema, rows, has_specials=store.has_marks, slice_rows=FLUSH_SLICE_ROWS
    )
    batches = make(slices) if is_large else in_key_order(make(slices))
    return iter(batches) if job.terms is None else compacted(schema, [batches], job.terms)
