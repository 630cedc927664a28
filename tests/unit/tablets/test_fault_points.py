"""A cell with fault points: what no history of a run can show, and what no fault point may do."""

from dodona.types import MAX_TIMESTAMP, SYNC_LAST_COMMITTED, CellId
from dodona_wire.cores.fault_points import FaultAt, FaultPoint
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Committed, Lookup, Prepared
from unit.tablets.cells import ATOMIC, REVISION, Bench, key, put


def always(wanted: FaultPoint) -> FaultAt:
    return lambda point: point is wanted


def test_a_spurious_wakeup_does_not_change_how_long_a_transaction_waits() -> None:
    """As long as without: it stands in line once, and its wait does not begin anew. (Here it ends
    when the other cell has been silent for 3.5 seconds.)"""
    bench = Bench(2, fault_at=always(FaultPoint.WAKE_FOR_NOTHING))
    holder = bench.begin()
    bench.prepare(holder, put(1, 1), cell=0)
    bench.answer_oracle()
    writer = bench.prepare(bench.begin(), put(1, 2), cell=0)
    reader = bench.lookup(1)
    bench.pass_time(3.4)
    assert (bench.answer(writer), bench.answer(reader)) == (None, None)
    assert len(bench.nodes[CellId(0)].cell.transactions[holder].waiters) == 2
    bench.pass_time(0.3)
    for route in (writer, reader):
        assert isinstance(bench.answer(route), Failure)


def test_a_tablet_seems_to_be_gone_only_where_a_coordinator_can_be_asked() -> None:
    bench = Bench(2, fault_at=always(FaultPoint.PRETEND_MOVED))
    alone = bench.commit_one(bench.begin(), put(1, 1))
    several = bench.prepare(bench.begin(), put(2, 1), cell=0)
    bench.answer_oracle()
    assert isinstance(bench.answer(alone), Committed)
    refusal = bench.answer(several)
    assert isinstance(refusal, Failure)
    assert refusal.kind == "tablet_moved"


def test_a_prepare_timestamp_that_was_lost_is_asked_for_under_the_same_locks() -> None:
    is_lost = [True]
    bench = Bench(2, fault_at=lambda it: it is FaultPoint.LOSE_PREPARE_TIMESTAMP and is_lost[0])
    route = bench.prepare(bench.begin(), put(1, 1), cell=0)
    bench.answer_oracle()
    tablet = bench.nodes[CellId(0)].cell.tablets[ATOMIC]
    assert (bench.answer(route), tablet.locked_count()) == (None, 1)
    is_lost[0] = False
    bench.pass_time(1.2)
    asked_at = bench.oracle
    bench.answer_oracle()
    prepared = bench.answer(route)
    assert isinstance(prepared, Prepared)
    assert prepared.timestamp > asked_at


def test_proof_is_never_asked_of_the_newest() -> None:
    """The largest timestamps mean the newest data: the oracle will never have issued them."""
    bench = Bench(fault_at=always(FaultPoint.PROVE_AGAIN))
    at = bench.commit(put(1, 1))
    assert SYNC_LAST_COMMITTED > MAX_TIMESTAMP
    newest, known = bench.lookup(1), bench.ask(Lookup(ATOMIC, REVISION, at, (key(1),), 3))
    assert bench.answer(newest) is not None
    assert bench.answer(known) is None
    bench.answer_oracle()
    assert bench.answer(known) == bench.answer(newest)
