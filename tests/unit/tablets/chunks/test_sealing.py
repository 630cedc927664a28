"""Seals of loads: each rule by itself, and what is not read."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from dodona.errors import ERRORS_BY_KIND, TransactionConflict
from dodona.schema import Column, TableSchema
from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    MAX_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    Key,
    LoadMode,
    Timestamp,
)
from dodona_tablets.core.rows.chunks import merging, sealing
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.chunks.jobs import Built, SealJob, build
from dodona_tablets.core.rows.chunks.layout import chunk_schema
from dodona_tablets.core.rows.chunks.merging import Versions, merged
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.chunks.zones import Layer, Range, Zone, lanes_of
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.version import Version, chain_of
from dodona_wire.messages.base import Failure
from unit.tablets.chunks.making import SCHEMA, at, deletion, key, made, made_of, small_blocks

SINCE = Timestamp(20)
ALL = ((KEY_MIN, KEY_MAX),)
NOTHING_IS_LATE = Timestamp(MAX_TIMESTAMP)


def staged(
    *ids: int, mask: int = 1, schema: TableSchema = SCHEMA, rows_max: int = 100
) -> ChunkView:
    """A staged chunk of the rows with these numbers."""
    layout = chunk_schema(schema, "masked")
    nulls = dict.fromkeys(schema.key_names)
    rows = [{"$key": schema.key_of({**nulls, "id": it}), "id": it, "$mask": mask} for it in ids]
    with small_blocks(rows_max):
        chunk = made([pa.RecordBatch.from_pylist(rows, schema=layout)], schema)
    return chunk.view(schema, stamp=MAX_TIMESTAMP)


def chunk_of(rows: dict[int, list[Version]], rows_max: int = 100) -> ChunkView:
    with small_blocks(rows_max):
        return made_of({key(it): versions for it, versions in rows.items()}).view()


def store_of(rows: dict[int, list[Version]]) -> DynamicStore:
    store = DynamicStore(1)
    for it, versions in rows.items():
        store.put(key(it), chain_of(versions))
    store.sort()
    return store


def seal(
    loads: list[ChunkView],
    layers: list[Layer],
    mode: LoadMode = "upsert",
    since: Timestamp = SINCE,
    erased: tuple[Range, ...] = (),
) -> Any:
    schema = loads[0].schema if loads else SCHEMA
    return build(SealJob(9, schema, tuple(loads), tuple(layers), mode, since, erased))


def deleted(result: Any) -> list[int]:
    """The numbers of the rows that a seal deletes."""
    assert isinstance(result, Built)
    view = ChunkView(result.chunk, AttachedChunk(result.info, Timestamp(99)), SCHEMA)
    keys = [it for batch in view.batches(KEY_MIN, KEY_MAX) for it in batch.column("$key")]
    for it in keys:
        assert view.versions(Key(it.as_py()), SYNC_LAST_COMMITTED) == [(99, 0, (), None)]
    return [SCHEMA.decode_key(Key(it.as_py()))[0] for it in keys]


def opened_blocks(view: ChunkView) -> list[int]:
    """The places of blocks that were read."""
    return [place for place, block in enumerate(view.chunk._blocks) if block is not None]


# ---- conflicts

LATE_WRITE = [at(25), at(15)]
LATE_DELETION = [deletion(25), at(15)]
LATE_BOTH = [deletion(25), at(22)]
DELETED_TWICE = [deletion(25), deletion(18), at(15)]
"""Not there as of `SINCE`: what came later changed nothing."""


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize(
    ("versions", "mode", "expected"),
    [
        (LATE_WRITE, "upsert", "concurrent_append"),
        (LATE_WRITE, "insert", "concurrent_append"),
        (LATE_WRITE, "update", "concurrent_append"),
        (LATE_WRITE, "delete", "concurrent_append"),
        (LATE_DELETION, "upsert", "concurrent_append"),
        (LATE_DELETION, "insert", "concurrent_append"),
        (LATE_DELETION, "update", "concurrent_delete_read"),
        (LATE_DELETION, "delete", "concurrent_delete_delete"),
        (DELETED_TWICE, "delete", "concurrent_delete_delete"),
        (DELETED_TWICE, "upsert", "concurrent_append"),
    ],
)
def test_a_staged_row_that_was_changed_since(
    versions: list[Version], mode: LoadMode, expected: str, in_memory: bool
) -> None:
    rows = {2: [at(20)], 3: versions, 4: [at(20)]}
    layer: Layer = store_of(rows) if in_memory else chunk_of(rows)
    result = seal([staged(2, 3, 4)], [layer], mode)
    assert isinstance(result, Failure)
    assert result.kind == expected
    assert result.attributes == {
        "key": {"id": 3},
        "start_timestamp": SINCE,
        "winner_timestamp": 25,
    }
    assert "row {'id': 3} was" in result.message
    assert issubclass(ERRORS_BY_KIND[result.kind], TransactionConflict)
    assert not isinstance(seal([staged(3)], [layer], "upsert", NOTHING_IS_LATE), Failure)
    assert not isinstance(seal([staged(3)], [layer], "upsert", Timestamp(25)), Failure)


@pytest.mark.parametrize("mode", ["upsert", "update", "delete"])
@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (LATE_WRITE, "concurrent_append"),
        (LATE_DELETION, "concurrent_delete_read"),
        (LATE_BOTH, "concurrent_append"),
        (DELETED_TWICE, None),
        ([deletion(25)], None),
        ([deletion(20), at(15)], None),
    ],
)
def test_a_row_of_an_erased_range_that_was_changed_since(
    versions: list[Version], mode: LoadMode, expected: str | None
) -> None:
    """That none was staged for."""
    layers: list[Layer] = [store_of({3: versions[:1]})]
    layers += [chunk_of({3: versions[1:]})] if versions[1:] else []
    result = seal([], layers, mode, erased=ALL)
    assert (result and result.kind) == expected
    assert seal([], layers, mode, erased=((KEY_MIN, key(3)), (key(4), KEY_MAX))) is None


def test_a_row_of_another_load_was_changed_when_that_one_was_published() -> None:
    stamped = [staged(3), staged(3, mask=0)]
    loads = [
        ChunkView(it.chunk, AttachedChunk(it.attached.info, Timestamp(25)), SCHEMA)
        for it in stamped
    ]
    kinds = [seal([staged(1, 3)], [it], "delete").kind for it in loads]
    assert kinds == ["concurrent_append", "concurrent_delete_delete"]
    assert [seal([staged(3)], [it], since=Timestamp(25)) for it in loads] == [None, None]


def test_a_staged_row_of_an_erased_range_counts_as_read_if_the_row_existed() -> None:
    for versions, kind in (
        (LATE_WRITE, "concurrent_append"),
        (LATE_DELETION, "concurrent_delete_read"),
        (DELETED_TWICE, "concurrent_append"),
    ):
        assert seal([staged(3)], [chunk_of({3: versions})], erased=ALL).kind == kind


# ---- what is there


def test_a_key_that_is_staged_twice() -> None:
    for mode in ("upsert", "insert", "delete"):
        result = seal([staged(1, 2, 4), staged(3), staged(0, 2)], [], mode, NOTHING_IS_LATE)
        assert (result.kind, result.attributes) == ("duplicate_key", {"key": {"id": 2}})
    assert seal([staged(1, 2, 4), staged(3), staged(0, 5)], []) is None


def test_an_insert_meets_rows_that_are_there() -> None:
    chunk = chunk_of({1: [at(5)], 2: [at(5)], 4: [at(5)]})
    layers: list[Layer] = [chunk, store_of({2: [deletion(6)]})]
    assert seal([staged(0, 2, 3)], layers, "insert", NOTHING_IS_LATE) is None
    result = seal([staged(0, 2, 3, 4)], layers, "insert", NOTHING_IS_LATE)
    assert (result.kind, result.attributes) == ("duplicate_key", {"key": {"id": 4}})
    assert seal([staged(0, 2, 3, 4)], layers, "upsert", NOTHING_IS_LATE) is None
    assert seal([staged(0, 2, 3, 4, mask=0)], layers, "delete", NOTHING_IS_LATE) is None


def test_an_update_meets_rows_that_are_not_there() -> None:
    chunk = chunk_of({1: [at(5)], 2: [at(5)], 4: [at(5)]})
    layers: list[Layer] = [chunk, store_of({2: [deletion(6)]})]
    assert seal([staged(1, 4)], layers, "update", NOTHING_IS_LATE) is None
    for ids, absent in (((1, 2, 4), 2), ((1, 3), 3), ((0, 1), 0), ((4, 9), 9)):
        result = seal([staged(*ids)], layers, "update", NOTHING_IS_LATE)
        assert (result.kind, result.attributes) == ("row_not_found", {"key": {"id": absent}})
    assert seal([staged(1)], [], "update", NOTHING_IS_LATE).kind == "row_not_found"


def test_rows_of_erased_ranges_that_are_not_staged_are_deleted() -> None:
    rows = {it: [at(5)] for it in range(10)} | {4: [deletion(6), at(5)]}
    layers: list[Layer] = [chunk_of(rows, rows_max=3), store_of({12: [at(7)], 5: [deletion(8)]})]
    loads = [staged(1, 3), staged(2, 6)]
    assert deleted(seal(loads, layers, erased=ALL)) == [0, 7, 8, 9, 12]
    two = ((key(1), key(2)), (key(7), key(9)))
    assert deleted(seal(loads, layers, erased=two)) == [7, 8]
    assert seal(loads, layers, erased=((key(1), key(4)), (key(20), KEY_MAX))) is None
    assert deleted(seal([], layers, erased=ALL)) == [0, 1, 2, 3, 6, 7, 8, 9, 12]


def test_nothing_next_to_an_erased_range_is_deleted() -> None:
    rows = {it: [at(5)] for it in range(6)}
    result = seal([staged(0, 8)], [chunk_of(rows)], "delete", erased=((key(2), key(4)),))
    assert deleted(result) == [2, 3]
    assert seal([staged(-1, 8)], [chunk_of(rows)], "insert") is None


def test_a_chunk_of_an_altered_table_is_compared_by_its_current_keys() -> None:
    longer = TableSchema.parse(
        [SCHEMA.columns[0], Column("part", "string", sort_order="ascending"), *SCHEMA.columns[1:]]
    )
    layer = made_of({key(it): [at(5)] for it in (1, 2, 3)}).view(longer)
    load = staged(2, schema=longer)
    result = seal([load], [layer], "insert")
    assert result.kind == "duplicate_key"
    assert result.attributes == {"key": {"id": 2, "part": None}}
    assert seal([staged(4, schema=longer)], [layer], "insert") is None
    built = seal([load], [layer], erased=ALL)
    assert built.chunk.block(0).batch.column("id").to_pylist() == [1, 3]


# ---- what is not read


def test_a_seal_reads_no_blocks_if_the_key_ranges_are_separate() -> None:
    layer = chunk_of({it: [at(30)] for it in range(10)})
    for mode in ("upsert", "insert", "delete"):
        loads = [staged(10, 12), staged(13, 20)]
        assert seal(loads, [layer], mode) is None
        assert [opened_blocks(it) for it in (*loads, layer)] == [[], [], []]


def test_blocks_that_are_not_met_are_not_read() -> None:
    layer = chunk_of({it: [at(5)] for it in range(0, 40, 2)}, rows_max=5)
    load = staged(11, 13, 31, 33, 50, rows_max=2)
    assert seal([load], [layer], "insert") is None
    assert (opened_blocks(layer), opened_blocks(load)) == ([1, 3], [0, 1])


def test_a_seal_reads_blocks_without_late_versions_only_if_older_ones_matter() -> None:
    rows = {it: [at(30 if it == 7 else 5)] for it in range(9)}
    layer, load = chunk_of(rows, rows_max=3), staged(0, 1, 4, 5, 6, 8)
    assert seal([load], [layer]) is None
    assert opened_blocks(layer) == [2]
    assert seal([load], [layer], since=NOTHING_IS_LATE) is None
    assert seal([load], [layer], "update", since=NOTHING_IS_LATE) is None
    assert opened_blocks(layer) == [0, 1, 2]


def test_a_store_s_rows_are_looked_at_where_they_can_be_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walks: list[tuple[Key, Key]] = []
    walk = DynamicStore.walk

    def recorded(store: DynamicStore, lower: Key, upper: Key) -> Iterator[tuple[Key, Version]]:
        walks.append((lower, upper))
        return walk(store, lower, upper)

    monkeypatch.setattr(DynamicStore, "walk", recorded)
    old, young = store_of({1: [at(20)], 5: [at(19)]}), store_of({3: [at(21)], 8: [at(22)]})
    assert seal([staged(1, 2, 4, 5), staged(9)], [old, young]) is None
    assert walks == [(key(3), Key(key(5) + b"\x00"))]
    assert seal([staged(1)], [DynamicStore(1)], "insert") is None


def test_chunks_that_lie_one_behind_the_other_are_one_source() -> None:
    views = [staged(*range(it, it + 5)) for it in (10, 0, 5, 7, 20, 1)]
    lanes = lanes_of(views, Zone(key(1), key(15), is_erased=False))
    firsts = [[SCHEMA.decode_key(view.lower)[0] for view in lane] for lane in lanes]
    assert firsts == [[0, 5, 10], [1, 7]]


def test_windows_of_many_sources_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that all go over the whole range of keys are not looked at all at once."""
    counts = []

    def counted(schema: TableSchema, pieces: list[pa.RecordBatch]) -> Versions:
        counts.append(sum(it.num_rows for it in pieces))
        return merged(schema, pieces)

    monkeypatch.setattr(sealing, "WINDOW_ROWS", 100)
    monkeypatch.setattr(merging, "CUT_ROWS_MIN", 4)
    monkeypatch.setattr(sealing, "merged", counted)
    loads = [staged(*range(it, 2000, 20)) for it in range(20)]
    assert seal(loads, []) is None
    assert sum(counts) == 1998  # the first row and the last are nowhere near another chunk
    assert max(counts) <= 100
