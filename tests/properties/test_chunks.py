"""Chunks against a dictionary of versions: any schema, any rows, any blocks, any later schema."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dodona.keys import successor
from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN, SYNC_LAST_COMMITTED, Key, Timestamp
from dodona_tablets.core.rows.chunks.checking import check_chunk
from dodona_tablets.core.rows.chunks.compacting import compacted
from dodona_tablets.core.rows.chunks.reading import versions_of
from dodona_tablets.core.rows.chunks.rows import batches_of_rows
from dodona_tablets.core.rows.chunks.scanning import page_of, rows_of_page
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.core.rows.chunks.visibility import Visibility
from dodona_tablets.core.rows.version import Version, bits_of
from suite.levels import examples
from unit.tablets.chunks.making import Made, Rows, items_of, made, rows_of_batches, small_blocks

EXAMPLES = settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LATEST = 30
KEY_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.sampled_from([-(1 << 63), -1, 0, 1, 255, 256, (1 << 63) - 1]),
    "uint64": st.sampled_from([0, 1, 2, (1 << 64) - 1]),
    "double": st.sampled_from([float("-inf"), -1.5, -0.0, 0.0, 1e300]),
    "boolean": st.booleans(),
    "string": st.sampled_from([b"", b"\x00", b"\x00\x01", b"\x02", b"a", b"\xff" * 40]),
    "utf8": st.sampled_from(["", "\x00", "a", "ab", "ä", "x" * 200]),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **KEY_VALUES,
    "double": st.floats(),
    "string": st.binary(max_size=40),
    "utf8": st.text(max_size=10),
    "any": st.recursive(
        st.booleans() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
        lambda inner: st.lists(inner | st.none(), max_size=3),
        max_leaves=4,
    ),
}


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    """One in some is wide."""
    kinds = draw(st.lists(st.sampled_from(sorted(KEY_VALUES)), min_size=1, max_size=3))
    keys = [Column(f"k{at}", kind, sort_order="ascending") for at, kind in enumerate(kinds)]
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
    values = [Column(f"v{at}", kind) for at, kind in enumerate(kinds)]
    if draw(st.integers(0, 4)) == 0:
        values += [Column(f"w{at}", "int64") for at in range(62)]
    return TableSchema.parse([*keys, *values])


def masks(schema: TableSchema) -> st.SearchStrategy[int]:
    count = len(schema.value_columns)
    some = st.sets(st.integers(0, count - 1), max_size=4).map(lambda it: sum(1 << b for b in it))
    return st.just(schema.full_mask) | some


@st.composite
def versions(draw: st.DrawFn, schema: TableSchema, *, has_specials: bool) -> list[Version]:
    """Of a row, newest first."""
    found: list[Version] = []
    stamps = draw(st.sets(st.integers(1, LATEST), min_size=1, max_size=5))
    for at in sorted(stamps, reverse=True):
        mask = draw(masks(schema))
        types = [schema.value_columns[bit].type for bit in bits_of(mask)]
        row = tuple([draw(st.none() | VALUES[it]) for it in types])
        plain = (Timestamp(at), mask, row, None)
        deltas, shared = (draw(masks(schema)) & mask, draw(st.integers(0, 7)))
        found.append((*plain, deltas, shared) if has_specials and (deltas or shared) else plain)
    return found


class Case(NamedTuple):
    schema: TableSchema
    rows: Rows
    has_specials: bool
    chunk: Made


def keys_of(schema: TableSchema) -> st.SearchStrategy[Key]:
    values = st.tuples(*[st.none() | KEY_VALUES[it.type] for it in schema.key_columns])
    return values.map(schema.bound_of)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    schema = draw(schemas())
    has_specials = draw(st.booleans())
    found = draw(st.sets(keys_of(schema), min_size=1, max_size=12))
    rows = {key: draw(versions(schema, has_specials=has_specials)) for key in sorted(found)}
    slices = batches_of_rows(
        schema,
        items_of(rows),
        has_specials=has_specials,
        slice_rows=draw(st.sampled_from([1, 3, 100])),
    )
    with small_blocks(draw(st.integers(1, 8)), draw(st.sampled_from([1, 400, 1 << 20]))):
        chunk = made(slices, schema)
    return Case(schema, rows, has_specials, chunk)


def same(left: object, right: object) -> bool:
    """Equal, where NaN is equal to itself."""
    return repr(left) == repr(right)


def walked(view: ChunkView, lower: Key, upper: Key) -> list[tuple[Key, Version]]:
    found: list[tuple[Key, Version]] = []
    for batch in view.batches(lower, upper):
        batch.validate(full=True)
        assert batch.schema.names[0] == "$key"
        found += versions_of(view.schema, batch)
    return found


def bounds(schema: TableSchema) -> st.SearchStrategy[Key]:
    keys = keys_of(schema)
    prefixes = keys.map(lambda key: schema.bound_of(schema.decode_key(key)[:1]))
    return st.sampled_from([KEY_MIN, KEY_MAX]) | keys | keys.map(successor) | prefixes


@EXAMPLES
@given(cases(), st.data())
def test_a_chunk_answers_as_a_dictionary_does(case: Case, data: st.DataObject) -> None:
    schema, rows, _, chunk = case
    check_chunk(chunk.open())
    view = chunk.view(schema)
    timestamp = Timestamp(data.draw(st.integers(0, LATEST + 1)))
    others = data.draw(st.lists(keys_of(schema) | bounds(schema), max_size=8))
    for key in (*rows, *others):
        expected = rows.get(key, [])
        assert same(view.versions(key, SYNC_LAST_COMMITTED), expected)
        assert same(view.versions(key, timestamp), [it for it in expected if it[0] <= timestamp])


@EXAMPLES
@given(cases(), st.data())
def test_a_scan_of_a_range_finds_exactly_the_versions_in_the_range(
    case: Case, data: st.DataObject
) -> None:
    schema, rows, _, chunk = case
    lower, upper, first, last = (data.draw(bounds(schema)) for _ in range(4))
    view = chunk.view(schema, lower=first, upper=last)
    expected = [
        (key, version)
        for key in sorted(rows)
        if max(lower, first) <= key < min(upper, last)
        for version in rows[key]
    ]
    assert same(walked(view, lower, upper), expected)
    whole = list(rows_of_batches(schema, chunk.view(schema).batches(KEY_MIN, KEY_MAX)))
    assert same(whole, list(items_of(rows)))
    for key in rows:
        assert bool(view.versions(key, SYNC_LAST_COMMITTED)) == (first <= key < last)


@EXAMPLES
@given(cases(), st.data())
def test_a_read_of_some_columns_finds_all_their_visible_versions(
    case: Case, data: st.DataObject
) -> None:
    schema, rows, _, chunk = case
    view = chunk.view(schema)
    wanted = data.draw(masks(schema))
    timestamp = Timestamp(data.draw(st.integers(0, LATEST + 1)))
    for key, known in rows.items():
        seen = [it for it in known if it[0] <= timestamp]
        found = view.versions(key, timestamp, wanted)
        assert same(found, seen[: len(found)])
        assert same(read(found, wanted), read(seen, wanted))


def read(newest_first: list[Version], wanted: int) -> dict[int, list[Any]] | None:
    """Per column the changes and then the value that a reader comes by; None if no row is there."""
    found: dict[int, list[Any]] = {bit: [] for bit in bits_of(wanted)}
    settled: set[int] = set()
    is_there = False
    for version in newest_first:
        if not version[1]:
            break
        is_there = True
        deltas = version[4] if len(version) == 6 else 0
        for bit, value in zip(bits_of(version[1]), version[2], strict=True):
            if bit in found and bit not in settled:
                found[bit].append(value)
                if not deltas >> bit & 1:
                    settled.add(bit)
    return found if is_there else None


# Altered tables


@st.composite
def alterations(draw: st.DrawFn, schema: TableSchema) -> TableSchema:
    """What a table may become, as the catalog lets it."""
    kinds = draw(st.lists(st.sampled_from(sorted(KEY_VALUES)), max_size=2))
    more = [Column(f"l{at}", kind, sort_order="ascending") for at, kind in enumerate(kinds)]
    new = [Column(f"n{at}", "any") for at in range(draw(st.sampled_from([0, 1, 2, 61])))]
    values = draw(st.permutations([*schema.value_columns, *new]))
    is_text = draw(st.booleans())
    columns = [*schema.key_columns, *more, *values]
    if not is_text:
        columns = [replace(it, type="string") if it.type == "utf8" else it for it in columns]
    return TableSchema.parse(columns)


def altered(old: TableSchema, new: TableSchema, rows: Rows) -> Rows:
    """The same rows of the altered table, by the names of columns."""
    suffix = [None] * (len(new.key_columns) - len(old.key_columns))
    return {
        new.bound_of([*old.decode_key(key), *suffix]): [altered_version(old, new, it) for it in row]
        for key, row in rows.items()
    }


def altered_version(old: TableSchema, new: TableSchema, version: Version) -> Version:
    if old.columns == new.columns:
        return version
    named = dict(zip((old.value_names[it] for it in bits_of(version[1])), version[2], strict=True))
    values = [
        named[it.name].encode()
        if it.type == "string" and isinstance(named[it.name], str)
        else named[it.name]
        for it in new.value_columns
        if it.name in named
    ]
    plain = (version[0], new.column_mask(list(named)), tuple(values), None)
    deltas = [old.value_names[it] for it in bits_of(version[4])] if len(version) == 6 else []
    return (*plain, new.column_mask(deltas), 0) if deltas else plain


@EXAMPLES
@given(cases(), st.data())
def test_a_chunk_is_read_in_the_altered_schema_of_its_table(
    case: Case, data: st.DataObject
) -> None:
    old = case.schema
    new = data.draw(alterations(old))
    rows = altered(old, new, case.rows)
    lower, upper = data.draw(bounds(new)), data.draw(bounds(new))
    view = case.chunk.view(new, lower=lower, upper=upper)
    inside = [key for key in sorted(rows) if lower <= key < upper]
    assert same(walked(view, KEY_MIN, KEY_MAX), [(key, it) for key in inside for it in rows[key]])
    whole = case.chunk.view(new)
    assert same(walked(whole, lower, upper), [(key, it) for key in inside for it in rows[key]])
    for key in (*rows, *data.draw(st.lists(keys_of(new), max_size=4)), *case.rows):
        expected = rows.get(key, [])
        assert same(whole.versions(key, SYNC_LAST_COMMITTED), expected)
        assert same(view.versions(key, SYNC_LAST_COMMITTED), expected if key in inside else [])


# Chunks whose rows have the stamp that they are attached with


def unstamped(schema: TableSchema, rows: Rows, left_out: set[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches_of_rows(schema, items_of(rows), slice_rows=3):
        yield batch.select([it for it in batch.schema.names if it not in left_out])


@st.composite
def loads(draw: st.DrawFn, schema: TableSchema, stamp: Timestamp) -> tuple[Rows, Made]:
    """Rows with one version each, and a chunk of them: in layout `batch`, or with masks."""
    has_masks = draw(st.booleans())
    chosen = masks(schema) if has_masks else st.just(schema.full_mask)
    rows: dict[Key, list[Version]] = {}
    for key in draw(st.sets(keys_of(schema), min_size=1, max_size=9)):
        mask = draw(chosen)
        types = [schema.value_columns[bit].type for bit in bits_of(mask)]
        rows[key] = [(stamp, mask, tuple([draw(st.none() | VALUES[it]) for it in types]), None)]
    left_out = {"$timestamp"} if has_masks else {"$timestamp", "$mask"}
    with small_blocks(draw(st.integers(1, 5))):
        return rows, made(unstamped(schema, rows, left_out), schema)


@EXAMPLES
@given(schemas(), st.data())
def test_a_chunk_without_timestamps_answers_as_a_dictionary_does(
    schema: TableSchema, data: st.DataObject
) -> None:
    stamp = Timestamp(data.draw(st.integers(1, LATEST)))
    rows, chunk = data.draw(loads(schema, stamp))
    check_chunk(chunk.open())
    assert not chunk.info.has_timestamps
    assert chunk.info.garbage_count == sum(not row[0][1] for row in rows.values())
    new = data.draw(st.just(schema) | alterations(schema))
    expected = altered(schema, new, rows)
    view = chunk.view(new, stamp)
    assert same(
        walked(view, KEY_MIN, KEY_MAX), [(key, expected[key][0]) for key in sorted(expected)]
    )
    for key in (*expected, *data.draw(st.lists(keys_of(new), max_size=4))):
        assert same(view.versions(key, stamp), expected.get(key, []))
        assert view.versions(key, Timestamp(stamp - 1)) == []


@pytest.mark.slow("large examples")
@EXAMPLES
@given(cases(), st.data())
def test_a_load_over_other_rows_reads_as_single_writes_at_its_timestamp(
    case: Case, data: st.DataObject
) -> None:
    """Whoever reads sees the same, and compaction leaves the same, of today's columns too."""
    stamp = Timestamp(LATEST + 1)
    loaded, chunk = data.draw(loads(case.schema, stamp))
    new = data.draw(st.just(case.schema) | alterations(case.schema))
    views = [chunk.view(new, stamp), case.chunk.view(new)]
    together = {
        key: [*loaded.get(key, []), *case.rows.get(key, [])] for key in {*loaded, *case.rows}
    }
    rows = altered(case.schema, new, together)
    compact = list(compacted(new, [it.batches(KEY_MIN, KEY_MAX) for it in views]))
    assert same(list(rows_of_batches(new, compact)), list(items_of(rows)))
    wanted = data.draw(masks(new))
    at = Timestamp(data.draw(st.integers(LATEST - 5, LATEST + 2)))
    snapshot = Visibility(new, wanted, at)
    one_by_one = batches_of_rows(new, items_of(rows), has_specials=case.has_specials)
    page = page_of(snapshot, [it.batches(KEY_MIN, KEY_MAX) for it in views], 100)
    expected = page_of(snapshot, [one_by_one], 100)
    assert same(rows_of_page(snapshot, page), rows_of_page(snapshot, expected))
