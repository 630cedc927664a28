"""Transactions that read at a timestamp that their caller chose, and write nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.tables import APART, PLAIN, MakeTable, refused
from dodona.client import Client, Transaction
from dodona.errors import InvalidRequest, TransactionClosed
from dodona.leases import Lease
from dodona.types import MAX_TIMESTAMP, SYNC_LAST_COMMITTED, Timestamp

pytestmark = pytest.mark.part("transactions on real processes")

NEAR, FAR = 1, 150
"""Keys of two tablets."""


def rows(v: int) -> list[dict[str, int]]:
    return [{"k": key, "v": v} for key in (NEAR, FAR)]


KEYS: list[dict[str, Any]] = [{"k": NEAR}, {"k": FAR}]


def changed(db: Client, make_table: MakeTable) -> tuple[str, Timestamp]:
    """Make a table, and change its rows. → its path, and a timestamp between the changes."""
    path = make_table(PLAIN, pivot_keys=APART)
    db.insert_rows(path, rows(1))
    at = db.generate_timestamp()
    db.insert_rows(path, rows(2))
    return path, at


READS: dict[str, Callable[[Transaction, str], list[int]]] = {
    "lookup_rows": lambda tx, path: [it["v"] for it in tx.lookup_rows(path, KEYS)],
    "lookup_versions": lambda tx, path: [
        it.values["v"][0].value for it in tx.lookup_versions(path, KEYS)
    ],
    "select": lambda tx, path: [it["v"] for it in tx.select(path)],
    "read_arrow": lambda tx, path: tx.read_arrow(path)["v"].to_pylist(),
    "query": lambda tx, path: tx.query(f"select v from [{path}]")["v"].to_pylist(),
}


@pytest.mark.parametrize("read", READS)
def test_each_read_is_as_of_the_timestamp(db: Client, make_table: MakeTable, read: str) -> None:
    path, at = changed(db, make_table)
    tx = db.begin(timestamp=at)
    assert READS[read](tx, path) == [1, 1]
    assert READS[read](db.begin(), path) == [2, 2]


def test_it_has_no_id_and_commits_nothing(db: Client, make_table: MakeTable) -> None:
    path, at = changed(db, make_table)
    with db.begin(timestamp=at) as tx, db.begin(timestamp=at) as other:
        assert (tx.start_timestamp, tx.id) == (at, None)
        assert READS["select"](tx, path) == READS["select"](other, path)
        assert repr(tx) == f"<dodona.Transaction at {at} active, 0 rows written>"
    assert (tx.state.value, tx.commit_timestamp) == ("committed", None)
    with refused(TransactionClosed, is_retryable=False):
        tx.select(path)


WRITES: dict[str, Callable[[Transaction, str], object]] = {
    "insert_rows": lambda tx, path: tx.insert_rows(path, rows(3)),
    "write": lambda tx, path: tx.write(path, rows(3)),
    "delete_rows": lambda tx, path: tx.delete_rows(path, KEYS),
    "lock_rows": lambda tx, path: tx.lock_rows(path, KEYS),
}


@pytest.mark.parametrize("write", WRITES)
def test_it_refuses_writes_and_locks_and_goes_on(
    db: Client, make_table: MakeTable, write: str
) -> None:
    path, at = changed(db, make_table)
    tx = db.begin(timestamp=at)
    with refused(InvalidRequest, "Begin one without", is_retryable=False, timestamp=at):
        WRITES[write](tx, path)
    assert READS["select"](tx, path) == [1, 1]
    assert tx.commit() is None
    assert READS["select"](db.begin(), path) == [2, 2]


def test_a_timestamp_in_the_future_is_refused_by_the_read(
    db: Client, make_table: MakeTable
) -> None:
    path, _ = changed(db, make_table)
    tx = db.begin(timestamp=MAX_TIMESTAMP)
    with refused(InvalidRequest, "in the future", is_retryable=False):
        tx.select(path)


@pytest.mark.parametrize("timestamp", [0, -1, True, "now", 1.5, SYNC_LAST_COMMITTED])
def test_what_is_no_timestamp_is_refused(db: Client, timestamp: Any) -> None:
    with refused(InvalidRequest, "Invalid read timestamp", is_retryable=False):
        db.begin(timestamp=timestamp)


@pytest.mark.parametrize(
    "others",
    [{"atomicity": "none"}, {"locks": {}}, {"prerequisites": [Lease("//leases", "a", "b", 1)]}],
)
def test_what_only_writers_have_is_refused(db: Client, others: dict[str, Any]) -> None:
    with refused(InvalidRequest, "only reads", is_retryable=False):
        db.begin(timestamp=db.generate_timestamp(), **others)
