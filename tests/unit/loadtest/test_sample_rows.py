"""The rows of the storage studies: the same ones, whatever form a system takes them in."""

import struct
from typing import Any

import pytest

from dodona_loadtest.harness.sample_rows import (
    NOTE_BYTES,
    ROW_BYTES,
    SampleRows,
    arrow_table,
    dicts,
    postgres_copy_data,
)

ROWS = SampleRows(1_000, first=7, step=3)


def test_keys_rise_by_their_step() -> None:
    keys = arrow_table(ROWS)["id"].to_pylist()
    assert keys == list(range(7, 7 + 3_000, 3))
    assert keys[-1] == ROWS.last


def test_slices_are_all_of_the_rows_in_order() -> None:
    slices = list(ROWS.slices(300))
    assert [part.count for part in slices] == [300, 300, 300, 100]
    assert [row for part in slices for row in dicts(part)] == dicts(ROWS)


def test_the_contents_of_a_sample_row_depend_only_on_its_key() -> None:
    by_key = {row["id"]: row for row in dicts(SampleRows(4_000))}
    assert all(by_key[row["id"]] == row for row in dicts(ROWS))


def test_values_are_scattered() -> None:
    rows = dicts(ROWS)
    assert len({row["note"] for row in rows}) == len(rows)
    assert {len(row["note"]) for row in rows} == {NOTE_BYTES}
    assert len({row["count"] for row in rows}) > len(rows) * 0.99
    assert 0 <= min(row["amount"] for row in rows) < 0.05
    assert 0.95 < max(row["amount"] for row in rows) < 1
    assert arrow_table(ROWS).nbytes >= ROWS.count * ROW_BYTES


def test_notes_may_be_longer() -> None:
    for short, long in zip(dicts(ROWS), dicts(ROWS, padding_bytes=500), strict=True):
        assert long["note"].startswith(short["note"])
        assert len(long["note"]) == NOTE_BYTES + 500
        assert {**long, "note": short["note"]} == short


def test_copy_data_hold_the_same_rows() -> None:
    assert _rows_of_copy_data(postgres_copy_data(ROWS)) == dicts(ROWS)


@pytest.mark.parametrize("count", [1, 2])
def test_sample_rows_can_be_as_few_as_one_or_two(count: int) -> None:
    rows = SampleRows(count, first=5)
    assert _rows_of_copy_data(postgres_copy_data(rows)) == dicts(rows)
    assert [row["id"] for row in dicts(rows)] == [5, 6][:count]


def _rows_of_copy_data(data: bytes) -> list[dict[str, Any]]:
    """As PostgreSQL's documentation has the format."""
    signature, flags, extension_bytes = struct.unpack_from(">11sII", data)
    assert (signature, flags, extension_bytes) == (b"PGCOPY\n\xff\r\n\0", 0, 0)
    place = 19
    found = []
    while (column_count := struct.unpack_from(">h", data, place)[0]) != -1:
        assert column_count == 4
        place += 2
        row: dict[str, Any] = {}
        for name, form in (("id", "q"), ("amount", "d"), ("count", "q"), ("note", "20s")):
            (length,) = struct.unpack_from(">i", data, place)
            assert length == struct.calcsize(f">{form}")
            (row[name],) = struct.unpack_from(f">{form}", data, place + 4)
            place += 4 + length
        found.append(row)
    assert place + 2 == len(data)
    return found
