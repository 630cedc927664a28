"""Rows leave memory: when stores are rotated and flushed, and what stays for conflicts."""

import pytest

from dodona.errors import Overloaded, TransactionConflict
from dodona.types import CellId, TableSettings, Timestamp, TransactionId
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.records import StoreFlushed, StoreRotated
from dodona_tablets.core.rows.stores import Stores
from dodona_tablets.core.upkeep.flushing import SHRINK_PERIOD_MS, FlushToken
from dodona_wire.cores.effects import RunJob
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import WriteNonAtomic, Written
from unit.tablets.cells import ATOMIC, NON_ATOMIC, REVISION, SECOND, Bench, key, put

CELL = CellId(0)
SOON = TableSettings(dynamic_store_auto_flush_period=1_000)
SMALL = TableSettings(max_dynamic_store_row_count=10)


def stores(bench: Bench) -> Stores:
    return bench.nodes[CELL].cell.tablets[ATOMIC].stores


def let_time_pass(bench: Bench, seconds: float) -> None:
    for _ in range(int(seconds * 2)):
        bench.pass_time(0.5)
        bench.answer_oracle()


def records(bench: Bench) -> list[type]:
    kinds = (StoreRotated, StoreFlushed)
    return [type(record) for record in bench.appended[CELL] if isinstance(record, kinds)]


def test_rows_are_flushed_when_they_are_old_and_read_the_same() -> None:
    bench = Bench(settings=SOON)
    first = bench.commit(put(1, 1))
    second = bench.commit(put(1, 2), put(2, 2))
    let_time_pass(bench, 0.5)
    assert records(bench) == []
    let_time_pass(bench, 1)
    assert records(bench) == [StoreRotated, StoreFlushed]
    assert not stores(bench).active.rows
    for at, expected in ((first, (1, None)), (second, (2, None))):
        assert bench.read(1, at) == expected
    let_time_pass(bench, 90)
    assert stores(bench).passive == []
    for at, expected in ((first, (1, None)), (second, (2, None))):
        assert bench.read(1, at) == expected


def test_an_empty_store_is_left_alone() -> None:
    bench = Bench(settings=SOON)
    let_time_pass(bench, 5)
    assert records(bench) == []


def test_a_store_that_gets_full_is_rotated_and_a_full_one_takes_no_writes() -> None:
    bench = Bench(settings=SMALL)
    bench.holds_jobs = True
    for number in range(7):
        bench.commit(put(number, number))
    let_time_pass(bench, 0.5)
    assert [len(store) for store in stores(bench).in_memory] == [0, 7]
    for number in range(10):
        bench.commit(put(number, -number))
    reply = bench.try_commit(put(1, 1))
    assert isinstance(reply, Failure)
    assert reply.kind == Overloaded.kind
    assert "Active store is overflown" in reply.message
    let_time_pass(bench, 0.5)
    assert bench.commit(put(1, 5))
    assert bench.read(1) == (5, None)
    bench.finish_jobs()
    assert bench.read(1) == (5, None)
    assert bench.read(2) == (-2, None)


def test_writes_are_refused_before_memory_runs_out_and_taken_again_after_a_flush() -> None:
    bench = Bench(limits=CellLimits(memory_bytes_max=5_000))
    bench.holds_jobs = True
    count = 0
    while not isinstance(reply := bench.try_commit(put(count, 1, "x" * 100)), Failure):
        count += 1
        let_time_pass(bench, 0.5)
        assert count < 100
    assert reply.kind == Overloaded.kind
    assert "out of tablet memory" in reply.message
    assert bench.read(0) == (1, "x" * 100)  # reads go on
    bench.holds_jobs = False
    bench.finish_jobs()
    let_time_pass(bench, 90)
    assert bench.commit(put(count, 1, "x" * 100))


def test_conflicts_are_found_while_a_transaction_could_come_that_has_them() -> None:
    bench = Bench(settings=SOON)
    bench.commit(put(2, 1))
    early = bench.begin()
    bench.commit(put(1, 1))
    let_time_pass(bench, 30)
    assert stores(bench).passive[0].is_flushed
    reply = bench.try_commit(put(1, 2), start=early)
    assert isinstance(reply, Failure)
    assert reply.kind == TransactionConflict.kind


def test_without_atomicity_a_flush_releases_the_memory_immediately() -> None:
    bench = Bench(settings=SOON)
    write = WriteNonAtomic(NON_ATOMIC, REVISION, Timestamp(bench.oracle), True, (put(1, 5),))
    assert isinstance(bench.answer(bench.ask(write)), Written)
    let_time_pass(bench, 3)
    assert records(bench) == [StoreRotated, StoreFlushed]
    tablet = bench.nodes[CELL].cell.tablets[NON_ATOMIC]
    assert tablet.stores.memory_bytes == 0
    assert [row for row, _ in tablet.dump()] == [key(1)]


def test_without_atomicity_a_small_store_is_flushed_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One with atomicity is not: it would stay in memory beside the next."""
    monkeypatch.setattr("dodona_tablets.core.upkeep.flushing.WARM_BYTES", 5_000)
    bench = Bench()
    for number in range(30):
        bench.commit(put(number, 1, "x" * 100))
        write = WriteNonAtomic(
            NON_ATOMIC, REVISION, Timestamp(bench.oracle), True, (put(number, 1, "x" * 100),)
        )
        assert isinstance(bench.answer(bench.ask(write)), Written)
        let_time_pass(bench, 0.5)
    tablets = bench.nodes[CELL].cell.tablets
    assert len(tablets[ATOMIC].stores.in_memory) == 1
    assert len(tablets[NON_ATOMIC].stores.chunks) >= 2
    assert tablets[NON_ATOMIC].stores.memory_bytes < 5_000
    assert len(tablets[NON_ATOMIC].dump()) == 30


@pytest.mark.parametrize("is_atomic", [False, True])
@pytest.mark.parametrize("bytes_max", [0, 1 << 40])
def test_a_flush_writes_one_chunk_in_either_order_of_rows(
    monkeypatch: pytest.MonkeyPatch, bytes_max: int, *, is_atomic: bool
) -> None:
    """Those of a store that is small in the order in which they came."""
    monkeypatch.setattr("dodona_tablets.core.rows.chunks.jobs.ORDERED_BYTES_MAX", bytes_max)
    bench = Bench(settings=SOON)
    for number in (5, 3, 9, 1, 3, 7, 9, 3):
        if is_atomic:
            bench.commit(put(number, number))
        else:
            stamp = Timestamp(bench.oracle)
            write = WriteNonAtomic(NON_ATOMIC, REVISION, stamp, True, (put(number, number),))
            assert isinstance(bench.answer(bench.ask(write)), Written)
    tablet = bench.nodes[CELL].cell.tablets[ATOMIC if is_atomic else NON_ATOMIC]
    before = tablet.dump()
    assert [len(versions) for _, versions in before] == [1, 3, 1, 1, 2]
    let_time_pass(bench, 2)
    assert not tablet.active.rows
    (chunk,) = tablet.stores.chunks
    assert chunk.attached.info.row_count == 8
    let_time_pass(bench, 90)
    assert tablet.stores.passive == []
    assert tablet.dump() == before


def test_a_prepared_transaction_writes_into_the_store_that_is_active_at_its_commit() -> None:
    bench = Bench(2, settings=SOON)
    start = bench.begin()
    bench.prepare(start, put(1, 7), cell=0)
    bench.answer_oracle()
    bench.commit(put(2, 2))
    bench.nodes.pop(CellId(1))
    let_time_pass(bench, 3)
    assert records(bench) == [StoreRotated, StoreFlushed]
    at = Timestamp(bench.timestamp())
    bench.decide(TransactionId(start), at)
    assert bench.read(1) == (7, None)
    let_time_pass(bench, 3)
    bench.start(CELL)
    assert bench.read(1) == (7, None)
    assert bench.read(1, Timestamp(at - 1)) is None


def test_a_flush_that_fails_is_tried_again_and_loses_nothing() -> None:
    bench = Bench(settings=SOON)
    bench.holds_jobs = True
    bench.commit(put(1, 1))
    let_time_pass(bench, 2)
    ((cell, effect),) = bench.jobs
    assert isinstance(effect, RunJob)
    assert isinstance(effect.token, FlushToken)
    bench.jobs.clear()
    bench.nodes[cell].handle_job(effect.token, Failure(Overloaded.kind, "no space"), bench.now)
    bench.carry_out(cell)
    assert bench.nodes[cell].statistics().last_failure == "no space"
    assert bench.read(1) == (1, None)
    let_time_pass(bench, 3)
    assert bench.jobs == []  # not at once
    let_time_pass(bench, 3)
    bench.finish_jobs()
    assert records(bench) == [StoreRotated, StoreFlushed]
    assert bench.read(1) == (1, None)


def test_unmounting_flushes_and_gives_back_the_memory() -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    bench.holds_jobs = True
    bench.assign(CELL, bench.tables[1:])
    tablet = bench.nodes[CELL].cell.tablets[ATOMIC]
    assert tablet.is_mounted
    assert tablet.is_closing
    bench.finish_jobs()
    assert not tablet.is_mounted
    assert tablet.stores.memory_bytes == 0


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_restart_finds_all_rows_whether_a_flush_had_ended_or_not(*, is_flushed: bool) -> None:
    bench = Bench(settings=SOON)
    bench.commit(put(1, 1), put(2, 2))
    bench.holds_jobs = not is_flushed
    let_time_pass(bench, 2)
    bench.commit(put(1, 3))
    bench.start(CELL)
    assert bench.read(1) == (3, None)
    assert bench.read(2) == (2, None)
    assert len(bench.nodes[CELL].chunks_needed()) == is_flushed


def test_an_unneeded_store_is_released_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dodona_tablets.core.upkeep.flushing.SHRINK_ROWS", 3)
    bench = Bench(settings=SOON)
    for number in range(10):
        bench.commit(put(number, number))
    let_time_pass(bench, 2)
    memory = bench.nodes[CELL].statistics().memory_bytes
    assert memory > 0
    seen: list[int] = []
    while bench.nodes[CELL].statistics().memory_bytes:
        bench.pass_time(0.1)
        bench.oracle += SECOND
        bench.answer_oracle()
        seen.append(bench.nodes[CELL].statistics().memory_bytes)
        assert len(seen) < 2_000
    assert len(set(seen)) >= 4
    assert bench.read(9) == (9, None)


def test_unneeded_rows_are_released_as_fast_as_rows_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a million rows a second, however seldom everything else is looked at; and nothing else
    is looked at more often for it."""
    monkeypatch.setattr("dodona_tablets.core.upkeep.flushing.SHRINK_ROWS", 3)
    bench = Bench(settings=SOON)
    node, row_count = bench.nodes[CELL], 100
    for number in range(row_count):
        write = WriteNonAtomic(
            NON_ATOMIC, REVISION, Timestamp(bench.oracle), True, (put(number, number),)
        )
        assert isinstance(bench.answer(bench.ask(write)), Written)
    bench.holds_jobs = True
    let_time_pass(bench, 1.5)
    bench.finish_jobs()
    while not node.cell.tablets[NON_ATOMIC].stores.chunks:
        bench.pass_time(0.1)
    looked_at_us: list[int] = []
    monkeypatch.setattr(
        node._mounting, "tick", lambda: looked_at_us.append(node.cell.now.instant_us)
    )
    bench.pass_time(0.1)  # by which it is found that nobody needs the store
    began_us = bench.clock_us
    slices = 0
    while node._flushing.shrink_at_us() is not None:
        bench.clock_us = max(node.next_deadline(), bench.clock_us)
        node.tick(bench.now)
        slices += 1
        assert slices < 1_000
    assert slices >= row_count // 3
    assert bench.clock_us - began_us <= (row_count // 3 + 2) * SHRINK_PERIOD_MS * 1000
    assert 1 <= len(looked_at_us) <= (bench.clock_us - began_us) // 100_000 + 2
