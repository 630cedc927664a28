"""Compact several stores of versions into one, without the versions that no read may see any more.

Owns: the order of the versions of all stores, the use of the terms of retention on each row, and
the layout of the result. Compaction is a stream. Of each store, it holds one batch, or the versions
of one key if they are more. `retention.Terms.major` says up to where the history of a row counts as
complete. A caller that compacts only some stores of a tablet passes the oldest timestamp of all
other stores there. Stores in memory count, too.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from dodona_tablets.core.rows.chunks.layout import DELTA, chunk_schema
from dodona_tablets.core.rows.chunks.merging import (
    Source,
    check_distinct,
    merged,
    windows,
    with_specials,
)
from dodona_tablets.core.rows.chunks.retiring import retired
from dodona_tablets.core.rows.retention import Terms
from dodona_wire.rows.schema import TableSchema


def compacted(
    schema: TableSchema, sources: Sequence[Source], terms: Terms | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the versions of all sources, in order, in one layout of chunks. Batches have any size.

    Each source has batches of one layout, with timestamps, by this schema. Versions that the terms
    do not keep are left out. Without terms, all versions stay. Raises DataCorrupted, with the key,
    if two sources have a version with the same timestamp.
    """
    iterators = [iter(source) for source in sources]
    heads = [next(iterator, None) for iterator in iterators]
    is_special = any(head is not None and DELTA in head.schema.names for head in heads)
    names = chunk_schema(schema, "special" if is_special else "plain").names
    opened = [
        (
            with_specials(schema, batch, names) if is_special else batch
            for batch in chain([head], rest)
        )
        for head, rest in zip(heads, iterators, strict=True)
        if head is not None
    ]
    for pieces, _ in windows(opened):
        versions = merged(schema, pieces)
        check_distinct(versions)
        batch = versions.in_order() if terms is None else retired(versions, terms)
        if batch.num_rows:
            yield batch
