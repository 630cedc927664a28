"""Bulk batches against the way of single rows, and streams of bytes that nobody meant."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import DodonaError
from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN, Timestamp
from dodona_tablets.core.rows.chunks.ingest import prepare_batch
from dodona_tablets.core.rows.version import version_of
from dodona_wire.rows.arrow import arrow_schema, rows_from_arrow
from properties.histories import rows_of
from unit.tablets.chunks.making import made

SCHEMA = TableSchema.parse(
    [
        Column("name", "string", sort_order="ascending"),
        Column("id", "int64", sort_order="ascending"),
        Column("text", "utf8"),
        Column("some", "any"),
    ]
)

rows = st.fixed_dictionaries(
    {
        "name": st.sampled_from([None, b"", b"\x00", b"a", b"a\x00", b"a" * 12]),
        "id": st.sampled_from([None, 0, -1, 256]),
        "text": st.sampled_from([None, "", "Ω"]),
        "some": st.sampled_from([None, b"\x01", b"\x91\xc0"]),
    }
)


def stream_of_batches(batches: list[list[dict[str, Any]]], codec: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, arrow_schema(SCHEMA), options=options) as writer:
        for batch in batches:
            writer.write(pa.RecordBatch.from_pylist(batch, schema=arrow_schema(SCHEMA)))
    return bytes(sink.getvalue())


codecs = st.sampled_from([None, "zstd", "lz4"])


@given(st.lists(st.lists(rows, max_size=6), max_size=3), codecs)
def test_a_bulk_batch_holds_the_same_rows_as_its_rows_one_by_one(
    batches: list[list[dict[str, Any]]], codec: str | None
) -> None:
    stream = stream_of_batches(batches, codec)
    found = prepare_batch(SCHEMA, stream, KEY_MIN, KEY_MAX)
    rows = rows_from_arrow(SCHEMA, stream)
    expected = {key: [version_of(Timestamp(5), mask, row)] for key, mask, row in rows}
    assert found.num_rows == len(expected)
    if found.num_rows:
        view = made([found], SCHEMA).view(SCHEMA, stamp=Timestamp(5))
        in_chunk = rows_of(SCHEMA, view.batches(KEY_MIN, KEY_MAX))
        assert in_chunk == expected
        assert list(in_chunk) == sorted(in_chunk)


changes = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4)


@given(st.lists(rows, min_size=1, max_size=6), codecs, changes, st.integers(0, 1 << 20))
def test_a_batch_of_random_bytes_is_refused_or_valid(
    batch: list[dict[str, Any]], codec: str | None, changed: list[tuple[int, int]], length: int
) -> None:
    stream = bytearray(stream_of_batches([batch], codec))
    for place, value in changed:
        stream[place % len(stream)] = value
    try:
        found = prepare_batch(SCHEMA, bytes(stream[: length % (2 * len(stream))]), KEY_MIN, KEY_MAX)
    except DodonaError:
        return
    found.validate(full=True)
    assert found.num_rows <= len(batch)
