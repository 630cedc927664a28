"""Rows in memory as batches, and back."""

from itertools import chain, permutations

import pytest

from dodona.schema import Column, TableSchema
from dodona.types import Timestamp
from dodona_tablets.core.rows.chunks.reading import versions_of
from dodona_tablets.core.rows.chunks.rows import batches_of_rows, in_key_order
from unit.tablets.chunks.making import (
    FULL,
    SCHEMA,
    Rows,
    at,
    deletion,
    items_of,
    key,
    rows_of_batches,
)

MARKED = (Timestamp(60), 0b101, (1, 0.5), None, 0b100, 0b11)
ROWS: Rows = {
    key(None): [at(5, None, None, None)],
    key(-1): [at(9, 1), (Timestamp(8), 0b010, ("b",), None), deletion(7)],
    key(2): [at(9, 2)],
    key(3): [(Timestamp(it), 0b001, (it,), None) for it in range(20, 0, -1)],
}


@pytest.mark.parametrize("slice_rows", [1, 2, 3, 100])
def test_rows_come_back(slice_rows: int) -> None:
    items = list(items_of(ROWS))
    batches = list(batches_of_rows(SCHEMA, items, slice_rows=slice_rows))
    assert all(0 < it.num_rows <= slice_rows for it in batches)
    assert list(rows_of_batches(SCHEMA, batches)) == items


def test_each_version_comes_back_alone() -> None:
    (batch,) = batches_of_rows(SCHEMA, items_of(ROWS))
    expected = [(row, it) for row in sorted(ROWS) for it in ROWS[row]]
    assert list(versions_of(SCHEMA, batch)) == expected
    part = chain.from_iterable(versions_of(SCHEMA, batch.slice(it, 1)) for it in range(24))
    assert list(part) == expected[:24]


def test_specialities_come_back() -> None:
    rows = {**ROWS, key(9): [MARKED, at(5)]}
    items = list(items_of(rows))
    batches = batches_of_rows(SCHEMA, items, has_specials=True, slice_rows=5)
    assert list(rows_of_batches(SCHEMA, batches)) == items


def test_specialities_that_were_not_announced_are_refused() -> None:
    with pytest.raises(AssertionError, match="marks"):
        list(batches_of_rows(SCHEMA, [(key(1), MARKED)]))


@pytest.mark.parametrize("slice_rows", [1, 3, 100])
def test_rows_that_came_in_any_order_are_put_in_that_of_their_keys(
    monkeypatch: pytest.MonkeyPatch, slice_rows: int
) -> None:
    """Versions stay as they are, also of a row that lies in two blocks."""
    monkeypatch.setattr("dodona_tablets.core.rows.chunks.rows.BLOCK_ROWS_MAX", 10)
    items = list(items_of(ROWS))
    for order in permutations(items):
        ordered = list(in_key_order(batches_of_rows(SCHEMA, order, slice_rows=slice_rows)))
        assert [it.num_rows for it in ordered] == [10, 10, 5]
        assert list(rows_of_batches(SCHEMA, ordered)) == items


def test_no_rows_are_no_batches() -> None:
    assert list(batches_of_rows(SCHEMA, [])) == []
    assert list(in_key_order([])) == []
    assert list(rows_of_batches(SCHEMA, [])) == []


def test_values_of_all_types_come_back() -> None:
    types = ["int64", "uint64", "double", "boolean", "string", "utf8", "any"]
    schema = TableSchema.parse(
        [Column("k", "boolean", sort_order="ascending"), *[Column(it, it) for it in types]]
    )
    values = [
        (-(1 << 63), (1 << 64) - 1, -0.0, True, b"\x00\xff", "ä\x00", {"a": [1, None, b"x", "x"]}),
        (0, 0, float("inf"), False, b"", "", []),
        (None,) * 7,
    ]
    full = schema.full_mask
    for value in values:
        item = (schema.bound_of([True]), (Timestamp(5), full, value, None))
        (back,) = rows_of_batches(schema, batches_of_rows(schema, [item]))
        assert repr(back) == repr(item)


@pytest.mark.parametrize("mask", [0b001, 0b010, 0b110, FULL])
def test_a_version_has_values_only_for_the_columns_in_its_mask(mask: int) -> None:
    values = tuple(it for bit, it in enumerate((1, "x", 0.5)) if mask >> bit & 1)
    item = (key(1), (Timestamp(5), mask, values, None))
    (batch,) = batches_of_rows(SCHEMA, [item])
    row = batch.to_pylist()[0]
    known = {"a": 1, "b": "x", "sum": 0.5}
    for bit, name in enumerate(known):
        assert row[name] == (known[name] if mask >> bit & 1 else None)
    assert list(rows_of_batches(SCHEMA, [batch])) == [item]
