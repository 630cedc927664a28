"""Histories of rows: versioned lookups, and reads that leave out what is old."""

from random import Random
from typing import Any

import pytest

from conformance.backends import Backend
from conformance.tables import SUM, TWO_COLUMNS, MakeTable, Row, read, refused
from dodona.client import Client
from dodona.errors import InvalidRequest
from dodona.types import MIN_TIMESTAMP, Timestamp


def _history(db: Client, path: str, key: int = 1, **options: Any) -> Any:
    (row,) = db.lookup_versions(path, [{"k": key}], **options)
    return row


def _items(row: Any, column: str) -> list[tuple[int, Any, bool]]:
    return [(it.timestamp, it.value, it.aggregate) for it in row.values[column]]


def test_all_versions_are_given_newest_first(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    first = db.insert_rows(path, [{"k": 1, "v": 1, "w": b"x"}])
    second = db.insert_rows(path, [{"k": 1, "v": 2}], update=True)
    row = _history(db, path)
    assert row.key == {"k": 1}
    assert row.write_timestamps == [second, first]
    assert row.delete_timestamps == []
    assert _items(row, "v") == [(second, 2, False), (first, 1, False)]
    assert _items(row, "w") == [(first, b"x", False)]


def test_deletions_have_timestamps_of_their_own(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    stamps = [
        db.insert_rows(path, [{"k": 1, "v": 1}]),
        db.delete_rows(path, [{"k": 1}]),
        db.delete_rows(path, [{"k": 1}]),
        db.insert_rows(path, [{"k": 1, "v": 2}], update=True),
    ]
    row = _history(db, path)
    assert row.write_timestamps == [stamps[3], stamps[0]]
    assert row.delete_timestamps == [stamps[2], stamps[1]]
    assert _items(row, "v") == [(stamps[3], 2, False), (stamps[0], 1, False)]
    assert _items(row, "w") == [(stamps[0], None, False)]


def test_a_row_that_was_only_deleted_has_a_history(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    at = db.delete_rows(path, [{"k": 1}])
    row = _history(db, path)
    assert (row.write_timestamps, row.delete_timestamps) == ([], [at])


def test_a_deletion_and_then_a_write_in_one_transaction_is_one_write(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    before = db.insert_rows(path, [{"k": 1, "v": 1, "w": b"x"}])
    with db.begin() as transaction:
        transaction.delete_rows(path, [{"k": 1}])
        transaction.insert_rows(path, [{"k": 1, "v": 2}], update=True)
    at = transaction.commit_timestamp
    row = _history(db, path)
    assert row.write_timestamps == [at, before]
    assert row.delete_timestamps == []
    assert _items(row, "w") == [(at, None, False), (before, b"x", False)]


def test_versioned_lookups_distinguish_aggregate_changes_from_plain_values(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM)
    first = db.insert_rows(path, [{"k": 1, "total": 10}])
    second = db.insert_rows(path, [{"k": 1, "total": 5}], update=True, aggregate=True)
    row = _history(db, path)
    assert _items(row, "total") == [(second, 5, True), (first, 10, False)]


def test_all_rows_of_a_transaction_have_its_commit_timestamp(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS, pivot_keys=[[], [100]])
    with db.begin() as transaction:
        transaction.insert_rows(path, [{"k": key, "v": key} for key in (1, 2, 100)])
    for key in (1, 2, 100):
        assert _history(db, path, key).write_timestamps == [transaction.commit_timestamp]


@pytest.mark.parametrize("columns", [[], ["k"], ["w"]])
def test_a_column_filter_leaves_the_timestamps_of_the_row(
    db: Client, make_table: MakeTable, columns: list[str]
) -> None:
    path = make_table(TWO_COLUMNS)
    first = db.insert_rows(path, [{"k": 1, "v": 1, "w": b"x"}])
    deleted = db.delete_rows(path, [{"k": 1}])
    second = db.insert_rows(path, [{"k": 1, "v": 2}], update=True)
    row = _history(db, path, columns=columns)
    assert row.write_timestamps == [second, first]
    assert row.delete_timestamps == [deleted]
    assert set(row.values) <= set(columns)
    if "w" in columns:
        assert _items(row, "w") == [(first, b"x", False)]


def test_a_timestamp_cuts_a_history_off(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    first = db.insert_rows(path, [{"k": 1, "v": 1}])
    second = db.insert_rows(path, [{"k": 1, "v": 2}])
    assert first is not None
    assert second is not None
    cut = _history(db, path, timestamp=Timestamp(second - 1))
    assert cut.write_timestamps == [first]
    assert db.lookup_versions(path, [{"k": 1}], timestamp=Timestamp(first - 1)) == []
    assert db.lookup_versions(path, [{"k": 1}], timestamp=MIN_TIMESTAMP) == []


def test_a_history_is_read_in_pages(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    written = [db.insert_rows(path, [{"k": 1, "v": at}]) for at in range(7)]
    stamps = [at for at in written if at is not None]
    read_back: list[int] = []
    below = None
    while True:
        row = _history(db, path, below=below, limit=3)
        assert len(row.write_timestamps) <= 3
        read_back += row.write_timestamps
        below = row.more_below
        if below is None:
            break
    assert read_back == stamps[::-1]
    assert _history(db, path, since=stamps[4]).write_timestamps == [stamps[6], stamps[5]]
    with db.begin() as tx:
        (row,) = tx.lookup_versions(path, [{"k": 1}], since=stamps[0], limit=2)
    assert (row.write_timestamps, row.more_below) == ([stamps[6], stamps[5]], stamps[5])
    assert db.lookup_versions(path, [{"k": 1}], since=stamps[6]) == []
    with pytest.raises(InvalidRequest, match="limit"):
        db.lookup_versions(path, [{"k": 1}], limit=0)


def test_lookup_versions_keeps_the_order_of_keys_and_omits_missing_rows_by_default(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": 1, "v": 1}, {"k": 3, "v": 1}])
    keys = [{"k": key} for key in (3, 2, 1, 3)]
    assert [row.key["k"] for row in db.lookup_versions(path, keys)] == [3, 1, 3]
    found: list[Any] = db.lookup_versions(path, keys, keep_missing=True)
    assert [None if row is None else row.key["k"] for row in found] == [3, None, 1, 3]


def test_each_version_equals_the_row_read_at_its_timestamp(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    """A model of a row, told of random writes and deletions, agrees with each kind of read."""
    path = make_table(TWO_COLUMNS)
    dice = Random(5)
    model: Row | None = None
    states: dict[int, Row | None] = {}
    for number in range(40):
        way = dice.choice(("insert", "update", "update", "delete"))
        if way == "delete":
            at, model = db.delete_rows(path, [{"k": 1}]), None
        else:
            row = {"k": 1, "v": number} if dice.random() < 0.5 else {"k": 1, "w": b"%d" % number}
            at = db.insert_rows(path, [row], update=way == "update")
            empty = {"k": 1, "v": None, "w": None}
            model = (empty if model is None or way == "insert" else model) | row
        assert at is not None
        states[at] = model
    for _ in range(2):
        for stamp, state in states.items():
            assert read(db, path, timestamp=stamp) == ([] if state is None else [state])
            found = db.lookup_rows(path, [{"k": 1}], keep_missing=True, timestamp=Timestamp(stamp))
            assert found == [state]
        row = _history(db, path)
        assert sorted(row.write_timestamps + row.delete_timestamps) == list(states)
        backend.restart_cells()


# ---- leaving out what is old


def _versions(db: Client, path: str) -> tuple[Timestamp, Timestamp, Timestamp]:
    """Of two writes, with others between them, and of now."""
    first = db.insert_rows(path, [{"k": 1, "v": 1, "w": b"x"}])
    db.generate_timestamp()
    db.generate_timestamp()
    second = db.insert_rows(path, [{"k": 1, "v": 2}], update=True)
    assert first is not None
    assert second is not None
    return first, second, db.generate_timestamp()


def test_what_is_older_than_the_retention_timestamp_is_as_if_it_had_never_been(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    first, second, now = _versions(db, path)

    def seen(oldest: int) -> list[Row]:
        at = Timestamp(oldest)
        found = db.lookup_rows(path, [{"k": 1}], timestamp=now, retention_timestamp=at)
        assert list(db.select(path, timestamp=now, retention_timestamp=at)) == found
        arrow = db.read_arrow(path, timestamp=now, retention_timestamp=at)
        assert arrow.to_pylist() == found
        queried = db.query(f"SELECT * FROM [{path}]", timestamp=now, retention_timestamp=at)
        assert queried.to_pylist() == found
        return found

    assert seen(first) == [{"k": 1, "v": 2, "w": b"x"}]
    assert seen(first + 1) == [{"k": 1, "v": 2, "w": None}]
    assert seen(second) == [{"k": 1, "v": 2, "w": None}]
    assert seen(second + 1) == []


def test_both_ends_of_a_read_are_included(db: Client, make_table: MakeTable) -> None:
    path = make_table(TWO_COLUMNS)
    first, second, _ = _versions(db, path)
    for at, value in ((first, 1), (second, 2)):
        (row,) = db.lookup_rows(path, [{"k": 1}], timestamp=at, retention_timestamp=at)
        assert row["v"] == value
    assert not db.select(
        path, timestamp=Timestamp(second - 1), retention_timestamp=Timestamp(first + 1)
    )


def test_a_deletion_below_the_retention_timestamp_deletes_no_newer_version(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    db.insert_rows(path, [{"k": 1, "v": 1}, {"k": 2, "v": 1}])
    db.delete_rows(path, [{"k": 1}, {"k": 2}])
    oldest = db.generate_timestamp()
    db.insert_rows(path, [{"k": 1, "v": 2}])
    rows = db.select(path, retention_timestamp=oldest)
    assert list(rows) == [{"k": 1, "v": 2, "w": None}]


def test_aggregate_changes_below_the_retention_timestamp_do_not_count(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(SUM)
    db.insert_rows(path, [{"k": 1, "total": 10}])
    oldest = db.insert_rows(path, [{"k": 1, "total": 5}], update=True, aggregate=True)
    assert oldest is not None
    db.insert_rows(path, [{"k": 1, "total": 2}], update=True, aggregate=True)
    (row,) = db.lookup_rows(path, [{"k": 1}], retention_timestamp=oldest)
    assert row["total"] == 7


def test_a_retention_timestamp_after_the_timestamp_is_refused(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(TWO_COLUMNS)
    first, second, _ = _versions(db, path)
    for call in (
        lambda: db.lookup_rows(path, [{"k": 1}], timestamp=first, retention_timestamp=second),
        lambda: db.select(path, timestamp=first, retention_timestamp=second),
        lambda: db.read_arrow(path, timestamp=first, retention_timestamp=second),
        lambda: db.query(f"SELECT k FROM [{path}]", timestamp=first, retention_timestamp=second),
    ):
        with refused(InvalidRequest, is_retryable=False):
            call()
