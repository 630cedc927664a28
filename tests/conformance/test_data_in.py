"""Data in one call: all rows at one timestamp, in every mode, over cells; and altered tables."""

import pytest

from conformance.bulk import HALVES, filled, rows, values
from conformance.tables import PLAIN, TWO_COLUMNS, MakeTable
from dodona._core.loads import one_call
from dodona.client import Client
from dodona.errors import DuplicateKey, RowNotFound, TransactionConflict


@pytest.fixture(params=["transaction", "load"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How rows are written: few, or as if they were many."""
    if request.param == "load":
        monkeypatch.setattr(one_call, "ROWS_MAX", 0)
    return str(request.param)


def test_all_rows_of_data_become_visible_at_its_timestamp(
    db: Client, other: Client, make_table: MakeTable, way: str
) -> None:
    path = filled(db, make_table, PLAIN, [{"k": 1, "v": 0}])
    published = db.write(path, {"k": range(50, 150), "v": [1] * 100})
    assert published.row_count == 100
    expected = {1: 0, **dict.fromkeys(range(50, 150), 1)}
    assert values(other, path, published.timestamp) == expected
    assert values(other, path, published.timestamp - 1) == {1: 0}
    assert len(other.loads.list_loads()) >= (way == "load")


def test_the_modes_of_data_are_those_of_loads(db: Client, make_table: MakeTable, way: str) -> None:
    path = filled(db, make_table, PLAIN, [{"k": 1, "v": 0}, {"k": 120, "v": 0}])
    with pytest.raises(DuplicateKey):
        db.write(path, rows([2, 120]), "insert")
    with pytest.raises(RowNotFound):
        db.write(path, rows([1, 121]), "update")
    assert values(db, path) == {1: 0, 120: 0}
    db.write(path, rows([1, 130], 2))
    db.write(path, {"k": [120]}, "delete")
    assert values(db, path) == {1: 2, 130: 2}
    assert db.write(path, rows([7, 140], 3), "replace").row_count == 2
    assert values(db, path) == {7: 3, 140: 3}
    db.write(path, [], "replace")
    assert values(db, path) == {}


def test_data_overwrites_what_others_changed_and_conflicts_with_older_transactions(
    db: Client, other: Client, make_table: MakeTable, way: str
) -> None:
    path = make_table(pivot_keys=HALVES)
    older = other.begin()
    other.insert_rows(path, [{"k": 1, "v": 1}, {"k": 101, "v": 1}])
    db.write(path, rows([1, 101], 2))
    older.insert_rows(path, [{"k": 101, "v": 3}])
    with pytest.raises(TransactionConflict):
        older.commit()
    assert values(db, path) == {1: 2, 101: 2}


def test_data_in_a_transaction_commits_with_it(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    paths = [make_table(pivot_keys=HALVES), make_table()]
    with db.begin() as transaction:
        for path in paths:
            transaction.write(path, rows([1, 101]))
        assert [values(other, path) for path in paths] == [{}, {}]
    assert [values(other, path) for path in paths] == [{1: 1, 101: 1}] * 2


def test_data_fits_a_table_that_another_client_altered(
    db: Client, other: Client, make_table: MakeTable, way: str
) -> None:
    path = make_table(PLAIN)
    db.write(path, rows([1]))
    other.unmount_table(path)
    other.alter_table(path, TWO_COLUMNS)
    other.mount_table(path)
    db.write(path, [{"k": 2, "v": 2, "w": b"new"}])
    other.unmount_table(path)
    other.alter_table(path, [*TWO_COLUMNS, {"name": "x", "type": "utf8"}])
    other.mount_table(path)
    with db.begin() as transaction:
        transaction.write(path, {"k": [3], "x": ["newer"]})
    assert [row["k"] for row in other.select(path)] == [1, 2, 3]
