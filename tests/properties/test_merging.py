"""Scans of several sources against the definition of a read, row by row."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.keys import encode_key
from dodona.types import ASYNC_LAST_COMMITTED, Key, Timestamp
from dodona_tablets.core.rows.chunks import vectors
from dodona_tablets.core.rows.chunks.merging import merged, windows
from dodona_tablets.core.rows.chunks.scanning import page_of, rows_of_page
from dodona_tablets.core.rows.chunks.visibility import Visibility
from dodona_tablets.core.rows.version import chain_of, values_between
from properties.histories import LATEST, WIDE, History, between, histories, rows_of

slices = st.integers(1, 5)
stamps = st.one_of(st.integers(1, LATEST), st.just(ASYNC_LAST_COMMITTED))


def expected(
    history: History, newest: Timestamp, oldest: Timestamp, wanted: int
) -> list[tuple[Key, tuple[Any, ...]]]:
    found = []
    for key, versions in history.rows.items():
        chain = chain_of(reversed(versions))
        values = values_between(chain, oldest, newest, wanted, history.schema.value_columns)
        if values is not None:
            found.append((key, values))
    return found


@st.composite
def snapshots(draw: st.DrawFn, history: History) -> Visibility:
    newest = draw(stamps)
    oldest = draw(st.one_of(st.just(0), st.integers(0, min(newest, LATEST))))
    full = history.schema.full_mask
    wanted = draw(st.one_of(st.just(full), st.integers(0, full)))
    return Visibility(history.schema, wanted, Timestamp(newest), Timestamp(oldest))


@given(st.data(), histories(), slices)
def test_a_scan_of_several_sources_equals_reads_of_single_rows(
    data: st.DataObject, history: History, slice_rows: int
) -> None:
    """Page by page, each of any size."""
    snapshot = data.draw(snapshots(history))
    limit, looked_at = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8))
    sources = history.sources(slice_rows)
    found: list[Any] = []
    lower: Key | None = Key(b"")
    while lower is not None:
        page = page_of(snapshot, [between(it, lower) for it in sources], limit, looked_at)
        keys, rows = rows_of_page(snapshot, page)
        assert len(keys) == page.table.num_rows <= limit
        assert page.table.schema == snapshot.arrow_schema
        assert page.resume is None or lower < page.resume
        assert [history.schema.decode_key(key) for key in keys] == [
            tuple(row[name] for name in history.schema.key_names) for row in page.table.to_pylist()
        ]
        found += zip(keys, rows, strict=True)
        lower = page.resume
    assert found == expected(history, snapshot.newest, snapshot.oldest, snapshot.wanted)


@given(histories(), slices, st.integers(1, 8))
def test_windows_have_all_versions_of_each_of_their_keys(
    history: History, slice_rows: int, count: int
) -> None:
    found: dict[Key, Any] = {}
    previous = Key(b"")
    for pieces, upper in windows(history.sources(slice_rows), count):
        versions = merged(history.schema, pieces)
        rows = rows_of(history.schema, [versions.in_order()])
        assert list(rows) == sorted(rows)
        assert all(previous <= key and (upper is None or key < upper) for key in rows)
        assert int(versions.starts.sum()) == len(rows)
        found |= rows
        previous = upper if upper is not None else previous
    assert found == history.rows


TYPES = ("string", "-int64")
keys = st.builds(
    lambda text, number: encode_key((text, number), TYPES),
    st.one_of(st.none(), st.binary(max_size=12)),
    st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-2, 2)),
)


@given(st.lists(st.lists(keys, min_size=1), min_size=1, max_size=4), st.booleans(), st.binary())
def test_sorted_runs_of_keys_are_merged_and_equal_keys_keep_their_order(
    runs: list[list[Key]], is_padded: bool, before: bytes
) -> None:
    """With any beginning in common; keys that are too long to be filled up too."""
    runs = [sorted(Key(before + key) for key in run) for run in runs]
    arrays = [pa.array([b"?", *run], pa.binary()).slice(1) for run in runs]
    with pytest.MonkeyPatch.context() as patch:
        if not is_padded:
            patch.setattr(vectors, "PADDED_BYTES_MAX", 0)
        order, starts = vectors.sorted_places(arrays)
    together = [key for run in runs for key in run]
    assert order.tolist() == sorted(range(len(together)), key=lambda at: together[at])
    ordered = [together[at] for at in order]
    assert starts.tolist() == [
        at == 0 or ordered[at] != ordered[at - 1] for at in range(len(ordered))
    ]


@given(st.lists(st.integers(0, (1 << 70) - 1)), st.integers(0, 69), st.integers(0, (1 << 70) - 1))
def test_operations_on_mask_vectors_equal_operations_on_single_masks(
    masks: list[int], bit: int, some: int
) -> None:
    packed = pa.array([b"?", *map(WIDE.pack_mask, masks)], pa.binary()).slice(1)
    words = vectors.words_of(WIDE, packed)
    assert vectors.masks_of(WIDE, words).equals(packed)
    assert vectors.has_bit(words, bit).tolist() == [mask >> bit & 1 == 1 for mask in masks]
    assert vectors.has_all(words, some).tolist() == [mask & some == some for mask in masks]
    assert vectors.has_any(words, some).tolist() == [mask & some != 0 for mask in masks]
    assert vectors.has_any_bit(words).tolist() == [mask != 0 for mask in masks]
