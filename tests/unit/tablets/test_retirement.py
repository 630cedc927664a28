"""Old versions go: what is logged, how much at a time, and what stays."""

import pytest

from dodona._core.messages import CommitOne, Failure, RowLock
from dodona.types import CellId, TableSettings, Timestamp
from dodona_tablets.core import retention, retirement
from dodona_tablets.core.records import Record, VersionsRetired
from unit.tablets.cells import ATOMIC, SECOND, Bench, changes, delete, key, put

CELL = CellId(0)
AT_ONCE = TableSettings(min_data_ttl=0, max_data_ttl=0)
MANY = 50


def let_time_pass(bench: Bench, seconds: int) -> None:
    for _ in range(seconds):
        bench.pass_time(1)
        bench.answer_oracle()


def retired(bench: Bench) -> list[VersionsRetired]:
    records: list[Record] = bench.logs[CELL]
    return [record for record in records if isinstance(record, VersionsRetired)]


def test_versions_stay_for_min_data_ttl_and_then_go() -> None:
    bench = Bench(settings=TableSettings(min_data_ttl=200_000, max_data_ttl=200_000))
    first = bench.commit(put(1, 1))
    bench.commit(put(1, 2))
    let_time_pass(bench, 190)
    assert not retired(bench)
    assert bench.read(1, first) == (1, None)
    let_time_pass(bench, 50)
    (record,) = retired(bench)
    assert record.keys == (key(1),)
    assert bench.nodes[CELL].cell.tablets[ATOMIC].retained_timestamp == record.retained
    reply = bench.answer(bench.lookup(1, at=first))
    assert isinstance(reply, Failure)
    assert reply.attributes["retained_timestamp"] == record.retained
    assert bench.read(1, record.retained) == bench.read(1) == (2, None)


def test_a_restart_refuses_the_same_reads() -> None:
    bench = Bench(settings=AT_ONCE)
    first = bench.commit(put(1, 1))
    bench.commit(put(1, 2))
    let_time_pass(bench, 150)
    dumped = bench.nodes[CELL].cell.tablets[ATOMIC].dump()
    assert len(dumped[0][1]) == 1
    bench.start(CELL)
    assert bench.nodes[CELL].cell.tablets[ATOMIC].dump() == dumped
    assert isinstance(bench.answer(bench.lookup(1, at=first)), Failure)


def test_a_table_without_anything_old_is_left_alone_and_keeps_its_history() -> None:
    bench = Bench(settings=AT_ONCE)
    first = bench.commit(put(1, 1))
    let_time_pass(bench, 150)
    assert not retired(bench)
    assert bench.read(1, Timestamp(first - 1)) is None


def test_rows_that_nobody_could_tell_from_none_are_forgotten() -> None:
    bench = Bench(settings=AT_ONCE)
    bench.commit(put(1, 1), put(2, 2))
    bench.commit(delete(1))
    locked = bench.begin()
    lock = RowLock(key(3), 1, "shared_strong")
    bench.ask(CommitOne(locked, (changes(locks=(lock,)),)))
    bench.answer_oracle()
    store = bench.nodes[CELL].cell.tablets[ATOMIC].store
    assert len(store) == 3
    let_time_pass(bench, 60)
    assert len(store) == 3  # the lock may still stop somebody
    let_time_pass(bench, 90)
    assert list(store.rows) == [key(2)]
    store.check()


def test_a_transaction_that_stays_prepared_holds_everything_back() -> None:
    bench = Bench(2, settings=AT_ONCE)
    for value in (1, 2):
        bench.commit(put(1, value))
    bench.timestamp()
    start = bench.begin()
    bench.prepare(start, put(2, 2), cell=0)
    bench.answer_oracle()
    for value in (3, 4):
        bench.commit(put(1, value))
    bench.nodes.pop(CellId(1))  # the coordinator can't recover it
    let_time_pass(bench, 150)
    (record,) = retired(bench)
    assert record.retained < start
    (versions,) = [it for row, it in bench.nodes[CELL].cell.tablets[ATOMIC].dump() if row == key(1)]
    assert [version[2][0] for version in versions] == [2, 3, 4]


def test_a_slice_is_bounded_in_rows_and_in_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retirement, "SLICE_ROWS_MAX", 10)
    monkeypatch.setattr(retirement, "SLICE_VERSIONS_MAX", 20)
    monkeypatch.setattr(retirement, "STEP_VERSIONS_MAX", 7)
    monkeypatch.setattr(retention, "STEP_VERSIONS_MAX", 7)
    bench = Bench(settings=AT_ONCE)
    for value in range(MANY):
        bench.commit(put(0, value))
    for number in range(1, MANY):
        bench.commit(put(number, 1))
        bench.commit(put(number, 2))
    let_time_pass(bench, 150)
    assert all(len(record.keys) <= 10 for record in retired(bench))
    assert len(retired(bench)) > MANY * 2 // 20
    tablet = bench.nodes[CELL].cell.tablets[ATOMIC]
    assert [len(versions) for _, versions in tablet.dump()] == [1] * MANY
    assert bench.read(0) == (MANY - 1, None)
    bench.start(CELL)
    assert [len(versions) for _, versions in bench.nodes[CELL].cell.tablets[ATOMIC].dump()] == (
        [1] * MANY
    )


def test_the_retained_timestamp_leaves_room_for_every_transaction() -> None:
    bench = Bench(settings=AT_ONCE)
    for value in range(3):
        bench.commit(put(1, value))
    while not retired(bench):  # at that instant, and not long after, it has to be so far behind
        let_time_pass(bench, 1)
    assert retired(bench)[0].retained <= bench.oracle - 75 * SECOND
