"""Clients that vanish in the middle of a commit: its cells bring it to an end by themselves."""

import pytest

from conformance.backends import Backend, Simulated
from conformance.selections import UNDER_VIRTUAL_TIME
from conformance.stepping import Stepwise, one_by_one, prepare
from conformance.tables import APART, MakeTable, read, refused, value
from dodona.client import Client, Transaction
from dodona.errors import Unavailable
from dodona_wire.messages.data import Prepare

pytestmark = UNDER_VIRTUAL_TIME

LEFT, RIGHT = 1, 100


@pytest.fixture
def path(make_table: MakeTable) -> str:
    return make_table(pivot_keys=APART)


def _writer(db: Client, path: str) -> Transaction:
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": LEFT, "v": 1}, {"k": RIGHT, "v": 1}])
    return transaction


def test_cells_abort_a_transaction_if_its_client_vanishes_before_all_cells_prepare(
    backend: Backend, db: Client, path: str
) -> None:
    commit = Stepwise(db, one_by_one(db._session.commit(_writer(db, path)._buffer)))
    commit.advance_to(Prepare)
    commit.advance()
    backend.let_pass(10_000)
    assert read(db, path) == []
    db.insert_rows(path, [{"k": LEFT, "v": 2}])


def test_cells_commit_a_transaction_if_its_client_vanishes_after_all_cells_prepare(
    backend: Backend, db: Client, path: str
) -> None:
    transaction = _writer(db, path)
    prepare(db, transaction)
    backend.let_pass(10_000)
    assert [row["v"] for row in read(db, path)] == [1, 1]


def test_a_read_gives_up_waiting_for_a_prepared_row(
    backend: Backend, db: Client, path: str
) -> None:
    assert isinstance(backend, Simulated)
    transaction = _writer(db, path)
    prepare(db, transaction)
    assert transaction._buffer.coordinator is not None
    left, _ = db.get_table(path).tablets
    key = RIGHT if left.cell == transaction._buffer.coordinator else LEFT
    with (
        backend.cell_is_down(transaction._buffer.coordinator),  # nobody else can decide
        refused(Unavailable, is_retryable=True, table=path, cell=transaction._buffer.coordinator),
    ):
        db.lookup_rows(path, [{"k": key}])
    backend.let_pass(10_000)
    assert value(db, path, key) == 1
