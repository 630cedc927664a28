"""A chunk's file: where blocks begin and end, what is refused, and what any Arrow tool reads."""

import io
from itertools import pairwise

import pyarrow as pa
import pytest

from dodona.schema import Column, TableSchema
from dodona.types import NULL_TIMESTAMP, Timestamp
from dodona_tablets.core.rows.chunks.checking import check_chunk
from dodona_tablets.core.rows.chunks.layout import BLOCK_BYTES_MAX, BLOCK_ROWS_MAX, chunk_schema
from dodona_tablets.core.rows.chunks.rows import batches_of_rows
from dodona_tablets.core.rows.chunks.writing import write_chunk
from unit.tablets.chunks.making import (
    FULL,
    SCHEMA,
    Rows,
    at,
    deletion,
    items_of,
    key,
    made,
    made_of,
    small_blocks,
)

ROWS: Rows = {
    key(1): [at(30, 3), at(20, 2), at(10, 1)],
    key(2): [deletion(25), at(15)],
    key(3): [at(40, None, None, None)],
}


def test_the_description_of_a_chunk_matches_its_content() -> None:
    chunk = made_of(ROWS, number=12)
    info = chunk.info
    assert (info.number, info.row_count, info.size_bytes) == (12, 6, len(chunk.data))
    assert (info.lower, info.upper) == (key(1), key(3))
    assert (info.min_timestamp, info.max_timestamp) == (10, 40)
    assert info.garbage_count == 4  # two older ones of row 1, a deletion and what is below
    check_chunk(chunk.open())


def test_any_arrow_tool_reads_the_file() -> None:
    file = pa.ipc.open_file(pa.py_buffer(made_of(ROWS).data))
    assert file.schema.metadata == {b"dodona.chunk": b"1"}
    table = file.read_all()
    assert table.column("$key").to_pylist() == [*[key(1)] * 3, key(2), key(2), key(3)]
    assert table.column("id").to_pylist() == [1, 1, 1, 2, 2, 3]
    assert table.column("a").to_pylist() == [3, 2, 1, None, 0, None]
    assert table.column("$timestamp").to_pylist() == [30, 20, 10, 25, 15, 40]
    assert table.column("$mask").to_pylist() == [FULL, FULL, FULL, 0, FULL, FULL]


def test_a_chunk_of_a_batch_has_no_timestamps() -> None:
    columns = [[key(1), key(2)], [1, 2], [10, 20], ["x", None], [0.5, None]]
    names = chunk_schema(SCHEMA, "batch").names
    batch = pa.record_batch(dict(zip(names, columns, strict=True)), chunk_schema(SCHEMA, "batch"))
    chunk = made([batch])
    info = chunk.info
    assert info.min_timestamp == info.max_timestamp == NULL_TIMESTAMP
    assert not info.has_timestamps
    assert info.garbage_count == 0
    check_chunk(chunk.open())


def masked(*masks: int) -> pa.RecordBatch:
    """Rows 1, 2, 3, ... that set these columns, all to null."""
    schema = chunk_schema(SCHEMA, "masked")
    rows = [{"$key": key(it), "id": it, "$mask": mask} for it, mask in enumerate(masks, 1)]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def test_a_chunk_with_masks_and_no_times_is_of_a_later_format() -> None:
    chunk = made([masked(FULL, 0, 0b10, 0)])
    assert not chunk.info.has_timestamps
    assert chunk.info.garbage_count == 2
    assert chunk.open().index.layout == "masked"
    check_chunk(chunk.open())
    assert [it.raw_index[0] for it in (made_of(ROWS), chunk)] == [1, 2]
    assert pa.ipc.open_file(pa.py_buffer(chunk.data)).schema.metadata == {b"dodona.chunk": b"2"}


def test_rows_without_times_have_one_version_each() -> None:
    batch = masked(FULL, FULL)
    with pytest.raises(AssertionError, match="out of order"):
        made([batch, batch.slice(1)])


def test_no_rows_make_no_chunk() -> None:
    empty = _batch((1, 5)).slice(0, 0)
    for batches in ([], [empty], [empty, empty]):
        sink = io.BytesIO()
        assert write_chunk(1, SCHEMA, batches, sink) is None
        assert sink.getvalue() == b""


# Blocks


@pytest.mark.parametrize("slice_rows", [1, 2, 3, 7, 100])
def test_blocks_end_between_keys(slice_rows: int) -> None:
    rows = {key(it): [at(9), at(8), at(7)][: 1 + it % 3] for it in range(20)}
    with small_blocks(7):
        chunk = made_of(rows, slice_rows=slice_rows)
    blocks = chunk.open().index.blocks
    assert sum(it.row_count for it in blocks) == chunk.info.row_count
    assert all(it.row_count <= 7 for it in blocks)
    assert all(left.upper < right.lower for left, right in pairwise(blocks))
    check_chunk(chunk.open())


def test_a_key_with_more_versions_than_fit_goes_on_in_the_next_blocks() -> None:
    rows = {
        key(1): [at(5)],
        key(2): [at(100 - it) for it in range(20)],
        key(3): [at(5)],
    }
    with small_blocks(8):
        chunk = made_of(rows, slice_rows=5)
    blocks = chunk.open().index.blocks
    assert [it.row_count for it in blocks] == [1, 8, 8, 5]
    assert [it.key_count for it in blocks] == [1, 1, 1, 2]
    assert chunk.info.garbage_count == 19
    check_chunk(chunk.open())


def test_blocks_of_large_rows_are_bounded_by_their_bytes() -> None:
    rows = {key(it): [at(5, b="x" * (3000 if it == 10 else 100))] for it in range(30)}
    with small_blocks(1000, bytes_max=1500):
        chunk = made_of(rows)
    blocks = chunk.open().index.blocks
    (large,) = [it for it in blocks if it.lower <= key(10) <= it.upper]
    assert large.row_count == 1
    assert [it.row_count for it in blocks] == [9, 1, 1, 9, 9, 1]
    check_chunk(chunk.open())


def test_a_block_has_at_most_the_maximum_rows_and_bytes() -> None:
    schema = TableSchema.parse([SCHEMA.columns[0], Column("a", "int64")])
    ids = pa.array(range(BLOCK_ROWS_MAX + 10), pa.int64())
    keys = pa.array(map(key, range(BLOCK_ROWS_MAX + 10)), pa.binary())
    batch = pa.record_batch([keys, ids, ids], schema=chunk_schema(schema, "batch"))
    blocks = made([batch], schema).open().index.blocks
    assert [it.row_count for it in blocks] == [BLOCK_ROWS_MAX, 10]
    assert all(it.size_bytes < BLOCK_BYTES_MAX for it in blocks)


@pytest.mark.parametrize("sizes", [[30], [10, 20], [1] * 30, [0, 29, 0, 1], [8, 8, 8, 6]])
def test_a_chunk_does_not_depend_on_the_sizes_of_its_input_batches(sizes: list[int]) -> None:
    rows = {key(it): [at(5 + it, it)] for it in range(30)}
    (whole,) = batches_of_rows(SCHEMA, items_of(rows))
    batches, start = [], 0
    for size in sizes:
        batches.append(whole.slice(start, size))
        start += size
    with small_blocks(8):
        chunk = made(batches)
    assert [it.row_count for it in chunk.open().index.blocks] == [8, 8, 8, 6]
    (again,) = pa.ipc.open_file(chunk.data).read_all().combine_chunks().to_batches()
    assert again.equals(whole)


# Order


def _batch(*items: tuple[int, int]) -> pa.RecordBatch:
    """Rows of (id, timestamp) as they come."""
    slices = [
        batch
        for number, timestamp in items
        for batch in batches_of_rows(SCHEMA, [(key(number), at(timestamp))])
    ]
    return pa.concat_batches(slices)


@pytest.mark.parametrize(
    "items",
    [
        [(2, 5), (1, 5)],
        [(1, 5), (1, 5)],
        [(1, 5), (1, 6)],
        [(1, 5), (2, 5), (2, 4), (2, 4)],
        [(1, 5), (3, 5), (2, 9)],
    ],
)
@pytest.mark.parametrize("rows_max", [100, 2, 1])
def test_rows_out_of_order_are_refused(items: list[tuple[int, int]], rows_max: int) -> None:
    with small_blocks(rows_max), pytest.raises(AssertionError, match="out of order"):
        made([_batch(*items)])
    with small_blocks(rows_max), pytest.raises(AssertionError, match="out of order"):
        made([_batch(it) for it in items])


def test_a_batch_with_a_key_twice_is_refused() -> None:
    batch = _batch((1, 5), (1, 4)).drop_columns(["$timestamp", "$mask"])
    with pytest.raises(AssertionError, match="out of order"):
        made([batch])


def test_batches_of_another_layout_are_refused() -> None:
    batch = _batch((1, 5))
    with pytest.raises(AssertionError, match="layout"):
        made([batch.drop_columns(["$timestamp", "$mask"]), _batch((2, 5))])
    other = TableSchema.parse([*SCHEMA.columns, Column("z", "any")])
    with pytest.raises(AssertionError, match="layout"):
        made([batch], other)


def test_masks_of_columns_that_are_not_there_are_refused() -> None:
    version = (Timestamp(5), FULL, (1, "x", 0.5), None)
    (batch,) = batches_of_rows(SCHEMA, [(key(1), version)])
    place = batch.schema.names.index("$mask")
    wrong = batch.set_column(place, batch.schema.field(place), pa.array([FULL + 1], pa.uint64()))
    with pytest.raises(AssertionError, match="mask"):
        made([wrong])
