"""Compaction: several stores of versions become one, without what nobody may read any more.

Owns: the order of the versions of all stores, the terms of retention applied to each row, and the
layout of what comes out. It is a stream: of each store no more is held than a batch, or the
versions of one key if they are more. How long a row's history is believed to be whole is said in
`retention.Terms.major`: whoever compacts some of a tablet's stores gives the oldest timestamp of
all the others, those in memory included.
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
    """The versions of all sources, in order, in one layout of chunks and in batches of any size.

    Each source has batches of one layout, with timestamps, by this schema. With terms what they
    let go is left out; without, all versions stay. Raises DataCorrupted, with the key, if two
    sources have a version of one timestamp.
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
