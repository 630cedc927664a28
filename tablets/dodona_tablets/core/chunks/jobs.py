"""Long work on chunks, as records: what goes in, and the batches that come out.

Owns: the three kinds of work that end with a chunk. A job has only what does not change while it
runs, so that another thread may run it; it knows nothing of files, of time, or of the cell that
wants its chunk. Whoever runs it writes the batches to a file as they come (`writing`).
"""

from collections.abc import Iterator
from io import BytesIO
from typing import NamedTuple

import msgspec
import pyarrow as pa

from dodona._core.messages import Failure
from dodona.errors import DodonaError
from dodona.schema import TableSchema
from dodona.types import KEY_MAX, KEY_MIN, Key
from dodona_tablets.core.chunks.chunk import Chunk
from dodona_tablets.core.chunks.compacting import compacted
from dodona_tablets.core.chunks.info import ChunkInfo
from dodona_tablets.core.chunks.ingest import prepare_batch
from dodona_tablets.core.chunks.rows import batches_of_rows
from dodona_tablets.core.chunks.view import ChunkView
from dodona_tablets.core.chunks.writing import write_chunk
from dodona_tablets.core.retention import Terms
from dodona_tablets.core.store import DynamicStore


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
    """An Arrow stream of whole rows of lower ≤ key < upper, in any order."""

    number: int
    schema: TableSchema
    stream: bytes
    lower: Key
    upper: Key


Job = FlushJob | CompactionJob | BatchJob


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


def batches_of(job: Job) -> Iterator[pa.RecordBatch]:
    """In the layout and order of a chunk; none where nothing is left. Raises what `ingest` raises
    about a batch, and DataCorrupted about a chunk."""
    if isinstance(job, BatchJob):
        batch = prepare_batch(job.schema, job.stream, job.lower, job.upper)
        return iter([batch] if batch.num_rows else [])
    if isinstance(job, CompactionJob):
        sources = [view.batches(KEY_MIN, KEY_MAX) for view in job.views]
        return compacted(job.schema, sources, job.terms)
    rows = job.store.walk(KEY_MIN, KEY_MAX)
    batches = batches_of_rows(job.schema, rows, has_specials=job.store.has_marks)
    if job.terms is None:
        return batches
    return compacted(job.schema, [batches], job.terms)
