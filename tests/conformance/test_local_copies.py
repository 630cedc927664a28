"""Copies of tables that follow their change feed: each one is the snapshot at its timestamp."""

from random import Random
from typing import Any

import pytest

from conformance.backends import Backend
from conformance.tables import (
    APART,
    GROUPS,
    KEY,
    PLAIN,
    SUM,
    MakeTable,
    create_spread,
    read,
    refused,
)
from dodona.client import Client
from dodona.errors import InvalidRequest, LimitExceeded, TableNotFound
from dodona.local_copy import LocalCopy

pytestmark = pytest.mark.part("copies of tables on real processes")


def rows(*keys: int, v: int = 1) -> list[dict[str, int]]:
    return [{"k": key, "v": v} for key in keys]


def keys(*numbers: int) -> list[dict[str, int]]:
    return [{"k": number} for number in numbers]


def is_snapshot(db: Client, copy: LocalCopy) -> bool:
    """Whether all reads of the copy are those of the table at its timestamp."""
    expected = read(db, copy.path, timestamp=copy.timestamp)
    found = copy.lookup_rows(keys(*(it["k"] for it in expected)))
    return list(copy.select()) == found == expected and len(copy) == len(expected)


def test_a_copy_changes_only_by_a_refresh(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    db.insert_rows(path, rows(1, 2, 150))
    copy = db.follow(path)
    before = copy.timestamp
    db.insert_rows(path, rows(2, 3, 160, v=2))
    db.delete_rows(path, keys(1))
    assert copy.lookup_rows(keys(1, 2, 3), keep_missing=True) == [*rows(1, 2), None]
    assert (copy.timestamp, len(copy)) == (before, 3)
    assert copy.refresh() == copy.timestamp > before
    assert copy.lookup_rows(keys(1, 2, 3), keep_missing=True) == [None, *rows(2, 3, v=2)]
    assert is_snapshot(db, copy)


def test_parts_of_a_copy_are_read_as_those_of_a_table(db: Client, make_table: MakeTable) -> None:
    path = make_table(GROUPS)
    db.insert_rows(path, [{"k": key, "a": key, "b": 7} for key in range(5)])
    copy = db.follow(path)
    assert copy.select([1], [3], ["b", "k"]) == db.select(path, [1], [3], ["b", "k"])
    asked: dict[str, Any] = {"columns": ["a"], "keep_missing": True}
    assert copy.lookup_rows(keys(4, 9), **asked) == db.lookup_rows(path, keys(4, 9), **asked)
    assert copy.select([9]) == []
    with refused(InvalidRequest, is_retryable=False):
        copy.lookup_rows(keys(1), keep_missing="yes")  # type: ignore[arg-type]


def test_writes_of_some_columns_and_aggregates_are_taken(db: Client, make_table: MakeTable) -> None:
    path = make_table(SUM)
    db.insert_rows(path, [{"k": 1, "total": 5, "v": 1}])
    copy = db.follow(path)
    db.insert_rows(path, [{"k": 1, "total": 3}], update=True, aggregate=True)
    db.insert_rows(path, [{"k": 1, "v": 9}], update=True)
    copy.refresh()
    assert list(copy.select()) == [{"k": 1, "total": 8, "v": 9}]


def test_a_range_of_keys_is_copied(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, pivot_keys=APART)
    db.insert_rows(path, rows(1, 90, 110, 190))
    lower, upper = [50], [150]
    copy = db.follow(path, lower, upper)
    lower[0] = 100  # the caller's list is the caller's
    db.insert_rows(path, rows(2, 95, 105, 195))
    copy.refresh()
    assert [it["k"] for it in copy.select()] == [90, 95, 105, 110]
    assert [it["k"] for it in copy.select([100])] == [105, 110]
    for ends in (([49], None), (None, [151]), ([151], None), (None, [49])):
        with refused(InvalidRequest, "outside of the range", is_retryable=False, table=path):
            copy.select(*ends)
    for key in (49, 150):
        with refused(InvalidRequest, "outside of the range", is_retryable=False, row_index=1):
            copy.lookup_rows(keys(60, key))


def test_a_young_copy_is_not_refreshed(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    copy = db.follow(path)
    before = copy.timestamp
    assert copy.refresh(max_age_ms=3_600_000) == before
    assert copy.refresh() > before


@pytest.mark.parametrize("age", [-1, 1.5, "1", 86_400_001])
def test_an_age_is_a_number_of_milliseconds(db: Client, make_table: MakeTable, age: Any) -> None:
    copy = db.follow(make_table(PLAIN))
    with refused(InvalidRequest, "max_age_ms", is_retryable=False):
        copy.refresh(age)


def test_a_copy_has_at_most_so_many_rows(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    db.insert_rows(path, rows(1, 2, 3))
    with refused(LimitExceeded, "more than 2 rows", is_retryable=False, table=path, rows_max=2):
        db.follow(path, rows_max=2)
    copy = db.follow(path, rows_max=3)
    before = copy.timestamp
    db.insert_rows(path, rows(4))
    for _ in range(2):
        with refused(LimitExceeded, is_retryable=False):
            copy.refresh()
    assert ([it["k"] for it in copy.select()], copy.timestamp) == ([1, 2, 3], before)
    db.delete_rows(path, keys(1))
    copy.refresh()
    assert [it["k"] for it in copy.select()] == [2, 3, 4]


@pytest.mark.parametrize("rows_max", [0, -1, "1"])
def test_a_limit_is_a_number_of_rows(db: Client, make_table: MakeTable, rows_max: Any) -> None:
    path = make_table(PLAIN)
    with refused(InvalidRequest, "rows_max", is_retryable=False):
        db.follow(path, rows_max=rows_max)


def test_a_table_that_is_altered_or_replaced_is_copied_anew(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    db.insert_rows(path, rows(1))
    copy = db.follow(path)
    db.unmount_table(path)
    db.alter_table(path, [*PLAIN, {"name": "more", "type": "utf8"}])
    db.mount_table(path)
    db.insert_rows(path, [{"k": 2, "v": 2, "more": "x"}])
    copy.refresh()
    assert list(copy.select()) == [
        {"k": 1, "v": 1, "more": None},
        {"k": 2, "v": 2, "more": "x"},
    ]
    db.remove_table(path)
    before = copy.timestamp
    with refused(TableNotFound, is_retryable=False):
        copy.refresh()
    assert (len(copy), copy.timestamp) == (2, before)
    for key in ("k", "other"):
        create_spread(backend, path, [{**KEY, "name": key}, PLAIN[1]], mount=True)
        db.insert_rows(path, [{key: 7, "v": 1}])
        copy.refresh()
        assert list(copy.select()) == [{key: 7, "v": 1}]
        db.remove_table(path)


def test_a_copy_follows_a_table_that_is_divided(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    db.insert_rows(path, rows(1, 150))
    copy = db.follow(path)
    db.unmount_table(path)
    db.reshard_table(path, APART)
    db.mount_table(path)
    db.insert_rows(path, rows(2, 160))
    copy.refresh()
    assert is_snapshot(db, copy)
    assert len(copy) == 4


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_a_copy_is_a_snapshot_after_any_changes(
    db: Client, make_table: MakeTable, atomicity: str
) -> None:
    path, random = make_table(PLAIN, pivot_keys=APART, atomicity=atomicity), Random(7)
    copy = db.follow(path)
    for step in range(30):
        chosen = random.sample(range(0, 200, 5), random.randrange(1, 9))
        if random.random() < 0.4:
            db.delete_rows(path, keys(*chosen))
        else:
            db.insert_rows(path, rows(*chosen, v=step))
        if random.random() < 0.5:
            copy.refresh()
            assert is_snapshot(db, copy)


def test_more_changes_than_are_looked_up_are_copied(
    db: Client, make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dodona._core.reading.local_rows.CHANGED_ROWS_MAX", 3)
    path = make_table(PLAIN)
    copy = db.follow(path)
    for count in (3, 4):
        db.insert_rows(path, rows(*range(count), v=count))
        copy.refresh()
        assert list(copy.select()) == rows(*range(count), v=count)


def test_a_copy_says_what_it_is(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN)
    db.insert_rows(path, rows(1, 2))
    copy = db.follow(path)
    assert repr(copy) == f"<dodona.LocalCopy {path} at {copy.timestamp}, 2 rows>"
    assert copy.age_ms >= 0
    assert copy.reload() == copy.timestamp


def test_a_copy_follows_a_table_that_another_client_replaced(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(PLAIN)
    copy = db.follow(path)
    other.remove_table(path)
    other.create_table(path, [{**KEY, "name": "q"}, PLAIN[1]], mount=True)
    other.insert_rows(path, [{"q": 7, "v": 1}])
    copy.refresh()
    assert list(copy.select()) == [{"q": 7, "v": 1}]
