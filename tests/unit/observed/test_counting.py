"""What cores count with, and what a cell, a master and a proxy count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.types import (
    CellId,
    LockType,
    Now,
    ReaderId,
    Timestamp,
    timestamp_from_unix_us,
)
from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.proxy import ProxyCore
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.counts import CONFLICTS, NodeStatistics
from dodona_wire.cores.counting import COUNTS, ClockDifference, ClockWatch, Tally
from dodona_wire.cores.effects import AskMaster
from dodona_wire.messages.catalog import GetTable
from dodona_wire.messages.data import (
    CommitOne,
    GenerateTimestamps,
    HoldSnapshot,
    Prepared,
    RowLock,
    TabletModifications,
    WriteNonAtomic,
)
from unit.tablets.cells import ATOMIC, NON_ATOMIC, REVISION, SECOND, Bench, key, put
from unit.tablets.owners import ask as ask_locks
from unit.tablets.owners import locked, new_owner, release
from unit.tablets.reading import ask_one, reader, row

# ---- with what


@given(st.lists(st.integers(0, 3_000_000)))
def test_a_value_is_counted_in_the_first_bucket_that_it_fits_in(values: list[int]) -> None:
    tally = Tally(COUNTS)
    for value in values:
        tally.add(value)
    read = tally.read()
    assert (read.count, read.total) == (len(values), sum(values))
    at_most = [sum(value <= bound for value in values) for bound in COUNTS]
    assert [sum(read.counts[: place + 1]) for place in range(len(COUNTS))] == at_most


def test_the_last_and_the_largest_difference_of_clocks_are_remembered() -> None:
    watch = ClockWatch()
    assert watch.read() == ClockDifference(None, None)
    for difference in (3, -8, 2):
        watch.note(difference)
    assert watch.read() == ClockDifference(2, 8)


# ---- a cell


def counted(bench: Bench, cell: int = 0) -> NodeStatistics:
    return bench.nodes[CellId(cell)].statistics()


def nonzero(counts: dict[str, dict[str, int]]) -> dict[tuple[str, str], int]:
    return {
        (protocol, outcome): count
        for protocol, by_outcome in counts.items()
        for outcome, count in by_outcome.items()
        if count
    }


def test_commits_are_counted_by_protocol_and_outcome_once_in_the_cluster() -> None:
    bench = Bench(2)
    bench.commit(put(1, 1))
    blind = bench.commit_blind(bench.begin(), put(2, 2))
    bench.answer_oracle()
    assert bench.answer(blind)
    for is_commit in (True, False):
        start = bench.begin()
        routes = [bench.prepare(start, put(3, 3), cell=cell) for cell in (0, 1)]
        bench.answer_oracle()
        prepared = [bench.answer(route) for route in routes]
        assert all(isinstance(it, Prepared) for it in prepared)
        at = max(it.timestamp for it in prepared if isinstance(it, Prepared))
        bench.decide(start, at if is_commit else None)
        bench.settle()
    here, there = counted(bench), counted(bench, 1)
    happy = {(it, "committed"): 1 for it in ("one_cell", "blind", "two_phase")}
    # The client gave up, but all were prepared: that is a commit.
    assert nonzero(here.commits) == {**happy, ("two_phase", "committed"): 2}
    assert nonzero(there.commits) == {}
    assert there.participations == {"committed": 2, "refused": 0}
    assert here.participations == {"committed": 0, "refused": 0}
    assert (here.committed, there.committed) == (4, 2)


def test_failed_commits_are_counted_by_reason() -> None:
    bench = Bench(2)
    early = bench.begin()
    bench.commit(put(1, 1))
    bench.try_commit(put(1, 2), start=early)  # a conflict
    bench.try_commit(put(5, 5), start=early)  # it has been refused already: said again
    start = bench.begin()
    bench.prepare(start, put(7, 7), cell=1)
    bench.decide(start, None)  # the coordinator never heard of it
    bench.settle()
    found = counted(bench)
    assert nonzero(found.commits) == {
        ("one_cell", "committed"): 1,
        ("one_cell", "conflict"): 1,
        ("two_phase", "aborted"): 1,
    }
    assert found.refused_by_kind == {"transaction_conflict": 1, "transaction_aborted": 1}
    assert counted(bench, 1).participations == {"committed": 0, "refused": 1}


def test_a_transaction_that_fails_admission_is_counted_as_refused() -> None:
    bench = Bench(limits=CellLimits(transaction_rows_max=1))
    bench.try_commit(put(1, 1), put(2, 2))
    assert nonzero(counted(bench).commits) == {("one_cell", "refused"): 1}


def conflicts(bench: Bench) -> dict[str, int]:
    return {kind: count for kind, count in counted(bench).conflicts_by_kind.items() if count}


def test_conflicts_are_counted_by_cause() -> None:
    bench = Bench()
    early = bench.begin()
    bench.commit(put(1, 1))
    bench.try_commit(put(1, 2), start=early)
    assert conflicts(bench) == {"written": 1}
    first, second = bench.begin(), bench.begin()
    bench.commit_one(first, put(2, 1))  # it has its locks, and waits for the oracle
    bench.try_commit(put(2, 2), start=second)
    assert conflicts(bench) == {"written": 1, "write_held": 1}


@pytest.mark.parametrize(
    ("is_over", "kind"), [(True, "read_locked"), (False, "read_held")], ids=["over", "held"]
)
def test_a_conflict_with_a_read_lock_is_counted_by_its_cause(is_over: bool, kind: str) -> None:
    bench = Bench()
    strong: LockType = "shared_strong"
    part = TabletModifications(ATOMIC, REVISION, (), (RowLock(key(1), 1, strong),))
    locking = CommitOne(bench.begin(), (part,))
    late = bench.begin()
    bench.ask(locking)
    if is_over:
        bench.answer_oracle()
    bench.try_commit(put(1, 1), start=late)
    assert conflicts(bench) == {kind: 1}


def test_every_kind_of_conflict_is_there_from_the_start() -> None:
    assert counted(Bench()).conflicts_by_kind == dict.fromkeys(CONFLICTS, 0)


def test_waits_and_their_end_are_counted() -> None:
    bench = Bench(2, CellLimits(blocked_wait_ms_max=1_000))
    start = bench.begin()
    bench.prepare(start, put(1, 1), cell=1)
    bench.answer_oracle()
    bench.commit_one(bench.begin(), put(1, 2), cell=1)  # it began after the other was prepared
    found = counted(bench, 1)
    assert (found.lock_waits, found.transactions_by_state["waiting"]) == (1, 1)
    assert found.transactions_by_state["prepared"] == found.transactions_prepared == 1
    bench.pass_time(1.5)
    found = counted(bench, 1)
    assert found.conflicts_by_kind["timeout"] == 1
    assert found.oldest_prepared_us == 1_500_000
    assert counted(bench).oldest_prepared_us == 0


def test_owners_of_early_locks_are_counted_by_state() -> None:
    bench = Bench()
    owner = locked(bench, 1, 2)
    ask_locks(bench, new_owner(bench), 2, 3)
    found = counted(bench)
    assert found.early_locks_by_state == {"granted": 1, "waiting": 1}
    assert found.early_grants == 1
    bench.commit_blind(bench.begin(), put(1, 1))  # it stands in line, and is no owner
    assert counted(bench).early_locks_by_state == found.early_locks_by_state
    release(bench, owner)
    found = counted(bench)
    assert found.early_locks_by_state == {"granted": 1, "waiting": 0}
    assert found.early_grants == 2


def test_conflicts_of_reads_are_counted_by_cause() -> None:
    bench = Bench(2)
    early = bench.begin()
    bench.commit(put(1, 1))
    ask_one(bench, early, row(1), writes=[put(9, 1)])
    assert conflicts(bench) == {"read_changed": 1}
    start, writer = bench.begin(), bench.begin()
    bench.commit_one(writer, put(2, 1))
    ask_one(bench, start, row(2), writes=[put(9, 1)])
    assert conflicts(bench) == {"read_changed": 1, "read_met": 1}
    bench.answer_oracle()
    late = bench.begin()
    reader(bench, row(3))
    bench.prepare(late, put(3, 1), cell=0)
    assert conflicts(bench) == {"read_changed": 1, "read_met": 1, "held_by_reader": 1}


def test_writes_without_atomicity_are_counted_by_request_and_row_and_their_clocks_seen() -> None:
    bench = Bench()
    assert counted(bench).client_clock == ClockDifference(None, None)
    latest = counted(bench).latest_timestamp
    for ahead in (2, -3, 1_000):
        stamp = Timestamp(latest + ahead * SECOND)
        bench.ask(WriteNonAtomic(NON_ATOMIC, REVISION, stamp, True, (put(1, 1), put(2, 2))))
    found = counted(bench)
    outcomes = nonzero(found.commits)
    assert outcomes == {("non_atomic", "committed"): 2, ("non_atomic", "refused"): 1}
    assert (found.non_atomic_rows, found.client_clock_refused) == (4, 1)
    assert found.client_clock == ClockDifference(1_000_000_000, 1_000_000_000)


def test_reads_are_counted_by_kind_and_readers_by_age() -> None:
    bench = Bench()
    at = bench.commit(put(1, 1))
    bench.read(1)
    bench.read(2)
    assert counted(bench).oldest_reader_us is None
    bench.ask(HoldSnapshot(ReaderId(7), at, (ATOMIC,), 60_000))
    bench.oracle += 5 * SECOND
    bench.commit(put(1, 2))
    found = counted(bench)
    assert {kind for kind, count in found.reads_by_kind.items() if count} == {"lookup"}
    assert found.reads_by_kind["lookup"] == 2
    assert found.oldest_reader_us is not None
    assert 5_000_000 <= found.oldest_reader_us < 5_000_010
    assert found.oldest_retained_us is None


def test_statistics_show_the_age_of_the_retained_timestamps() -> None:
    bench = Bench()
    bench.oracle += 100 * SECOND
    bench.commit(put(1, 1))
    cell = bench.nodes[CellId(0)].cell
    for tablet, age in ((ATOMIC, 10), (NON_ATOMIC, 30)):
        cell.tablets[tablet].retained_timestamp = Timestamp(cell.latest - age * SECOND)
    found = counted(bench)
    assert (found.newest_retained_us, found.oldest_retained_us) == (10_000_000, 30_000_000)


def test_replayed_commits_are_not_counted() -> None:
    bench = Bench(2)
    bench.commit(put(1, 1))
    bench.start(CellId(0))
    assert nonzero(counted(bench).commits) == {}
    assert counted(bench).committed == 0


def test_jobs_and_stores_are_counted() -> None:
    bench = Bench()
    bench.holds_jobs = True
    bench.commit(put(1, 1))
    node = bench.nodes[CellId(0)]
    node.cell.room.note_log(1 << 30, 0.0)  # so that draining is worth it
    node.drain(bench.now)
    bench.carry_out(CellId(0))
    found = counted(bench)
    assert found.stores_by_state["unflushed"] == 1
    bench.finish_jobs()
    found = counted(bench)
    assert found.jobs["flush"] == {"done": 1, "failed": 0}
    assert (found.stores_by_state["flushed"], found.stores_by_state["unflushed"]) == (1, 0)


def test_the_oracles_clock_is_compared_with_this_one() -> None:
    bench = Bench()
    assert counted(bench).oracle_clock == ClockDifference(None, None)
    bench.pass_time(1)
    bench.answer_oracle()
    found = counted(bench).oracle_clock
    assert found.last_us is not None
    assert found.max_us == abs(found.last_us)


def test_a_cell_is_busy_until_all_have_an_outcome() -> None:
    bench = Bench()
    node = bench.nodes[CellId(0)]
    bench.commit_one(bench.begin(), put(1, 1))
    node.refuse_writes(bench.now)
    assert node.is_busy
    late = bench.commit_one(bench.begin(), put(2, 2))
    bench.answer_oracle()
    assert not node.is_busy
    assert bench.answer(late).kind == "unavailable"


# ---- master and proxy


def test_the_master_counts_its_requests_and_reports_its_clock_difference() -> None:
    now = Now(0, 1_700_000_000_000_000)
    core = MasterCore.recover([], now)
    assert core.statistics().clock == ClockDifference(0, 0)
    for count in (1, 5, 1_000_000):
        core.handle(None, GenerateTimestamps(count), now)
    core.handle(None, GetTable("//nothing"), now)
    found = core.statistics()
    assert (found.timestamp_count, found.timestamp_request_count) == (1_000_006, 3)
    assert found.request_sizes.counts[:3] == (1, 0, 1)
    assert (found.catalog_request_count, found.catalog_refused_by_kind) == (
        1,
        {"table_not_found": 1},
    )
    assert found.newest_us >= now.unix_us
    assert found.ceiling_us == 0  # nothing is durable yet
    behind = Now(1_000_000, now.unix_us - 2_000_000)  # the clock steps back
    core.handle(None, GenerateTimestamps(1), behind)
    last_us = core.statistics().clock.last_us
    assert last_us is not None
    assert 2_000_000 <= last_us <= 2_010_000
    assert core.attendance(now).cells == {"alive": 0, "silent": 0}


def test_a_proxy_counts_batches_and_how_long_the_master_takes() -> None:
    core = ProxyCore()
    for place in range(3):
        core.handle(place, GenerateTimestamps(2), Now(0, 0))
    (asked,) = core.take_effects()
    assert isinstance(asked, AskMaster)
    first = timestamp_from_unix_us(1)
    core.handle_range(asked.token, first, Now(700, 0))
    found = core.statistics()
    assert (found.batch_count, found.batch_sizes.total, found.waiting_count) == (2, 6, 2)
    assert (found.batch_durations_us.count, found.batch_durations_us.total) == (1, 700)
