"""Loads that become visible: at once or never, and whom they meet in a tablet."""

from typing import Any

import pytest

from dodona.errors import (
    DataCorrupted,
    LoadEnded,
    ProtocolChanged,
    SnapshotTooOld,
    TransactionConflict,
)
from dodona.types import (
    ASYNC_LAST_COMMITTED,
    KEY_MAX,
    KEY_MIN,
    SYNC_LAST_COMMITTED,
    CellId,
    Timestamp,
)
from dodona_tablets.core.rows.chunks.block import Block
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    Aborted,
    CommitOne,
    Committed,
    LookupReply,
    Prepared,
    RowLock,
    ScanArrow,
    ScanPage,
)
from dodona_wire.messages.data import Scan as ScanRows
from dodona_wire.messages.loads import LoadHeld, PeekLoad, SealLoad
from unit.tablets.cells import ATOMIC, REVISION, Bench, changes, key, put
from unit.tablets.loads import Loading, failure

CELL = CellId(0)


def kind_of(reply: Any) -> str:
    return failure(reply).kind


# What becomes visible


def test_all_sealed_rows_become_visible_at_the_commit_timestamp() -> None:
    bench = Bench()
    bench.commit(put(2, 20, "b"))
    load = Loading(bench)
    chunks = [load.stage({1: 1}), load.stage({2: 2, 3: 3}), load.stage({9: 9})]
    load.seal(*chunks[:2])
    reply = load.publish()
    assert isinstance(reply, Committed)
    assert [bench.read(it) for it in (1, 2, 3, 9)] == [(1, None), (2, None), (3, None), None]
    before = Timestamp(reply.timestamp - 1)
    assert [bench.read(it, before) for it in (1, 2)] == [None, (20, "b")]
    assert load.close() == LoadHeld(0)
    assert bench.read(9) is None


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_load_also_publishes_updates_and_deletions(is_restarted: bool) -> None:
    bench = Bench()
    bench.commit(put(1, 1, "one"), put(2, 2, "two"))
    updating = Loading(bench, "update")
    updating.bring({1: 10}, kind="update")
    assert isinstance(updating.publish(), Committed)
    deleting = Loading(bench, "delete")
    deleting.bring({2: None, 3: None}, kind="delete")
    assert isinstance(deleting.publish(), Committed)
    if is_restarted:
        bench.start(CELL)
        bench.assign(CELL, bench.tables)
        bench.answer_oracle()
    assert [bench.read(it) for it in (1, 2)] == [(10, "one"), None]


def test_a_publication_erases_the_rows_in_the_ranges_of_the_load() -> None:
    bench = Bench()
    bench.commit(*[put(number, number) for number in range(6)])
    load = Loading(bench)
    load.erased = ((key(1), key(5)),)
    load.bring({3: 33})
    assert load.sealed[0].deleted_count == 3
    assert isinstance(load.publish(), Committed)
    found = [bench.read(number) for number in range(6)]
    assert found == [(0, None), None, None, (33, None), None, (5, None)]


def test_a_transaction_that_is_repeated_is_answered_alike() -> None:
    bench = Bench()
    load = Loading(bench)
    load.bring({1: 1})
    start = bench.begin()
    assert load.publish(start) == load.publish(start)


def test_a_load_can_be_published_only_once() -> None:
    bench = Bench()
    load = Loading(bench)
    load.bring({1: 1})
    load.publish()
    assert kind_of(load.publish()) == SnapshotTooOld.kind


def test_a_second_seal_may_end_when_the_load_is_published_already() -> None:
    """A repeat of the request came late: it ended the process."""
    bench = Bench()
    bench.commit(put(5, 5))
    load = Loading(bench)
    load.erased = ((key(0), key(9)),)
    chunk = load.stage({1: 1})
    load.seal(chunk)
    bench.holds_jobs = True
    request = SealLoad(ATOMIC, REVISION, load.id, (chunk,), "upsert", load.since, load.erased)
    late = bench.ask(request)
    assert isinstance(load.publish(), Committed)
    bench.finish_jobs()
    assert kind_of(bench.answer(late)) == ProtocolChanged.kind
    load.close()
    assert len(bench.files[CELL]) == 2  # what was published, with the deletion


def test_a_publication_with_an_unsealed_batch_is_refused() -> None:
    bench = Bench()
    load = Loading(bench)
    load.bring({1: 1})
    other = load.stage({2: 2})
    sealed = load.sealed[0]
    load.sealed[0] = type(sealed)((*sealed.chunks, other), 2, 0)
    assert kind_of(load.publish()) == SnapshotTooOld.kind


def test_a_load_that_ended_is_not_published() -> None:
    bench = Bench()
    load = Loading(bench)
    load.bring({1: 1})
    load.close()
    assert kind_of(load.publish()) == LoadEnded.kind
    assert bench.read(1) is None


# Several cells


def test_two_cells_publish_together_or_not_at_all() -> None:
    bench = Bench(2)
    load = Loading(bench)
    for cell in (0, 1):
        load.bring({1: cell}, cell)
    start = bench.begin()
    routes = [load.prepare(start, cell) for cell in (0, 1)]
    bench.answer_oracle()
    prepared = [bench.answer(route) for route in routes]
    assert all(isinstance(it, Prepared) for it in prepared)
    at = max(it.timestamp for it in prepared)  # type: ignore[union-attr]
    bench.decide(start, at)
    bench.settle()
    assert [bench.read(1, cell=cell) for cell in (0, 1)] == [(0, None), (1, None)]


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("crashed", [0, 1])
def test_a_crash_in_between_rolls_forward_or_back(crashed: int, decided: bool) -> None:
    """Both are prepared: whoever asks is told what was decided, or that nobody can say no."""
    bench = Bench(2)
    load = Loading(bench)
    for cell in (0, 1):
        load.bring({1: cell}, cell)
    start = bench.begin()
    for cell in (0, 1) if decided else (1 - crashed,):
        load.prepare(start, cell)
    bench.answer_oracle()
    bench.in_flight.clear()
    bench.start(CellId(crashed))
    bench.assign(CellId(crashed), bench.tables)
    for _ in range(60):  # the client is gone: the cells settle it among themselves
        bench.pass_time(0.2)
        bench.settle()
    found = [bench.read(1, cell=cell) for cell in (0, 1)]
    assert found == ([(0, None), (1, None)] if decided else [None, None])
    assert not any(node.cell.transactions for node in bench.nodes.values())


def test_a_closed_load_remains_while_a_transaction_publishes_it() -> None:
    bench = Bench(2)
    load = Loading(bench)
    for cell in (0, 1):
        load.bring({1: cell}, cell)
    start = bench.begin()
    load.prepare(start, 0)
    bench.answer_oracle()
    load.close(0)
    assert kind_of(load.ask(load.request("write", {2: 2}), 0)) == LoadEnded.kind
    load.prepare(start, 1)
    bench.answer_oracle()
    bench.decide(start, bench.timestamp())
    bench.settle()
    assert bench.read(1) == (0, None)
    bench.pass_time(1)
    assert load.ask(PeekLoad(load.id), 0) == LoadHeld(0)
    assert bench.nodes[CELL].statistics().loads == 0


def test_an_aborted_publication_leaves_the_load_unchanged() -> None:
    bench = Bench(2)
    load = Loading(bench)
    for cell in (0, 1):
        load.bring({1: cell}, cell)
    start = bench.begin()
    load.prepare(start, 0)
    bench.answer_oracle()
    route = bench.decide(start, None)
    bench.settle()
    assert bench.answer(route) == Aborted(start)
    assert bench.read(1) is None
    bench.commit(put(5, 5))
    assert isinstance(load.publish(), Committed)
    assert bench.read(1) == (0, None)


# Others wait for it


def prepared(bench: Bench, load: Loading) -> Any:
    """Prepare it in cell 0 of two. → its transaction"""
    start = bench.begin()
    load.prepare(start, 0)
    bench.answer_oracle()
    return start


def published_later() -> tuple[Bench, Any]:
    bench = Bench(2)
    load = Loading(bench)
    load.erased = ((key(50), key(60)),)
    for cell in (0, 1):
        load.bring({1: 1, 9: 9}, cell)
    start = prepared(bench, load)
    load.prepare(start, 1)
    bench.answer_oracle()
    return bench, start


def test_reads_of_rows_in_a_publication_wait_and_other_reads_do_not() -> None:
    bench, start = published_later()
    waiting = [bench.lookup(number) for number in (1, 55)]
    waiting += [
        bench.ask(it(ATOMIC, REVISION, SYNC_LAST_COMMITTED, KEY_MIN, KEY_MAX, 3, 10))
        for it in (ScanRows, ScanArrow)
    ]
    assert [bench.answer(route) for route in waiting] == [None] * 4
    assert bench.answer(bench.lookup(5)) == LookupReply((None,))
    assert bench.answer(bench.lookup(1, at=ASYNC_LAST_COMMITTED)) == LookupReply((None,))
    assert bench.answer(bench.lookup(1, at=Timestamp(start - 1))) == LookupReply((None,))
    away = ScanRows(ATOMIC, REVISION, SYNC_LAST_COMMITTED, key(20), key(50), 3, 10)
    assert bench.answer(bench.ask(away)) == ScanPage((), (), None)
    bench.decide(start, bench.timestamp())
    bench.settle()
    assert bench.answer(waiting[0]) == LookupReply(((1, None),))
    assert bench.answer(waiting[2]).keys == (key(1), key(9))  # type: ignore[union-attr]


def test_a_read_below_the_prepare_timestamp_of_a_publication_does_not_wait() -> None:
    bench = Bench(2)
    load = Loading(bench)
    for cell in (0, 1):
        load.bring({1: 1}, cell)
    start = bench.begin()
    load.prepare(start, 0)
    at = bench.timestamp()  # after the start, before the oracle's answer
    waiting = bench.lookup(1, at=at)
    bench.answer_oracle()
    assert bench.answer(waiting) == LookupReply((None,))


def test_earlier_writers_lose_against_a_publication_and_later_writers_wait() -> None:
    bench = Bench(2)
    load = Loading(bench)
    for cell in (0, 1):
        load.bring({1: 1}, cell)
    early = bench.begin()
    start = prepared(bench, load)
    lost = failure(bench.answer(bench.commit_one(early, put(1, 100))))
    assert lost.kind == TransactionConflict.kind
    assert lost.attributes["key"] == {"id": 1}
    assert isinstance(bench.try_commit(put(2, 2), start=early), Failure | Committed)
    late = bench.commit_one(bench.begin(), put(1, 200))
    blind = bench.commit_blind(bench.begin(), put(1, 300))
    assert bench.answer(late) is None
    load.prepare(start, 1)
    bench.answer_oracle()
    bench.decide(start, bench.timestamp())
    bench.settle()
    assert kind_of(bench.answer(late)) == TransactionConflict.kind  # it began before the commit
    assert isinstance(bench.answer(blind), Committed)
    assert bench.read(1) == (300, None)


@pytest.mark.parametrize("lock_type", ["shared_strong", "exclusive"])
def test_a_lock_without_data_conflicts_with_a_later_publication(lock_type: Any) -> None:
    bench = Bench()
    load = Loading(bench)
    load.bring({1: 1})
    early, also = bench.begin(), bench.begin()
    load.publish()
    lock = RowLock(key(1), 1, lock_type)
    route = bench.ask(CommitOne(early, (changes(put(7, 7), locks=(lock,)),)))
    assert kind_of(bench.answer(route)) == TransactionConflict.kind
    assert isinstance(bench.try_commit(put(8, 8), start=also), Committed)


def test_a_cell_remembers_a_publication_while_older_writers_may_conflict() -> None:
    bench = Bench()
    load = Loading(bench)
    load.bring({1: 1, 2: 2})
    early, also = bench.begin(), bench.begin()
    load.publish()
    bench.commit(put(9, 9))
    bench.pass_time(30)
    refused = failure(bench.try_commit(put(1, 100), start=early))
    assert refused.kind == TransactionConflict.kind
    assert refused.attributes["table"] == "//test/full"
    assert isinstance(bench.try_commit(put(3, 3), start=also), Committed)
    assert isinstance(bench.try_commit(put(1, 100)), Committed)
    bench.pass_time(60)
    bench.answer_oracle()
    bench.pass_time(1)
    assert not bench.nodes[CELL].cell.tablets[ATOMIC].published


# It waits for others


def test_a_transaction_that_meets_a_damaged_chunk_is_refused_and_others_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether its rows are a conflict cannot be told, of this load or for the next."""
    bench = Bench()
    load, second = Loading(bench, overwrites=True), Loading(bench)
    load.bring({1: 1})
    second.bring({1: 2})
    old = bench.begin()
    assert isinstance(load.publish(), Committed)
    numbers = load.sealed[0].chunks

    def opened(chunk: Chunk, place: int) -> Block:
        raise chunk.damage("a block fails its checksum", block=place)

    monkeypatch.setattr(Chunk, "_open", opened)
    refused = failure(bench.try_commit(put(1, 3), start=old))
    assert refused.kind == DataCorrupted.kind
    assert refused.attributes["chunk"] == numbers[0]
    assert kind_of(second.publish()) == DataCorrupted.kind
    assert not bench.nodes[CELL].cell.transactions
    assert isinstance(bench.try_commit(put(7, 7)), Committed)


def test_a_publication_waits_for_prepared_rows_and_loses_against_locked_rows() -> None:
    bench = Bench(2)
    load = Loading(bench, overwrites=True)
    load.bring({1: 1})
    writer = bench.begin()
    bench.prepare(writer, put(1, 100), cell=0)
    assert kind_of(load.publish()) == TransactionConflict.kind  # locked: it may be later than we
    bench.answer_oracle()
    route = load.ask_publish()
    assert bench.answer(route) is None
    bench.prepare(writer, put(1, 100), cell=1)
    bench.answer_oracle()
    bench.decide(writer, bench.timestamp())
    bench.settle()
    assert isinstance(bench.answer(route), Committed)
    assert bench.read(1) == (1, None)


def test_two_loads_are_published_one_after_the_other() -> None:
    bench = Bench(2)
    first, second = Loading(bench, overwrites=True), Loading(bench, overwrites=True)
    for load, value in ((first, 1), (second, 2)):
        for cell in (0, 1):
            load.bring({1: value}, cell)
    start = prepared(bench, first)
    late = second.ask_publish()
    assert bench.answer(late) is None
    first.prepare(start, 1)
    bench.answer_oracle()
    bench.decide(start, bench.timestamp())
    bench.settle()
    assert isinstance(bench.answer(late), Committed)
    assert bench.read(1) == (2, None)


def test_a_publication_fails_with_a_conflict_if_a_row_stays_prepared() -> None:
    bench = Bench(2)
    load = Loading(bench, overwrites=True)
    load.bring({1: 1})
    bench.prepare(bench.begin(), put(1, 100), cell=0)
    bench.answer_oracle()
    route = load.ask_publish()
    bench.pass_time(6)
    assert kind_of(bench.answer(route)) == TransactionConflict.kind
