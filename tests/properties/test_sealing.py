"""The seal of a load against a model that looks at one row at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.keys import encode_key, successor
from dodona.schema import TableSchema
from dodona.types import KEY_MAX, KEY_MIN, MAX_TIMESTAMP, Key, LoadMode, Timestamp
from dodona_tablets.core.rows.chunks import merging, sealing
from dodona_tablets.core.rows.chunks.checking import check_chunk
from dodona_tablets.core.rows.chunks.jobs import Built, SealJob, build
from dodona_tablets.core.rows.chunks.layout import chunk_schema
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.chunks.zones import Layer, Range, views_met
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.version import Version, chain_of, version_of
from dodona_wire.messages.base import Failure
from properties.histories import AGGREGATES, LATEST, SIMPLE, VALUES, WIDE, batches_of
from suite.levels import examples
from unit.tablets.chunks.making import made, small_blocks


class Case(NamedTuple):
    """A load over what a tablet has."""

    rows: dict[Key, list[Version]]
    """All versions of each row, from the oldest on."""
    loads: list[set[Key]]
    """The keys of each staged chunk."""
    job: SealJob


HOMES = 3
"""So many layers, and so many staged chunks, as a key may be in."""
ENDS = st.sampled_from([KEY_MIN, KEY_MAX])
homes = st.integers(0, HOMES - 1)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    schema = draw(st.sampled_from([SIMPLE, AGGREGATES, WIDE]))
    values = st.tuples(*[st.sampled_from(VALUES[it.type]) for it in schema.key_columns])
    keys = values.map(lambda it: encode_key(it, schema.key_types))
    known = sorted(draw(st.sets(keys, min_size=4, max_size=6)))
    rows: dict[Key, list[Version]] = {}
    stores: list[dict[Key, list[Version]]] = [{} for _ in range(HOMES)]
    loads: list[set[Key]] = [set() for _ in range(HOMES)]
    for key in known:
        for at in sorted(draw(st.sets(st.integers(1, LATEST), max_size=4))):
            version = draw(versions(schema, at))
            rows.setdefault(key, []).append(version)
            stores[draw(homes)].setdefault(key, []).append(version)
        if draw(st.booleans()):
            loads[draw(homes)].add(key)
    if draw(st.integers(0, 5)) == 0:
        loads[draw(homes)].add(draw(st.sampled_from(known)))  # perhaps a second time
    bounds = draw(st.just([KEY_MIN, KEY_MAX]) | st.lists(keys | keys.map(successor) | ENDS))
    bounds = sorted(set(bounds))
    with small_blocks(draw(st.integers(1, 4))):
        layers = [layer_of(draw, schema, it) for it in stores if it]
        staged = [staged_of(schema, draw(st.integers(0, schema.full_mask)), it) for it in loads]
    job = SealJob(
        number=9,
        schema=schema,
        staged=tuple([it for it in staged if it is not None]),
        existing=tuple(layers),
        mode=draw(st.sampled_from(get_args(LoadMode))),
        since=Timestamp(draw(st.just(MAX_TIMESTAMP) | st.sampled_from([4, 6, 7, 8]))),
        erased=tuple(zip(bounds[::2], bounds[1::2], strict=False)),
    )
    return Case(rows, loads, job)


@st.composite
def versions(draw: st.DrawFn, schema: TableSchema, at: int) -> Version:
    """A deletion, or a write of some column to null."""
    if draw(st.booleans()):
        return version_of(Timestamp(at), 0, ())
    shared = 1 if schema.aggregate_mask and draw(st.booleans()) else 0
    return version_of(Timestamp(at), 1, (None,), None, 0, shared)


def layer_of(draw: st.DrawFn, schema: TableSchema, rows: dict[Key, list[Version]]) -> Layer:
    """In memory, or in a chunk."""
    if draw(st.booleans()):
        slices = batches_of(schema, rows, draw(st.integers(1, 3)))
        return made(slices, schema).view(schema)
    store = DynamicStore(1)
    for key, versions in rows.items():
        store.put(key, chain_of(reversed(versions)))
    store.sort()
    return store


def staged_of(schema: TableSchema, mask: int, keys: set[Key]) -> ChunkView | None:
    """Rows that set these columns to null."""
    if not keys:
        return None
    layout = chunk_schema(schema, "batch" if mask == schema.full_mask else "masked")
    rows: list[dict[str, Any]] = [
        {"$key": key, **schema.named_key(key), "$mask": schema.pack_mask(mask)}
        for key in sorted(keys)
    ]
    for row in rows:
        row |= {name: row.get(name) for name in layout.names}
    batch = pa.RecordBatch.from_pylist(rows, schema=layout)
    return made([batch], schema, number=5).view(schema, stamp=MAX_TIMESTAMP)


# ---- the model


def trouble_of(case: Case, key: Key) -> tuple[str, int | None] | None:
    """What stands in the way at a row: the kind of the error, and the timestamp of a conflict."""
    mode, since = case.job.mode, case.job.since
    versions = case.rows.get(key, [])
    count = sum(key in keys for keys in case.loads)
    if count > 1:
        return "duplicate_key", None
    younger = [it for it in versions if it[0] > since]
    was_there = is_there(versions[: len(versions) - len(younger)])
    if younger and (count or is_erased(case.job.erased, key)):
        winner = int(younger[-1][0])
        if younger[-1][1]:
            return "concurrent_append", winner
        if count and mode == "delete":
            return "concurrent_delete_delete", winner
        reads = was_there and is_erased(case.job.erased, key)
        if reads or (count and mode == "update"):
            return "concurrent_delete_read", winner
        if count or any(it[1] for it in younger):
            return "concurrent_append", winner
    if count and mode == "insert" and is_there(versions):
        return "duplicate_key", None
    if count and mode == "update" and not is_there(versions):
        return "row_not_found", None
    return None


def is_there(versions: list[Version]) -> bool:
    return bool(versions) and versions[-1][1] != 0


def is_erased(ranges: tuple[Range, ...], key: Key) -> bool:
    return any(lower <= key < upper for lower, upper in ranges)


# ---- what is compared


@contextmanager
def small_windows(row_count: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "WINDOW_ROWS", row_count)
        patch.setattr(merging, "CUT_ROWS_MIN", 1)
        yield


@pytest.mark.slow("large examples")
@settings(max_examples=examples(500), deadline=None)
@given(cases(), st.sampled_from([1, 6, 1000]))
def test_a_seal_finds_the_same_as_a_check_of_each_row(case: Case, window_rows: int) -> None:
    schema, erased = case.job.schema, case.job.erased
    keys = sorted({*case.rows, *(key for load in case.loads for key in load)})
    troubles = {key: found for key in keys if (found := trouble_of(case, key)) is not None}
    let_others_go(case.job)
    with small_windows(window_rows):
        result = build(case.job)
    if troubles:
        assert isinstance(result, Failure)
        named = [key for key in keys if schema.named_key(key) == result.attributes["key"]]
        winner = result.attributes.get("winner_timestamp")
        assert [troubles.get(key) for key in named] == [(result.kind, winner)]
        return
    staged = set().union(*case.loads)
    expected = [
        key
        for key in keys
        if key not in staged and is_erased(erased, key) and is_there(case.rows.get(key, []))
    ]
    if not expected:
        assert result is None
        return
    assert isinstance(result, Built)
    check_chunk(result.chunk)
    rows = [row for at in range(len(result.chunk.lowers)) for row in rows_in(result, at)]
    assert rows == [deletion_of(schema, key) for key in expected]


def let_others_go(job: SealJob) -> None:
    """Let all chunks go that the seal is said not to read: to read them anyhow raises ChunkAway."""
    met = views_met(job.staged, job.existing, job.mode, job.since, job.erased)
    kept = {id(it.chunk) for it in met}
    for layer in (*job.staged, *job.existing):
        if isinstance(layer, ChunkView) and id(layer.chunk) not in kept:
            layer.chunk.let_go()


def rows_in(built: Built, place: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = built.chunk.block(place).batch.to_pylist()
    return found


def deletion_of(schema: TableSchema, key: Key) -> dict[str, Any]:
    values = dict.fromkeys(schema.value_names)
    return {"$key": key, **schema.named_key(key), **values, "$mask": schema.pack_mask(0)}
