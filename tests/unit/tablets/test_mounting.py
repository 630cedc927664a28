"""Mounting: assignments, fences, unmounting under a transaction, restarts."""

from dodona.types import KEY_MAX, KEY_MIN, CellId, Revision, Timestamp
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Assignment, MountedTablet, TabletAssignment
from dodona_wire.messages.data import Committed, Prepared, WriteNonAtomic
from unit.tablets.cells import ATOMIC, CLUSTER, NON_ATOMIC, REVISION, Bench, assignment, put

CELL = CellId(0)
BOTH = [assignment(ATOMIC, "full"), assignment(NON_ATOMIC, "none")]
ONLY_NON_ATOMIC = BOTH[1:]


def mounted(bench: Bench) -> dict[int, int]:
    return {it.tablet: it.revision for it in bench.heartbeats[CELL].mounted}


def kind(reply: object) -> str:
    assert isinstance(reply, Failure), reply
    return reply.kind


def test_a_tablet_is_reported_mounted_only_after_its_fence() -> None:
    bench = Bench()
    new = TabletAssignment(
        type(ATOMIC)(9), Revision(5), "//test/new", BOTH[0].columns, "full", KEY_MIN, KEY_MAX
    )
    bench.assign(CELL, [*BOTH, new])
    assert 9 not in mounted(bench)
    bench.answer_oracle()
    assert mounted(bench) == {ATOMIC: REVISION, NON_ATOMIC: REVISION, 9: 5}


def test_a_transaction_that_began_before_the_mount_is_refused() -> None:
    bench = Bench()
    early = bench.begin()
    bench.assign(CELL, ONLY_NON_ATOMIC)
    bench.assign(CELL, [assignment(ATOMIC, "full", Revision(2)), *ONLY_NON_ATOMIC])
    bench.answer_oracle()
    assert kind(bench.answer(bench.commit_one(early, put(1, 1)))) == "tablet_moved"
    tablet = bench.nodes[CELL].cell.tablets[ATOMIC]
    assert tablet.fence > early


def test_unmounting_waits_for_transactions_and_refuses_new_ones() -> None:
    bench = Bench(2)
    start = bench.begin()
    votes = [bench.prepare(start, put(1, 1), cell=cell) for cell in (0, 1)]
    bench.answer_oracle()
    bench.assign(CELL, ONLY_NON_ATOMIC)
    assert kind(bench.answer(bench.commit_one(bench.begin(), put(2, 2)))) == "transaction_aborted"
    bench.pass_time(0.5)
    assert ATOMIC in mounted(bench)
    answers = [bench.answer(vote) for vote in votes]
    at = max(answer.timestamp for answer in answers if isinstance(answer, Prepared))
    assert isinstance(bench.answer(bench.decide(start, at)), Committed)
    bench.settle()
    bench.pass_time(0.5)
    assert ATOMIC not in mounted(bench)
    assert kind(bench.answer(bench.lookup(1))) == "tablet_moved"


def test_the_rows_are_there_again_after_a_remount_and_after_a_restart() -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    bench.assign(CELL, ONLY_NON_ATOMIC)
    bench.start(CELL)
    assert kind(bench.answer(bench.lookup(1))) == "tablet_moved"
    bench.assign(CELL, BOTH)  # the same revision as before the unmount: stale
    bench.answer_oracle()
    assert kind(bench.answer(bench.lookup(1))) == "tablet_moved"
    bench.assign(CELL, [assignment(ATOMIC, "full", Revision(3)), *ONLY_NON_ATOMIC])
    bench.answer_oracle()
    assert mounted(bench)[ATOMIC] == 3
    dumped = bench.nodes[CELL].cell.tablets[ATOMIC].dump()
    assert [values for _, [(_, _, values)] in dumped] == [(1, None)]


def test_an_answer_to_an_older_heartbeat_is_ignored() -> None:
    bench = Bench()
    sequence = bench.heartbeats[CELL].sequence
    stale = Assignment((), {}, sequence - 1, bench.revision, CLUSTER)
    bench.nodes[CELL].handle_assignment(stale, bench.now)
    bench.pass_time(0.5)
    assert ATOMIC in mounted(bench)


def test_a_heartbeat_reports_the_revision_of_the_accepted_assignment() -> None:
    bench = Bench()
    sequence = bench.heartbeats[CELL].sequence
    assigned = tuple(BOTH)
    node = bench.nodes[CELL]
    for at, revision in ((sequence, Revision(7)), (sequence - 1, Revision(8))):
        node.handle_assignment(Assignment(assigned, {}, at, revision, CLUSTER), bench.now)
    bench.pass_time(0.5)
    assert bench.heartbeats[CELL].revision == 7
    bench.start(CELL)
    assert bench.heartbeats[CELL].revision == 0


def test_a_heartbeat_reports_the_retained_timestamp_of_each_tablet() -> None:
    bench = Bench()
    bench.nodes[CELL].cell.tablets[ATOMIC].retained_timestamp = Timestamp(9)
    bench.pass_time(0.5)
    retained = {it.tablet: it.retained_timestamp for it in bench.heartbeats[CELL].mounted}
    assert retained == {ATOMIC: 9, NON_ATOMIC: 1}


def test_a_fence_that_never_came_is_asked_for_again() -> None:
    bench = Bench()
    bench.assign(CELL, [assignment(ATOMIC, "full", Revision(2)), *ONLY_NON_ATOMIC])
    bench.asked.clear()
    bench.pass_time(0.5)
    bench.answer_oracle()
    assert MountedTablet(ATOMIC, Revision(2)) in bench.heartbeats[CELL].mounted


def test_a_starting_cell_is_unavailable_until_the_oracle_answers() -> None:
    bench = Bench()
    node = bench.nodes[CELL]
    node.cell.fence = Timestamp(0)
    request = WriteNonAtomic(NON_ATOMIC, REVISION, bench.timestamp(), True, (put(1, 1),))
    assert kind(bench.answer(bench.ask(request))) == "unavailable"
    bench.pass_time(1)
    assert not node.is_serving
    bench.answer_oracle()
    assert node.is_serving
