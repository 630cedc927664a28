"""A cell with an empty log: it serves nobody until the master says that it may join."""

from dodona.types import NO_CLUSTER, CellId, ClusterId, Revision, TransactionId
from dodona_tablets.core.records import ClusterJoined
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Assignment
from dodona_wire.messages.cells import QueryStatus
from dodona_wire.messages.data import CommitOne
from unit.tablets.cells import ATOMIC, CLUSTER, Bench

CELL = CellId(0)


class Empty(Bench):
    """Cells that were started, and heard nothing of the master yet."""

    def add(self, cell: CellId) -> None:
        self.start(cell)


def test_a_cell_with_an_empty_log_reports_no_cluster_and_refuses_requests() -> None:
    bench = Empty()
    node = bench.nodes[CELL]
    assert bench.heartbeats[CELL].cluster == NO_CLUSTER
    assert not node.is_serving
    assert node.waits_for == "the master, to let it join"
    answer = bench.answer(bench.ask(CommitOne(TransactionId(7), ())))
    assert isinstance(answer, Failure)
    assert answer.kind == "unavailable"
    assert "the master" in answer.message


def test_a_cell_with_an_empty_log_does_not_answer_about_a_transaction() -> None:
    """It may be all that is left of a cell that had prepared it."""
    bench = Empty(2)
    bench.nodes[CELL].handle_cell_message(QueryStatus(CellId(1), TransactionId(7)), bench.now)
    assert bench.nodes[CELL].take_effects() == []


def test_a_cell_with_an_empty_log_sends_heartbeats_until_it_may_join() -> None:
    bench = Empty()
    sequence = bench.heartbeats[CELL].sequence
    bench.pass_time(1.0)
    assert bench.heartbeats[CELL].sequence > sequence
    bench.assign(CELL, [])
    assert bench.nodes[CELL].is_serving
    assert bench.logs[CELL] == [ClusterJoined(CLUSTER)]
    assert bench.heartbeats[CELL].cluster == CLUSTER


def test_a_cell_stays_in_its_cluster_after_a_restart() -> None:
    bench = Bench()
    bench.start(CELL)
    assert bench.nodes[CELL].is_serving
    assert bench.heartbeats[CELL].cluster == CLUSTER


def test_an_assignment_of_another_cluster_is_not_taken() -> None:
    bench = Bench()
    sequence = bench.heartbeats[CELL].sequence
    other = Assignment((), {}, sequence, Revision(99), ClusterId(CLUSTER + 1))
    bench.nodes[CELL].handle_assignment(other, bench.now)
    bench.pass_time(0.5)
    assert ATOMIC in [it.tablet for it in bench.heartbeats[CELL].mounted]


def test_an_assignment_of_a_master_that_was_replaced_is_not_taken() -> None:
    """It is older than what the cell did last, even if that was before a restart."""
    bench = Bench()
    for _ in range(2):
        sequence = bench.heartbeats[CELL].sequence
        old = Assignment((), {}, sequence, Revision(bench.revision - 1), CLUSTER)
        bench.nodes[CELL].handle_assignment(old, bench.now)
        bench.pass_time(0.5)
        assert ATOMIC in [it.tablet for it in bench.heartbeats[CELL].mounted]
        bench.start(CELL)
