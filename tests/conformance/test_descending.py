"""Descending key columns: the table has its rows the other way round, in every read and range."""

from typing import Any, Final

import pyarrow
import pytest

from conformance.tables import KEY, MakeTable, Row, Schema, read, refused
from dodona.client import Client
from dodona.errors import SchemaViolation

NUMBER: Final[Row] = {"name": "v", "type": "int64"}
NEWEST_FIRST: Final[Schema] = [
    {"name": "user", "type": "utf8", "sort_order": "ascending"},
    {"name": "at", "type": "int64", "sort_order": "descending"},
    NUMBER,
]
DOWN: Final[Schema] = [{**KEY, "sort_order": "descending"}, NUMBER]
PIVOTS: Final[list[list[Any]]] = [[], ["a", 5], ["b", None], ["c"]]
IN_ORDER: Final = [
    *(("", 1), ("a", 9), ("a", 6), ("a", 5), ("a", -3), ("a", None)),
    *(("b", 9), ("b", 0), ("b", None), ("c", 7), ("c", None)),
]
"""Keys in the order of the table, in four tablets: null is last."""


def _rows(keys: list[tuple[Any, ...]]) -> list[Row]:
    return [{"user": user, "at": at, "v": place} for place, (user, at) in enumerate(keys)]


def _keys(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["user"], row["at"]) for row in rows]


def test_rows_come_in_the_order_of_the_table(db: Client, make_table: MakeTable) -> None:
    path = make_table(NEWEST_FIRST, pivot_keys=PIVOTS)
    rows = _rows(IN_ORDER)
    db.insert_rows(path, rows[::-1])
    assert read(db, path) == rows
    with db.hold_snapshot([path]) as snapshot:
        batches = list(snapshot.read_batches(path))
    assert [row for batch in batches for row in batch.to_pylist()] == rows
    assert db.query(f"select * from [{path}]").to_pylist() == rows
    keys = [{"user": row["user"], "at": row["at"]} for row in rows]
    assert list(db.lookup_rows(path, keys)) == rows
    db.delete_rows(path, keys[1:4])
    assert read(db, path) == [rows[0], *rows[4:]]


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (["a"], ["b"]),
        (["a", 6], ["a", -3]),
        (["a", 100], ["a", None]),
        (["a", None], ["b", 9]),
        (["a", 7], None),
        (None, ["b", None]),
        (["b"], ["c", 0]),
        (["a", -3], ["a", 6]),
    ],
)
def test_the_ends_of_a_range_are_places_in_the_order_of_the_table(
    db: Client, make_table: MakeTable, lower: list[Any] | None, upper: list[Any] | None
) -> None:
    path = make_table(NEWEST_FIRST, pivot_keys=PIVOTS)
    db.insert_rows(path, _rows(IN_ORDER))
    found = _keys(list(db.select(path, lower, upper)))
    assert found == [it for it in IN_ORDER if _is_within(it, lower, upper)]


def _is_within(key: tuple[Any, ...], lower: list[Any] | None, upper: list[Any] | None) -> bool:
    is_above = lower is None or _place(key) >= _place(lower)
    return is_above and (upper is None or _place(key) < _place(upper))


def _place(values: Any) -> list[Any]:
    """Sorts as the table does: a number that rises where the value falls, and null last."""
    user, *rest = values
    return [user, *[(it is None, 0 if it is None else -it) for it in rest]]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_pages_continue_in_the_order_of_the_table(
    db: Client, make_table: MakeTable, count: int
) -> None:
    path = make_table(NEWEST_FIRST, pivot_keys=PIVOTS)
    db.insert_rows(path, _rows(IN_ORDER))
    found: list[Row] = []
    following: Any = ()
    while following is not None:
        page, _ = db._run(db._session.first_rows(path, count, 1 << 20, following))
        assert len(page.rows) <= count
        found += page.rows
        following = page.next
    assert _keys(found) == IN_ORDER


def test_own_writes_are_read_in_the_order_of_the_table(db: Client, make_table: MakeTable) -> None:
    path = make_table(NEWEST_FIRST, pivot_keys=PIVOTS)
    db.insert_rows(path, _rows(IN_ORDER))
    with db.begin(read_own_writes=True) as transaction:
        transaction.insert_rows(path, [{"user": "a", "at": 7, "v": 70}])
        transaction.delete_rows(path, [{"user": "a", "at": 5}])
        own = _keys(list(transaction.select(path, ["a"], ["b"])))
        transaction.abort()
    assert own == [("a", 9), ("a", 7), ("a", 6), ("a", -3), ("a", None)]
    assert _keys(read(db, path)) == IN_ORDER


def test_data_in_any_order_lands_in_its_place(db: Client, make_table: MakeTable) -> None:
    rows, shuffled = _rows(IN_ORDER), pyarrow.Table.from_pylist(_rows(IN_ORDER)[::-1])
    changed = [{**row, "v": -1} for row in rows[3:8]]
    loose = make_table(NEWEST_FIRST, pivot_keys=PIVOTS, atomicity="none")
    assert db.write_arrow(loose, shuffled) == len(rows)
    assert read(db, loose) == rows
    path = make_table(NEWEST_FIRST, pivot_keys=PIVOTS)
    db.write(path, shuffled, "insert")
    assert read(db, path) == rows
    with db.loads.begin([path]) as load:
        load.write(path, pyarrow.Table.from_pylist(changed[::-1]))
    assert read(db, path) == [*rows[:3], *changed, *rows[8:]]
    with db.loads.begin([path], erased={path: (["a", 6], ["b", 5])}) as load:
        load.write(path, pyarrow.Table.from_pylist(rows[3:4]))
    kept = [*IN_ORDER[:2], IN_ORDER[3], *IN_ORDER[7:]]
    assert _keys(read(db, path)) == kept


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("k >= 5", [9, 7, 5]),
        ("k > 5", [9, 7]),
        ("k < 5", [3, 1]),
        ("k = 7", [7]),
        ("k between 2 and 8", [7, 5, 3]),
        ("k in (9, 1)", [9, 1]),
        ("k is null", [None]),
        ("k is null or k < 2", [1, None]),
        ("k is null or k > 6", [9, 7, None]),
        ("k > 6 and k < 2", []),
        ("k = -9223372036854775808", []),
    ],
)
def test_a_condition_finds_its_rows(
    db: Client, make_table: MakeTable, condition: str, found: list[Any]
) -> None:
    path = make_table(DOWN, pivot_keys=[[], [7], [3], [None]])
    db.insert_rows(path, [{"k": it, "v": 1} for it in (1, 3, 5, 7, 9, None)])
    answer = db.query(f"select k from [{path}] where {condition}").to_pylist()
    assert [row["k"] for row in answer] == found


def test_a_reshard_and_a_new_key_column_keep_the_order(db: Client, make_table: MakeTable) -> None:
    path = make_table(DOWN, pivot_keys=[[], [7], [3]])
    numbers = [9, 7, 5, 3, 1, None]
    db.insert_rows(path, [{"k": it, "v": it} for it in numbers])
    db.unmount_table(path)
    db.reshard_table(path, pivot_keys=[[], [8], [2], [None]])
    longer = [DOWN[0], {"name": "l", "type": "utf8", "sort_order": "descending"}, NUMBER]
    db.alter_table(path, longer)
    db.mount_table(path)
    assert [row["k"] for row in read(db, path)] == numbers
    db.insert_rows(path, [{"k": 7, "l": "x", "v": 8}, {"k": 7, "l": None, "v": 70}])
    found = [(row["k"], row["l"], row["v"]) for row in db.select(path, [7], [5])]
    assert found == [(7, "x", 8), (7, None, 70)]


@pytest.mark.parametrize("pivot_keys", [[[], [3], [7]], [[], [None], [3]], [[], [3], [3]]])
def test_pivot_keys_rise_in_the_order_of_the_table(
    db: Client, new_path: str, pivot_keys: list[list[Any]]
) -> None:
    with refused(SchemaViolation, "strictly increasing", is_retryable=False, index=2):
        db.create_table(new_path, DOWN, pivot_keys=pivot_keys)


def test_a_tablet_count_divides_descending_values(db: Client, make_table: MakeTable) -> None:
    path = make_table([{**DOWN[0], "type": "uint8"}, NUMBER], tablet_count=4)
    assert [it.pivot_key for it in db.get_table(path).tablets] == [(), (191,), (127,), (63,)]


@pytest.mark.parametrize(("before", "after"), [(DOWN, [KEY, NUMBER]), ([KEY, NUMBER], DOWN)])
def test_the_order_of_a_key_column_never_changes(
    db: Client, make_table: MakeTable, before: Schema, after: Schema
) -> None:
    path = make_table(before, mount=False)
    with refused(SchemaViolation, "order of a key column can't change", is_retryable=False):
        db.alter_table(path, after)
    assert db.get_table(path).schema.columns[0].sort_order == before[0]["sort_order"]
