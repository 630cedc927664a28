"""Windows over several sources: what is copied, what is held, and what is damaged."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from dodona.errors import DataCorrupted
from dodona_tablets.core.rows.chunks import merging
from dodona_tablets.core.rows.chunks.merging import Window, check_distinct, merged, windows
from unit.tablets.chunks.making import SCHEMA, Rows, at, batches_of, deletion, key


def written(numbers: range, timestamp: int = 1) -> Rows:
    return {key(number): [at(timestamp, a=number)] for number in numbers}


def numbers_of(window: Window) -> list[list[int]]:
    return [piece.column("id").to_pylist() for piece in window.pieces]


def shares_memory(part: pa.RecordBatch, whole: pa.RecordBatch) -> bool:
    """Whether all buffers of one are those of the other."""
    addresses = [[it and it.address for it in column.buffers()] for column in whole.columns]
    return [[it and it.address for it in column.buffers()] for column in part.columns] == addresses


@pytest.fixture
def alone_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single row of one source is worth a window of its own."""
    monkeypatch.setattr(merging, "ALONE_ROWS_MIN", 1)


def test_batches_of_a_single_source_are_not_copied() -> None:
    source = batches_of(written(range(10)), 4)
    found = list(windows([source]))
    assert [numbers_of(it) for it in found] == [[[0, 1, 2, 3]], [[4, 5, 6, 7]], [[8, 9]]]
    assert [it.upper for it in found] == [key(4), key(8), None]
    for window, batch in zip(found, source, strict=True):
        assert shares_memory(window.pieces[0], batch)
        assert merged(SCHEMA, window.pieces).in_order() is window.pieces[0]


def test_sources_side_by_side_are_not_merged() -> None:
    sources = [batches_of(written(numbers)) for numbers in (range(5, 8), range(5), range(8, 9))]
    found = list(windows(sources))
    assert [numbers_of(it) for it in found] == [[[0, 1, 2, 3, 4]], [[5, 6, 7]], [[8]]]
    assert shares_memory(found[0].pieces[0], sources[1][0])


@pytest.mark.usefixtures("alone_1")
def test_only_where_sources_overlap_are_they_merged() -> None:
    found = list(windows([batches_of(written(range(6))), batches_of(written(range(4, 8), 2))]))
    assert [numbers_of(it) for it in found] == [[[0, 1, 2, 3]], [[4, 5], [4, 5, 6, 7]]]
    assert list(map(int, merged(SCHEMA, found[1].pieces).timestamps)) == [2, 1, 2, 1, 2, 2]


def test_a_few_rows_of_one_source_are_no_window() -> None:
    found = list(windows([batches_of(written(range(6))), batches_of(written(range(4, 8), 2))]))
    assert len(found) == 1


def test_a_window_ends_where_the_first_source_has_no_more_at_hand() -> None:
    sources = [batches_of(written(range(0, 12, 2)), 3), batches_of(written(range(1, 13, 2)), 4)]
    found = list(windows(sources))
    assert [numbers_of(it) for it in found] == [
        [[0, 2, 4], [1, 3, 5]],
        [[6, 8], [7]],
        [[10], [9, 11]],
    ]


def test_a_row_longer_than_batches_is_one_window() -> None:
    rows = {**written(range(3)), key(1): [at(stamp) for stamp in range(9, 0, -1)]}
    found = list(windows([batches_of(rows, 2), batches_of({key(1): [at(20)]})]))
    assert numbers_of(found[0]) == [[0]]
    assert numbers_of(found[1]) == [[1] * 9, [1]]
    assert merged(SCHEMA, found[1].pieces).timestamps.tolist() == [20, *range(9, 0, -1)]
    assert numbers_of(found[2]) == [[2]]


def test_a_row_longer_than_batches_is_one_window_before_other_sources_begin() -> None:
    source = batches_of({key(1): [at(stamp) for stamp in range(8, 0, -1)], key(2): [at(1)]}, 2)
    found = list(windows([source, batches_of({key(5): [at(20)]})], 2))
    assert [numbers_of(it) for it in found] == [[[1] * 8], [[2]], [[5]]]


def test_a_row_with_more_versions_than_a_window_makes_the_window_longer() -> None:
    rows = {**written(range(2, 9)), key(1): [at(stamp) for stamp in range(5, 0, -1)]}
    found = [numbers_of(it) for it in windows([batches_of(rows)], 2)]
    assert found == [[[1, 1, 1, 1, 1, 2, 3, 4]], [[5, 6, 7, 8]]]


def test_windows_begin_small_and_grow() -> None:
    sources = [batches_of(written(range(100))), batches_of(written(range(100), 2))]
    sizes = [[len(it) for it in numbers_of(window)] for window in windows(sources, 10)]
    assert sizes == [[10, 10], [20, 20], [40, 40], [30, 30]]


def test_windows_of_many_sources_have_no_more_rows_than_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as fit of those with many rows, too, besides others with few."""
    monkeypatch.setattr(merging, "CUT_ROWS_MIN", 2)
    sparse = [range(it, 1000, 50) for it in range(9)]
    dense = range(0, 1000, 2)
    sources = [batches_of(written(it)) for it in (*sparse, dense)]
    found = [numbers_of(window) for window in windows(sources, row_count_total=200)]
    counts = [sum(map(len, pieces)) for pieces in found]
    assert sum(counts) == 9 * 20 + 500
    assert 100 < max(counts) <= 200
    assert len(counts) < 12


def test_a_source_is_taken_one_batch_ahead() -> None:
    taken = []

    def source() -> Iterator[pa.RecordBatch]:
        for place, batch in enumerate(batches_of(written(range(10)), 2)):
            taken.append(place)
            yield batch

    found = windows([source(), batches_of(written(range(10), 2), 5)])
    for expected in (2, 3, 4):
        next(found)
        assert len(taken) <= expected + 1


def test_no_sources_or_empty_sources_give_no_windows() -> None:
    empty = batches_of(written(range(1)))[0].slice(0, 0)
    assert list(windows([])) == list(windows([[], [empty, empty]])) == []


def test_stores_may_overlap_in_time() -> None:
    older = {key(1): [at(5), at(3)], key(2): [at(6), deletion(2)]}
    newer = {key(1): [at(4)], key(2): [at(7), at(1)]}
    (window,) = windows([batches_of(older), batches_of(newer)])
    versions = merged(SCHEMA, window.pieces)
    assert versions.timestamps.tolist() == [5, 4, 3, 7, 6, 2, 1]
    assert versions.starts.tolist() == [True, False, False, True, False, False, False]
    assert versions.deletions.tolist() == [False] * 5 + [True, False]


def test_one_version_in_two_stores_is_damage() -> None:
    sources = [batches_of(written(range(3), 5)), batches_of({key(1): [at(9), at(5)]})]
    (window,) = windows(sources)
    with pytest.raises(DataCorrupted) as caught:
        check_distinct(merged(SCHEMA, window.pieces))
    assert caught.value.attributes == {"key": (1,), "timestamp": 5}


def test_versions_of_two_rows_may_have_one_timestamp() -> None:
    (window,) = windows([batches_of(written(range(0, 6, 2))), batches_of(written(range(1, 6, 2)))])
    check_distinct(merged(SCHEMA, window.pieces))


def test_bounds_are_keys() -> None:
    source = batches_of(written(range(10)), 4)
    assert [window.upper for window in windows([source], 3)] == [key(3), key(4), key(8), None]
