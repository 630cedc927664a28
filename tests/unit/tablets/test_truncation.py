"""Checkpoints: what they say, when the log is cut, and what a restart makes of the rest."""

import pytest

from dodona.types import CellId, TableSettings
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.node import DRAIN_LOG_BYTES_MIN
from dodona_tablets.core.records import Checkpoint, CommittedHere
from dodona_wire.messages.data import Committed
from unit.tablets.cells import ATOMIC, Bench, put

CELL = CellId(0)
SOON = TableSettings(dynamic_store_auto_flush_period=1_000)


def let_time_pass(bench: Bench, seconds: int) -> None:
    for _ in range(seconds):
        bench.pass_time(1)
        bench.answer_oracle()


def checkpoints(bench: Bench) -> list[Checkpoint]:
    return [record for record in bench.appended[CELL] if isinstance(record, Checkpoint)]


def test_the_log_is_truncated_after_rows_are_in_chunks_and_outcomes_are_forgotten() -> None:
    bench = Bench(settings=SOON)
    at = bench.commit(put(1, 1))
    let_time_pass(bench, 30)
    assert checkpoints(bench)
    assert any(isinstance(record, CommittedHere) for record in bench.logs[CELL])
    let_time_pass(bench, 90)
    assert isinstance(bench.logs[CELL][0], Checkpoint)
    assert not any(isinstance(record, CommittedHere) for record in bench.logs[CELL])
    bench.start(CELL)
    assert bench.read(1, at) == bench.read(1) == (1, None)
    assert bench.commit(put(1, 2))


def test_rows_in_memory_keep_their_part_of_the_log() -> None:
    bench = Bench()  # they are flushed after a quarter of an hour
    bench.commit(put(1, 1))
    let_time_pass(bench, 300)
    assert any(isinstance(record, CommittedHere) for record in bench.logs[CELL])
    bench.start(CELL)
    assert bench.read(1) == (1, None)


def test_a_cell_that_rests_writes_no_checkpoints() -> None:
    bench = Bench()
    let_time_pass(bench, 100)
    count = len(checkpoints(bench))
    let_time_pass(bench, 300)
    assert len(checkpoints(bench)) == count


@pytest.mark.parametrize("is_commit", [False, True])
def test_a_prepared_transaction_lives_on_in_a_checkpoint(*, is_commit: bool) -> None:
    bench = Bench(2, settings=SOON)
    bench.commit(put(9, 9))
    start = bench.begin()
    route = bench.prepare(start, put(1, 7), cell=0)
    bench.answer_oracle()
    at = bench.answer(route).timestamp  # type: ignore[union-attr]
    bench.nodes.pop(CellId(1))
    let_time_pass(bench, 200)
    first = bench.logs[CELL][0]
    assert isinstance(first, Checkpoint)
    assert first.prepared[0].transaction == start
    bench.start(CELL)
    assert bench.nodes[CELL].cell.tablets[ATOMIC].locked_count() == 1
    bench.decide(start, at if is_commit else None)
    if is_commit:
        assert bench.read(1) == (7, None)


def test_an_undelivered_decision_survives_a_truncation_of_the_log() -> None:
    bench = Bench(2, settings=SOON)
    bench.commit(put(9, 9))
    start = bench.begin()
    routes = [bench.prepare(start, put(1, 7), cell=cell) for cell in (0, 1)]
    bench.answer_oracle()
    at = max(bench.answer(route).timestamp for route in routes)  # type: ignore[union-attr]
    assert bench.answer(bench.decide(start, at)) == Committed(start, at)
    other = bench.nodes.pop(CellId(1))
    bench.in_flight.clear()
    let_time_pass(bench, 200)
    assert bench.logs[CELL][0].undelivered[0].transaction == start  # type: ignore[union-attr]
    bench.in_flight.clear()
    bench.start(CELL)
    bench.nodes[CellId(1)] = other
    let_time_pass(bench, 3)
    bench.settle()
    assert bench.read(1, cell=1) == bench.read(1) == (7, None)


def stop(bench: Bench, log_bytes: int) -> None:
    """Cleanly, with a log of that length."""
    node = bench.nodes[CELL]
    node.note_log(log_bytes, 0.1, bench.now)
    for _ in range(2):
        node.drain(bench.now)
        bench.carry_out(CELL)
    assert node.is_drained
    refused = bench.try_commit(put(1, 5))
    assert refused.kind == "unavailable"  # type: ignore[union-attr]
    node.finish(bench.now)
    bench.carry_out(CELL)


def test_a_clean_stop_leaves_little_to_read() -> None:
    bench = Bench(limits=CellLimits())
    stamps = [bench.commit(put(number, number)) for number in range(20)]
    stop(bench, DRAIN_LOG_BYTES_MIN + 1)
    assert len(bench.logs[CELL]) == 1
    bench.start(CELL)
    assert bench.read(7) == (7, None)
    outcomes = dict(bench.nodes[CELL].cell.outcomes.items())
    assert sorted(outcomes.values()) == stamps  # type: ignore[type-var]


def test_a_clean_stop_does_not_change_a_short_log() -> None:
    bench = Bench(limits=CellLimits())
    bench.commit(put(7, 7))
    before = [*bench.logs[CELL]]
    stop(bench, DRAIN_LOG_BYTES_MIN)
    assert bench.logs[CELL] == before
    bench.start(CELL)
    assert bench.read(7) == (7, None)


def test_a_restart_goes_on_from_any_checkpoint_that_a_cut_reached() -> None:
    """A crash may leave a cut half done: the log then begins with an earlier checkpoint."""
    bench = Bench(settings=SOON)
    for number in range(8):
        bench.commit(put(number, number))
        let_time_pass(bench, 16)
    let_time_pass(bench, 100)
    records, first = bench.appended[CELL], bench.logs[CELL][0]
    assert isinstance(first, Checkpoint)
    dumped = bench.nodes[CELL].cell.tablets[ATOMIC].dump()
    files = dict(bench.files[CELL])
    places = [at for at, record in enumerate(records) if isinstance(record, Checkpoint)]
    for place in [it for it in places if records[it].number <= first.number]:  # type: ignore[union-attr]
        bench.logs[CELL] = records[place:]
        bench.files[CELL] = dict(files)
        bench.start(CELL)
        assert bench.nodes[CELL].cell.tablets[ATOMIC].dump() == dumped
