"""Compaction of several stores against the rules of retention, row by row."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.types import MAX_TIMESTAMP, Key, TableSettings, Timestamp
from dodona_tablets.core.rows.chunks.compacting import compacted
from dodona_tablets.core.rows.chunks.layout import TIMESTAMP, Layout, chunk_schema, layout_of
from dodona_tablets.core.rows.chunks.scanning import page_of, rows_of_page
from dodona_tablets.core.rows.chunks.visibility import Visibility
from dodona_tablets.core.rows.retention import Terms, retire_all
from dodona_tablets.core.rows.version import Version
from properties.histories import LATEST, Batches, History, histories, rows_of
from suite.levels import examples

slices = st.integers(1, 5)
moments = st.integers(0, LATEST + 1)
ROWS_MAX = 100


@st.composite
def terms(draw: st.DrawFn) -> Terms:
    limits = TableSettings(
        min_data_versions=draw(st.integers(0, 2)), max_data_versions=draw(st.integers(0, 4))
    )
    retained = draw(st.one_of(moments, st.integers(LATEST - 2, LATEST + 1)))
    major = draw(st.one_of(st.just(MAX_TIMESTAMP), st.integers(0, retained)))
    expired = draw(st.integers(0, retained))
    return Terms(Timestamp(retained), Timestamp(expired), limits, Timestamp(major))


@given(histories(), slices)
def test_a_merge_has_all_versions_in_one_layout(history: History, slice_rows: int) -> None:
    sources = history.sources(slice_rows)
    batches = list(compacted(history.schema, sources))
    layouts = {layout_of(batch.schema.names) for source in sources for batch in source}
    layout: Layout = "special" if "special" in layouts else "plain"
    assert all(it.schema.equals(chunk_schema(history.schema, layout)) for it in batches)
    assert rows_of(history.schema, batches) == history.rows


@settings(max_examples=examples(400))
@given(histories(row_count_max=3, version_count_min=4), slices, terms())
def test_retention_of_batches_is_that_of_rows(
    history: History, slice_rows: int, limits: Terms
) -> None:
    expected: dict[Key, list[Version]] = {}
    for key, versions in history.rows.items():
        left = list(versions)
        retire_all(left, limits, history.schema.value_columns)
        if left:
            expected[key] = left
    found = compacted(history.schema, history.sources(slice_rows), limits)
    assert rows_of(history.schema, found) == expected


compactions = st.lists(
    st.tuples(st.sets(st.integers(0, 3), min_size=1), moments), min_size=1, max_size=3
)


@given(histories(), compactions, slices)
def test_stores_compacted_in_any_order_show_a_reader_the_same(
    history: History, steps: list[tuple[set[int], int]], slice_rows: int
) -> None:
    schema = history.schema
    stores, retained = history.sources(slice_rows), 0
    for chosen, later in steps:
        retained = max(retained, later)
        others = [store for place, store in enumerate(stores) if place not in chosen]
        major = min([_oldest(store) for store in others if store], default=MAX_TIMESTAMP)
        limits = Terms(Timestamp(retained), Timestamp(0), TableSettings(), Timestamp(major))
        merged = [store for place, store in enumerate(stores) if place in chosen]
        stores = [*others, list(compacted(schema, merged, limits))]
    for at in range(max(retained, 1), LATEST + 1):
        snapshot = Visibility(schema, schema.full_mask, Timestamp(at))
        assert _seen(snapshot, stores) == _seen(snapshot, history.sources(slice_rows))


def _oldest(store: Batches) -> int:
    stamps: list[int] = [it for batch in store for it in batch.column(TIMESTAMP).to_pylist()]
    return min(stamps)


def _seen(snapshot: Visibility, stores: list[Batches]) -> Any:
    return rows_of_page(snapshot, page_of(snapshot, stores, ROWS_MAX))
