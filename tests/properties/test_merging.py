"""Scans of several sources against the definition of a read, row by row."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dodona.types import ASYNC_LAST_COMMITTED, Key, Timestamp
from dodona_tablets.core.chunks.merging import merged, windows
from dodona_tablets.core.chunks.scanning import page_of, rows_of_page
from dodona_tablets.core.chunks.visibility import Snapshot
from dodona_tablets.core.version import chain_of, values_between
from properties.histories import LATEST, History, between, histories, rows_of

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
def snapshots(draw: st.DrawFn, history: History) -> Snapshot:
    newest = draw(stamps)
    oldest = draw(st.one_of(st.just(0), st.integers(0, min(newest, LATEST))))
    full = history.schema.full_mask
    wanted = draw(st.one_of(st.just(full), st.integers(0, full)))
    return Snapshot(history.schema, wanted, Timestamp(newest), Timestamp(oldest))


@given(st.data(), histories(), slices)
def test_a_scan_sees_of_many_sources_what_a_read_of_each_row_sees(
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
