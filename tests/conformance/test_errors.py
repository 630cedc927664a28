"""What a caller does about an error: run it again, ask, or mend something."""

import pytest

from conformance.backends import Backend, Simulated
from conformance.tables import APART, PLAIN, MakeTable, read, refused, value
from dodona._core.protocol.context import Acknowledgement
from dodona.client import Client, Transaction
from dodona.errors import InvalidRequest, TransactionAborted, TransactionConflict, Unavailable
from suite.waiting import wait_until


def test_run_in_transaction_reruns_a_function_until_the_transaction_commits(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 0}])
    disturbances = iter(range(3))

    def add_one(transaction: Transaction) -> int:
        (row,) = transaction.lookup_rows(path, [{"k": 1}])
        transaction.insert_rows(path, [{"k": 1, "v": row["v"] + 1}])
        if next(disturbances, None) is not None:
            (now,) = other.lookup_rows(path, [{"k": 1}])
            other.insert_rows(path, [{"k": 1, "v": now["v"] + 10}])
        result: int = row["v"]
        return result

    assert db.run_in_transaction(add_one) == 30
    assert value(db, path, 1) == 31


def test_run_in_transaction_runs_a_function_at_most_attempts_max_times(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table()
    runs = []

    def lose(transaction: Transaction) -> None:
        runs.append(transaction.id)
        transaction.insert_rows(path, [{"k": 1, "v": 0}])
        other.insert_rows(path, [{"k": 1, "v": 1}])

    with refused(TransactionConflict, is_retryable=True):
        db.run_in_transaction(lose, attempts_max=3)
    assert len(runs) == len(set(runs)) == 3


def test_run_in_transaction_does_not_retry_an_error_that_is_not_retryable(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(atomicity="none")
    runs = []

    def fail(transaction: Transaction) -> None:
        runs.append(transaction.id)
        transaction.insert_rows(path, [{"k": 1, "v": 0}])

    with refused(InvalidRequest, "Invalid atomicity mode", is_retryable=False):
        db.run_in_transaction(fail)
    assert len(runs) == 1


@pytest.mark.parametrize("keys", [(1,), (1, 100)])
def test_any_client_can_ask_for_the_outcome_of_a_committed_transaction(
    backend: Backend, db: Client, other: Client, make_table: MakeTable, keys: tuple[int, ...]
) -> None:
    path = make_table(pivot_keys=APART)
    with db.begin() as transaction:
        transaction.insert_rows(path, [{"k": key, "v": 1} for key in keys])
    assert transaction.id is not None
    outcome = db.outcome(transaction.id)
    assert (outcome.state, outcome.timestamp) == ("committed", transaction.commit_timestamp)
    coordinator = transaction._buffer.coordinator
    assert other.outcome(transaction.id, coordinator) == outcome
    assert backend.new_client().outcome(transaction.id) == outcome
    backend.restart_cells()
    assert backend.new_client().outcome(transaction.id) == outcome


def test_a_question_for_the_outcome_does_not_change_the_transaction(
    backend: Backend, db: Client, other: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=APART)
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": key, "v": 1} for key in (1, 100)])
    begun = transaction.id
    assert begun is not None
    assert other.outcome(begun).state == "pending"
    committed_at = transaction.commit()
    # The commit ends when all cells are prepared, so the decision may arrive after the question.
    wait_until(lambda: other.outcome(begun).state != "pending")
    assert other.outcome(begun).timestamp == committed_at
    unheard = db.begin()
    assert unheard.id is not None
    with refused(InvalidRequest, "coordinator", is_retryable=False, transaction=unheard.id):
        other.outcome(unheard.id, settle=True)
    backend.restart_cells()  # nobody who began before it is let in any more
    assert backend.new_client().outcome(unheard.id).state == "aborted"


@pytest.mark.parametrize("acknowledgement", ["decided", "prepared"])
def test_a_commit_that_was_reported_stays_one(
    backend: Backend, db: Client, make_table: MakeTable, acknowledgement: Acknowledgement
) -> None:
    path = make_table(pivot_keys=APART)
    writer = backend.new_client(acknowledgement=acknowledgement)
    with writer.begin() as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 7}, {"k": 100, "v": 7}])
    assert [row["v"] for row in read(db, path)] == [7, 7]
    assert transaction.id is not None
    outcome = backend.new_client().outcome(transaction.id, settle=True)
    assert (outcome.state, outcome.timestamp) == ("committed", transaction.commit_timestamp)
    backend.restart_cells()
    assert [row["v"] for row in read(db, path)] == [7, 7]


def test_a_transaction_that_is_settled_as_aborted_cannot_commit(
    db: Client, other: Client, make_table: MakeTable
) -> None:
    """Nobody may be told that it was not committed, and then it is."""
    path = make_table()
    transaction = db.begin()
    transaction.insert_rows(path, [{"k": 1, "v": 1}])
    (tablet,) = db.get_table(path).tablets
    assert transaction.id is not None
    assert other.outcome(transaction.id, tablet.cell, settle=True).state == "aborted"
    with pytest.raises(TransactionAborted) as caught:
        transaction.commit()
    assert caught.value.is_retryable
    assert read(db, path) == []


def test_only_the_rows_of_a_stopped_cell_are_unavailable(
    simulator: Simulated,
) -> None:
    db = simulator.db
    db.create_table("//t", PLAIN, pivot_keys=APART, mount=True)
    for key in (1, 100):  # in one commit, the cell that is away might not have told the other
        db.insert_rows("//t", [{"k": key, "v": 1}])
    away, here = (tablet.cell for tablet in db.get_table("//t").tablets)
    assert away is not None
    assert away != here
    with simulator.cell_is_down(away):
        assert value(db, "//t", 100) == 1
        db.insert_rows("//t", [{"k": 100, "v": 2}])
        with refused(Unavailable, is_retryable=True):
            db.lookup_rows("//t", [{"k": 1}])
    assert [row["v"] for row in read(db, "//t")] == [1, 2]
