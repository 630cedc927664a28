"""Unmounting and freezing wait for transactions that are under way, and let no new ones in."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.backends import Backend
from conformance.selections import ON_SEVERAL_CELLS
from conformance.stepping import prepare
from conformance.tables import APART, MakeTable, read, refused
from dodona._core.protocol.steps import Protocol
from dodona.client import Client, Transaction
from dodona.errors import DodonaError, TableNotMounted, TransactionAborted

pytestmark = ON_SEVERAL_CELLS

SOON_MS = 300
"""Some hundred milliseconds: until the cells have heard of it, unless the machine is busy."""
LATE_ONES_MAX = 100

Begin = Callable[[Any, str], Protocol[None]]
LEAVING: dict[str, tuple[Begin, type[DodonaError], bool]] = {
    "unmount": (lambda it, path: it.unmount_table(path), TransactionAborted, True),
    "freeze": (lambda it, path: it.freeze_table(path), TableNotMounted, False),
}


@pytest.mark.parametrize("name", LEAVING)
def test_an_unmount_or_freeze_waits_for_prepared_transactions(
    backend: Backend, db: Client, make_table: MakeTable, name: str
) -> None:
    begin, _, _ = LEAVING[name]
    path = make_table(pivot_keys=APART)
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 1, "v": 1}, {"k": 100, "v": 1}])
    commit = prepare(db, transaction)
    leaving = backend.start(db, begin(db._session.catalog, path))
    backend.let_pass(SOON_MS)
    assert not leaving.is_over
    commit.result()
    leaving.result()
    if name == "unmount":
        db.mount_table(path)
    assert [row["v"] for row in read(db, path)] == [1, 1]


@pytest.mark.parametrize("name", LEAVING)
def test_an_unmount_or_freeze_admits_no_new_transactions(
    backend: Backend, db: Client, other: Client, make_table: MakeTable, name: str
) -> None:
    begin, kind, is_retryable = LEAVING[name]
    path = make_table(pivot_keys=APART)
    other.insert_rows(path, [{"k": 2, "v": 0}])
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 1, "v": 1}, {"k": 100, "v": 1}])
    late = begin_late(other, path)
    commit = prepare(db, transaction)
    leaving = backend.start(db, begin(db._session.catalog, path))
    with refused(kind, is_retryable=is_retryable):
        for _ in range(LATE_ONES_MAX):  # let in for as long as the cell has not heard of it
            backend.let_pass(SOON_MS)
            late.commit()
            late = begin_late(other, path)
    commit.result()
    leaving.result()


def begin_late(client: Client, path: str) -> Transaction:
    """One that nothing but the table's leaving stands against."""
    late = client.begin()
    late.insert_rows(path, [{"k": 2, "v": 2}])
    return late
