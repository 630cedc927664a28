"""What a tablet sees of a chunk: lookups, ranges, and its columns of today."""

import pyarrow as pa
import pytest
from msgspec.structs import replace

from dodona.keys import successor
from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN, SYNC_LAST_COMMITTED, Key, Timestamp
from dodona_tablets.core.rows.chunks import block
from dodona_tablets.core.rows.chunks.layout import chunk_schema
from dodona_tablets.core.rows.chunks.reading import versions_of
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.version import Version
from unit.tablets.chunks.making import (
    FULL,
    SCHEMA,
    Made,
    Rows,
    at,
    deletion,
    key,
    made,
    made_of,
    small_blocks,
)

NOW = SYNC_LAST_COMMITTED
ROWS: Rows = {
    key(10): [at(30, 3), at(20, 2), at(10, 1)],
    key(20): [deletion(25), at(15)],
    key(30): [(Timestamp(40), 0b010, ("only b",), None), at(12, None, None, None)],
}
STAMP = Timestamp(77)


def seen(view: ChunkView, lower: Key = KEY_MIN, upper: Key = KEY_MAX) -> list[tuple[Key, Version]]:
    """What a walk comes by, as `versions_of` reads it with today's columns."""
    schema = view.schema
    found: list[tuple[Key, Version]] = []
    for batch in view.batches(lower, upper):
        batch.validate(full=True)
        assert batch.num_rows
        found += versions_of(schema, batch)
    return found


def batch_of(count: int) -> pa.RecordBatch:
    """Rows with the keys 0, 10, 20, ... as bulk loads bring them."""
    ids = range(0, 10 * count, 10)
    columns = {
        "$key": [key(it) for it in ids],
        "id": list(ids),
        "a": list(ids),
        "b": [None if it % 3 else f"b{it}" for it in ids],
        "sum": [it / 2 for it in ids],
    }
    return pa.record_batch(columns, chunk_schema(SCHEMA, "batch"))


# Lookups


def test_the_versions_of_a_row_are_newest_first() -> None:
    view = made_of(ROWS).view()
    for row, versions in ROWS.items():
        assert view.versions(row, NOW) == versions


def test_versions_above_the_timestamp_are_not_seen() -> None:
    view = made_of(ROWS).view()
    for timestamp in range(45):
        expected = [it for it in ROWS[key(10)] if it[0] <= timestamp]
        assert view.versions(key(10), Timestamp(timestamp)) == expected


def test_rows_that_are_not_there_have_none() -> None:
    with small_blocks(2):
        view = made_of(ROWS).view()
    for number in (9, 11, 19, 21, 29, 31):
        assert view.versions(key(number), NOW) == []
    assert view.versions(KEY_MIN, NOW) == []
    assert view.versions(Key(key(10)[:-1]), NOW) == []
    assert view.versions(successor(key(10)), NOW) == []


def test_a_key_that_the_filter_lets_through_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dodona_tablets.core.rows.chunks.view.may_have", lambda words, key: True)
    view = made_of({key(2 * it): [at(5)] for it in range(1000)}).view()
    assert not any(view.versions(key(2 * it + 1), NOW) for it in range(-1, 1001))


def test_a_key_whose_bytes_are_part_of_other_keys_is_not_confused_with_them() -> None:
    schema = TableSchema.parse(
        [
            Column("k", "string", sort_order="ascending"),
            Column("l", "string", sort_order="ascending"),
            Column("v", "int64"),
        ]
    )
    texts = [None, b"", b"\x10", b"\x10\x10", b"\x10\x00\x01\x10", b"\x02"]
    keys = [schema.bound_of([one, two]) for one in texts for two in texts]
    version: Version = (Timestamp(5), 1, (1,), None)
    for absent in keys:
        view = made_of({it: [version] for it in keys if it != absent}, schema).view(schema)
        assert [it for it in keys if view.versions(it, NOW)] == [it for it in keys if it != absent]


def test_versions_are_followed_across_blocks() -> None:
    many = [at(1000 - it, it) for it in range(200)]
    rows = {key(1): [at(5)], key(2): many, key(3): [at(6)]}
    with small_blocks(9):
        view = made_of(rows).view()
    assert view.versions(key(2), NOW) == many
    for timestamp in (1000, 999, 990, 850, 802, 801):
        found = view.versions(key(2), Timestamp(timestamp))
        assert found == [it for it in many if it[0] <= timestamp]
    assert view.versions(key(2), Timestamp(800)) == []
    assert view.versions(key(1), NOW) == [at(5)]
    assert view.versions(key(3), NOW) == [at(6)]


@pytest.mark.parametrize("step", [1, 2, 64])
def test_a_search_may_keep_any_part_of_the_keys(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(block, "ANCHOR_STEP", step)
    rows = {key(it): [at(9, it), at(8, it), at(7, it)][: 1 + it % 3] for it in range(100)}
    view = made_of(rows).view()
    assert all(view.versions(row, NOW) == rows[row] for row in rows)


def test_a_read_of_some_columns_returns_only_the_versions_that_it_needs() -> None:
    changes = (Timestamp(60), 0b100, (1.5,), None, 0b100, 0)
    rows: Rows = {
        key(1): [changes, at(50), at(40)],
        key(2): [(Timestamp(60), 0b001, (1,), None), deletion(50), at(40)],
        key(3): [(Timestamp(60), 0b001, (1,), None), (Timestamp(50), 0b010, ("b",), None), at(40)],
    }
    view = made_of(rows, has_specials=True).view()

    def count(number: int, wanted: int) -> int:
        found = view.versions(key(number), NOW, wanted)
        assert found == rows[key(number)][: len(found)]
        return len(found)

    assert [count(1, it) for it in (0, 0b001, 0b100, FULL)] == [1, 2, 2, 2]
    assert [count(2, it) for it in (0, 0b001, 0b010, FULL)] == [1, 1, 2, 2]
    assert [count(3, it) for it in (0, 0b001, 0b010, 0b011, FULL)] == [1, 1, 2, 2, 3]


# Chunks of batches


def test_rows_of_a_batch_are_full_writes_at_the_timestamp_of_the_batch() -> None:
    chunk = made([batch_of(10)])
    view = chunk.view(stamp=STAMP)
    assert view.versions(key(30), NOW) == [(STAMP, FULL, (30, "b30", 15.0), None)]
    assert view.versions(key(10), STAMP) == [(STAMP, FULL, (10, None, 5.0), None)]
    assert view.versions(key(10), Timestamp(STAMP - 1)) == []
    assert (view.min_timestamp, view.max_timestamp) == (STAMP, STAMP)
    assert [it[1][:2] for it in seen(view)] == [(STAMP, FULL)] * 10
    assert [it[0] for it in seen(view)] == [key(it) for it in range(0, 100, 10)]


def test_a_chunk_of_a_batch_needs_a_stamp() -> None:
    with pytest.raises(AssertionError, match="stamp"):
        made([batch_of(1)]).view()


# Ranges


def test_a_walk_comes_by_everything_in_order() -> None:
    with small_blocks(2):
        view = made_of(ROWS).view()
    assert seen(view) == [(row, it) for row in sorted(ROWS) for it in ROWS[row]]
    assert (view.lower, view.upper) == (key(10), successor(key(30)))
    assert (view.min_timestamp, view.max_timestamp) == (10, 40)


WHOLE = [key(it) for it in (10, 15, 20, 30, 31)]
BOUNDS = [KEY_MIN, *WHOLE, *map(successor, WHOLE), KEY_MAX]


@pytest.mark.parametrize("rows_max", [1, 2, 3, 100])
def test_a_range_returns_the_rows_between_its_bounds(rows_max: int) -> None:
    with small_blocks(rows_max):
        chunk = made_of(ROWS)
    for lower in BOUNDS:
        for upper in BOUNDS:
            expected = [
                (row, it) for row in sorted(ROWS) if lower <= row < upper for it in ROWS[row]
            ]
            assert seen(chunk.view(), lower, upper) == expected
            part = chunk.view(lower=lower, upper=upper)
            assert seen(part) == expected
            assert {row for row in ROWS if part.versions(row, NOW)} == {it[0] for it in expected}


def test_blocks_are_walked_without_copying() -> None:
    chunk = made_of(ROWS)
    opened = chunk.open()
    start = pa.py_buffer(opened.data).address
    (batch,) = chunk.view().batches(KEY_MIN, KEY_MAX)
    (batch,) = ChunkView(opened, chunk.view().attached, SCHEMA).batches(key(20), KEY_MAX)
    for column in batch.columns:
        for buffer in column.buffers():
            assert buffer is None or start <= buffer.address < start + len(chunk.data)


# Altered tables

ID, A, B, SUM = SCHEMA.columns
ID2 = Column("id2", "string", sort_order="ascending")
ALTERED = TableSchema.parse([ID, ID2, Column("z", "any"), SUM, replace(B, type="string"), A])
"""A key column more, a value column more, the others in another order, text that became bytes."""


def altered(number: int, id2: bytes | None = None) -> Key:
    return ALTERED.bound_of([number, id2])


@pytest.mark.parametrize("rows_max", [1, 2, 100])
def test_rows_follow_their_columns_by_name(rows_max: int) -> None:
    marks: Rows = {
        **ROWS,
        key(40): [(Timestamp(50), 0b110, ("y", 2.5), None, 0b100, 0b10)],
        key(50): [(Timestamp(50), 0b010, ("y",), None, 0, 0b10)],
    }
    with small_blocks(rows_max):
        view = made_of(marks, has_specials=True).view(ALTERED)
    assert view.versions(altered(10), NOW) == [
        (it[0], 0b1110, (0.5, b"x", it[2][0]), None) for it in ROWS[key(10)]
    ]
    assert view.versions(altered(20), NOW)[0] == (25, 0, (), None)
    assert view.versions(altered(30), NOW) == [
        (40, 0b0100, (b"only b",), None),
        (12, 0b1110, (None, None, None), None),
    ]
    assert view.versions(altered(40), NOW) == [(50, 0b0110, (2.5, b"y"), None, 0b0010, 0)]
    assert view.versions(altered(50), NOW) == [(50, 0b0100, (b"y",), None)]
    rows = [altered(it) for it in (10, 20, 30, 40, 50)]
    assert seen(view) == [(row, it) for row in rows for it in view.versions(row, NOW)]
    assert (view.lower, view.upper) == (altered(10), successor(altered(50)))


def test_null_and_others_in_a_new_key_column_are_different_rows() -> None:
    view = made_of(ROWS).view(ALTERED)
    assert view.versions(altered(10), NOW)
    for id2 in (b"", b"\x02", b"\x02\x02"):
        assert view.versions(altered(10, id2), NOW) == []
    for strange in (key(10), successor(key(10)), Key(key(10) + b"\x03")):
        assert view.versions(strange, NOW) == []


@pytest.mark.parametrize("rows_max", [1, 2, 100])
def test_a_range_of_longer_keys_is_found_among_shorter_ones(rows_max: int) -> None:
    with small_blocks(rows_max):
        chunk = made_of(ROWS)
    bounds = [KEY_MIN, KEY_MAX]
    for number in (5, 10, 20, 30):
        whole = altered(number)
        bounds += [key(number), whole, successor(whole), altered(number, b"")]
    rows = [altered(it) for it in (10, 20, 30)]
    for lower in bounds:
        for upper in bounds:
            expected = [row for row in rows if lower <= row < upper]
            part = chunk.view(ALTERED, lower=lower, upper=upper)
            walked = seen(chunk.view(ALTERED), lower, upper)
            assert list(dict.fromkeys(it[0] for it in walked)) == expected
            assert seen(part) == walked
            assert [row for row in rows if part.versions(row, NOW)] == expected


def test_a_batch_s_rows_lack_the_columns_that_came_later() -> None:
    view = made([batch_of(3)]).view(ALTERED, STAMP)
    version = (STAMP, 0b1110, (0.0, b"b0", 0), None)
    assert view.versions(altered(0), NOW) == [version]
    assert seen(view)[0] == (altered(0), version)


@pytest.mark.parametrize("is_in_order", [False, True])
def test_a_table_that_became_wide_has_longer_masks(is_in_order: bool) -> None:
    more = [Column(f"c{it}", "int64") for it in range(70)]
    wide = TableSchema.parse([ID, A, B, SUM, *more] if is_in_order else [ID, *more, SUM, B, A])
    view = made_of(ROWS).view(wide)
    rows = [key(10), key(20), key(30)]
    mask = 0b10 if is_in_order else 1 << 71
    assert view.versions(key(30), NOW)[0] == (40, mask, ("only b",), None)
    assert seen(view) == [(row, it) for row in rows for it in view.versions(row, NOW)]


def wide_chunk() -> tuple[TableSchema, Made, Rows]:
    wide = TableSchema.parse([ID, *[Column(f"c{it}", "int64") for it in range(100)]])
    rows: Rows = {
        key(it, schema=wide): [
            (Timestamp(9), 1 << it | 1 << 99, (it, None), None, 1 << it, 1),
            (Timestamp(8), wide.full_mask, tuple(range(100)), None),
            (Timestamp(7), 0, (), None),
        ]
        for it in range(0, 99, 9)
    }
    return wide, made_of(rows, wide, has_specials=True), rows


def test_wide_tables_have_wide_masks() -> None:
    wide, chunk, rows = wide_chunk()
    view = chunk.view(wide)
    assert seen(view) == [(row, it) for row in sorted(rows) for it in rows[row]]
    for row, versions in rows.items():
        assert view.versions(row, NOW) == versions
