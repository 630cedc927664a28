"""Pages of scans: what is copied, what is looked at, and where a page ends."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from dodona.keys import successor
from dodona.schema import Column, TableSchema
from dodona.types import ASYNC_LAST_COMMITTED, Key, Timestamp
from dodona_tablets.core.rows import version
from dodona_tablets.core.rows.chunks import merging, scanning, visibility
from dodona_tablets.core.rows.chunks.merging import Source, Window
from dodona_tablets.core.rows.chunks.rows import batches_of_rows
from dodona_tablets.core.rows.chunks.scanning import Page, page_of, rows_of_page
from dodona_tablets.core.rows.chunks.visibility import Visibility
from dodona_tablets.core.rows.version import Version
from unit.tablets.chunks.making import (
    FULL,
    SCHEMA,
    Rows,
    at,
    batches_of,
    deletion,
    items_of,
    key,
    made_of,
)

A, SUM = 1, 4


def written(numbers: range, timestamp: int = 1) -> Rows:
    return {key(number): [at(timestamp, a=number)] for number in numbers}


def change(timestamp: int, value: float) -> Version:
    return Timestamp(timestamp), SUM, (value,), None, SUM, 0


def page(
    *sources: Sequence[pa.RecordBatch], wanted: int = FULL, newest: int = 99, limit: int = 1000
) -> Page:
    return page_of(Visibility(SCHEMA, wanted, Timestamp(newest)), list(sources), limit)


def numbers_of(found: Page) -> list[int]:
    numbers: list[int] = found.table.column("id").to_pylist()
    return numbers


def addresses(data: Any) -> list[list[int | None]]:
    return [[it and it.address for it in chunk.buffers()] for chunk in data.chunks]


# ---- nothing is copied


@pytest.mark.parametrize("wanted", [FULL, A, A | SUM, 0])
def test_rows_of_one_version_are_not_copied(wanted: int) -> None:
    source = batches_of(written(range(10)), 4)
    found = page(source, wanted=wanted)
    assert numbers_of(found) == [*range(10)]
    assert found.table.column_names == ["id", *(it.name for it in SCHEMA.columns_of(wanted))]
    whole = pa.Table.from_batches(source)
    for name in found.table.column_names:
        assert addresses(found.table.column(name)) == addresses(whole.column(name))
    assert addresses(found.keys) == addresses(whole.column("$key"))


def test_sources_side_by_side_are_not_copied() -> None:
    first, second = batches_of(written(range(5))), batches_of(written(range(5, 9), 2))
    found = page(second, first)
    assert numbers_of(found) == [*range(9)]
    whole = pa.Table.from_batches([*first, *second])
    assert addresses(found.table.column("b")) == addresses(whole.column("b"))


def test_a_page_of_a_chunk_uses_the_memory_of_the_file() -> None:
    made = made_of(written(range(10)))
    found = page(list(made.view().batches(key(2), key(7))))
    assert numbers_of(found) == [2, 3, 4, 5, 6]
    file = pa.py_buffer(made.data)
    for chunk in found.table.column("a").chunks:
        assert file.address <= chunk.buffers()[1].address < file.address + file.size


# ---- only what has to is folded


def test_only_rows_with_changes_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    folded = []

    def fold(column: Column, newest_first: Sequence[Any]) -> Any:
        folded.append(list(newest_first))
        return version.fold(column, newest_first)

    monkeypatch.setattr(visibility, "fold", fold)
    rows = {**written(range(6)), key(2): [change(7, 2.5), at(1, c=1.0)], key(3): [at(2, a=33)]}
    rows[key(4)] = [(Timestamp(8), A, (44,), None), at(1, a=4)]
    found = page(batches_of(rows, has_specials=True))
    assert folded == [[2.5, 1.0]]
    assert found.table.column("a").to_pylist() == [0, 1, 0, 33, 44, 5]
    assert found.table.column("sum").to_pylist() == [0.5, 0.5, 3.5, 0.5, 0.5, 0.5]
    folded.clear()
    page(batches_of(rows, has_specials=True), wanted=A)
    assert folded == []


# ---- what is looked at


def test_a_small_page_looks_at_little() -> None:
    taken = []

    def source() -> Iterator[pa.RecordBatch]:
        for batch in batches_of(written(range(40_000)), 1000):
            taken.append(batch.num_rows)
            yield batch

    snapshot = Visibility(SCHEMA, FULL)
    assert page_of(snapshot, [source()], 10).resume == successor(key(9))
    assert len(taken) == 2


def test_a_page_without_rows_names_the_key_where_the_scan_continues() -> None:
    source = batches_of({key(number): [deletion(2), at(1)] for number in range(1000)}, 100)
    snapshot = Visibility(SCHEMA, FULL)
    found = page_of(snapshot, [source], 10, looked_at_max=300)
    assert found.table.num_rows == 0
    assert found.table.schema == snapshot.arrow_schema
    assert found.resume is not None
    assert key(100) <= found.resume <= key(500)
    assert page_of(snapshot, [source], 10).resume is None


def test_a_row_that_is_written_all_the_time_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    source = batches_of({key(1): [at(stamp, a=stamp) for stamp in range(100, 0, -1)]}, 10)
    snapshot = Visibility(SCHEMA, FULL, Timestamp(55))
    cut = [snapshot.without_hidden(snapshot.columns_of(batch)) for batch in source]
    assert [it.num_rows for it in cut] == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    held = []

    def windows(sources: Sequence[Source], count: int) -> Iterator[Window]:
        for window in merging.windows(sources, count):
            held.extend([piece.num_rows for piece in window.pieces])
            yield window

    monkeypatch.setattr(scanning, "windows", windows)
    assert page_of(snapshot, [source], 10).table.column("a").to_pylist() == [55]
    assert held == [6]


def test_changes_hide_nothing_of_a_row_that_is_written_all_the_time() -> None:
    rows = {key(1): [*(change(stamp, 1.0) for stamp in range(50, 1, -1)), at(1, c=1.0)]}
    found = page(batches_of(rows, 10, has_specials=True), newest=30)
    assert found.table.column("sum").to_pylist() == [30.0]


# ---- where a page ends


def test_a_full_page_continues_after_its_last_row() -> None:
    source = batches_of(written(range(10)), 4)
    found = page(source, limit=6)
    assert numbers_of(found) == [*range(6)]
    assert found.resume == successor(key(5))
    assert page(source, limit=10).resume == successor(key(9))
    assert page(source, limit=11).resume is None


def test_nothing_is_an_empty_page() -> None:
    found = page()
    assert (found.table.num_rows, len(found.keys), found.resume) == (0, 0, None)
    assert rows_of_page(Visibility(SCHEMA, FULL), found) == ((), ())


# ---- rows


def test_pages_become_rows() -> None:
    schema = TableSchema.parse(
        [
            Column("name", "utf8", sort_order="ascending"),
            Column("some", "any"),
            Column("flag", "boolean"),
        ]
    )
    full = schema.full_mask
    rows: dict[Key, list[Version]] = {
        schema.bound_of(["x"]): [(Timestamp(1), full, ([1, {"a": b"b"}], True), None)],
        schema.bound_of(["y"]): [(Timestamp(1), full, (None, None), None)],
    }
    source = list(batches_of_rows(schema, items_of(rows)))
    for wanted, expected in [
        (full, (([1, {"a": b"b"}], True), (None, None))),
        (2, ((True,), (None,))),
        (0, ((), ())),
    ]:
        snapshot = Visibility(schema, wanted, ASYNC_LAST_COMMITTED)
        assert rows_of_page(snapshot, page_of(snapshot, [source], 10)) == (tuple(rows), expected)
