"""SQL: queries of one or more tables at one snapshot."""

from typing import Any

import pytest

from conformance.backends import Backend
from conformance.tables import APART, KEY, PLAIN, SUM, MakeTable, Schema, refused
from dodona.client import Client
from dodona.errors import DodonaError, InvalidRequest, TableNotFound, TableNotMounted
from dodona.types import MIN_TIMESTAMP, Timestamp

NAMED: Schema = [KEY, {"name": "name", "type": "utf8"}, {"name": "points", "type": "int64"}]
PEOPLE = [
    {"k": 1, "name": "Ann", "points": 3},
    {"k": 2, "name": "Bob", "points": None},
    {"k": 150, "name": "Ann", "points": 4},
]


@pytest.fixture
def people(db: Client, make_table: MakeTable) -> str:
    path = make_table(NAMED, pivot_keys=APART)
    db.insert_rows(path, PEOPLE)
    return path


def _rows(db: Client, text: str, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = db.query(text, **options).to_pylist()
    return rows


def test_a_query_gives_the_rows_of_a_table(db: Client, people: str) -> None:
    assert _rows(db, f"SELECT * FROM [{people}] ORDER BY k") == PEOPLE


@pytest.mark.parametrize(
    ("rest", "keys"),
    [
        ("WHERE k = 2", [2]),
        ("WHERE k > 1 AND k <= 150", [2, 150]),
        ("WHERE k IN (1, 150, 7)", [1, 150]),
        ("WHERE k BETWEEN 0 AND 1", [1]),
        ("WHERE NOT k < 100", [150]),
        ("WHERE points IS NULL", [2]),
        ("WHERE name = 'Ann' AND points > 3", [150]),
        ("WHERE k < 1", []),
    ],
)
def test_conditions_choose_rows(db: Client, people: str, rest: str, keys: list[int]) -> None:
    assert [row["k"] for row in _rows(db, f"SELECT k FROM [{people}] {rest} ORDER BY k")] == keys


def test_groups_are_added_up(db: Client, people: str) -> None:
    text = f"SELECT name, sum(points) AS total, count(*) AS n FROM [{people}] GROUP BY name"
    assert _rows(db, f"{text} ORDER BY name") == [
        {"name": "Ann", "total": 7, "n": 2},
        {"name": "Bob", "total": None, "n": 1},
    ]


def test_rows_are_ordered_and_limited(db: Client, people: str) -> None:
    text = f"SELECT k FROM [{people}] ORDER BY k DESC LIMIT 1 OFFSET 1"
    assert _rows(db, text) == [{"k": 2}]


def test_tables_are_joined_at_one_snapshot(db: Client, make_table: MakeTable, people: str) -> None:
    cities = make_table([KEY, {"name": "city", "type": "utf8"}])
    db.insert_rows(cities, [{"k": 1, "city": "Oslo"}])
    text = f"""
        SELECT name, city FROM [{people}] AS people LEFT JOIN [{cities}] AS cities USING (k)
        ORDER BY k"""
    assert [row["city"] for row in _rows(db, text)] == ["Oslo", None, None]


def test_a_query_sees_a_transaction_wholly_or_not_at_all(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    left, right = make_table(), make_table()
    text = f"SELECT (SELECT max(v) FROM [{left}]) = (SELECT max(v) FROM [{right}]) AS same"
    for number in range(5):
        with other.begin() as transaction:
            for path in (left, right):
                transaction.insert_rows(path, [{"k": 1, "v": number}])
            commit = backend.start(other, other._session.commit(transaction._buffer))
            same = _rows(db, text)[0]["same"]
            commit.result()
        assert same is True or (same is None and number == 0)


def test_a_query_at_a_timestamp_sees_the_state_of_then(db: Client, make_table: MakeTable) -> None:
    path = make_table()
    first = db.insert_rows(path, [{"k": 1, "v": 1}])
    assert first is not None
    db.delete_rows(path, [{"k": 1}])
    text = f"SELECT v FROM [{path}]"
    assert _rows(db, text) == []
    assert _rows(db, text, timestamp=first) == [{"v": 1}]
    assert _rows(db, text, timestamp=Timestamp(first - 1)) == []
    assert _rows(db, text, timestamp=MIN_TIMESTAMP) == []


def test_a_query_in_a_transaction_sees_the_snapshot_and_not_the_buffered_writes(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 1, "v": 5}])
    db.insert_rows(path, [{"k": 1, "v": 2}])
    rows = transaction.query(f"SELECT v FROM [{path}]").to_pylist()
    assert rows == [{"v": 1}]


def test_a_query_sees_own_writes_in_a_transaction_with_read_own_writes(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM, pivot_keys=APART)
    db.insert_rows(path, [{"k": key, "total": 10, "v": key} for key in (1, 2, 100)])
    transaction = db.begin(read_own_writes=True)
    transaction.insert_rows(path, [{"k": 1, "total": 5}], update=True, aggregate=True)
    transaction.insert_rows(path, [{"k": 3, "total": 1}])
    transaction.delete_rows(path, [{"k": 100}])
    rows = transaction.query(f"SELECT sum(total) AS total, count(v) AS n FROM [{path}]")
    assert rows.to_pylist() == [{"total": 26, "n": 2}]
    transaction.abort()
    assert _rows(db, f"SELECT sum(total) AS total FROM [{path}]") == [{"total": 30}]


def test_aggregate_columns_are_folded_before_a_query_sees_them(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM)
    for number in (1, 2, 3):
        db.insert_rows(path, [{"k": 1, "total": number}], aggregate=True)
    assert _rows(db, f"SELECT total FROM [{path}]") == [{"total": 6}]


def test_a_query_reads_a_table_without_atomicity(db: Client, make_table: MakeTable) -> None:
    path = make_table(PLAIN, atomicity="none")
    db.insert_rows(path, [{"k": 1, "v": 1}])
    assert _rows(db, f"SELECT v FROM [{path}]") == [{"v": 1}]


def test_a_frozen_table_is_queried_and_an_unmounted_one_not(db: Client, people: str) -> None:
    db.freeze_table(people)
    assert len(_rows(db, f"SELECT k FROM [{people}]")) == len(PEOPLE)
    db.unmount_table(people)
    with refused(TableNotMounted, is_retryable=False):
        db.query(f"SELECT k FROM [{people}]")


def test_an_unknown_table_is_named(db: Client, new_path: str) -> None:
    with refused(TableNotFound, new_path, is_retryable=False):
        db.query(f"SELECT * FROM [{new_path}]")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT nothing FROM [{path}]",
        "SELECT * FROM [{path}] WHERE",
        "DELETE FROM [{path}]",
        "INSERT INTO [{path}] VALUES (1, 'x', 1)",
        "SELECT 1; SELECT 2",
        "CREATE TABLE t (k int)",
        "COPY (SELECT 1) TO 'out.csv'",
        "SELECT * FROM read_csv('in.csv')",
        "",
    ],
)
def test_a_query_that_is_not_one_valid_select_is_refused(
    db: Client, people: str, text: str
) -> None:
    with pytest.raises(DodonaError) as caught:
        db.query(text.format(path=people))
    assert isinstance(caught.value, InvalidRequest)
    assert not caught.value.is_retryable
    assert len(_rows(db, f"SELECT k FROM [{people}]")) == len(PEOPLE)


def test_a_timestamp_that_is_none_is_refused(db: Client, people: str) -> None:
    with refused(InvalidRequest, "Invalid read timestamp", is_retryable=False):
        db.query(f"SELECT k FROM [{people}]", timestamp=Timestamp(0))
