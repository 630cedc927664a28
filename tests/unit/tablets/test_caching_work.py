"""Chunks that are not on this machine: compactions, other cells, loads and writers need them."""

import pyarrow as pa
import pytest
from msgspec.structs import replace

from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    CellId,
    LoadMode,
    Revision,
    TabletId,
)
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.records import ChunksCompacted
from dodona_wire.errors import Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.messages.cells import AskRows, TellRows
from dodona_wire.messages.data import (
    ArrowPage,
    CommitOne,
    Committed,
    RowLock,
)
from unit.tablets.cells import ATOMIC, Bench, assignment, changes, key, put
from unit.tablets.cold import (
    CELL,
    NO_COMPACTION,
    READS,
    SOON,
    cold,
    filled,
    here,
    let_go,
    let_time_pass,
    limited,
    numbers,
    restart_cold,
    size_of,
    small,
)
from unit.tablets.loads import Loading, failure

# Compaction


def compactions(bench: Bench) -> list[ChunksCompacted]:
    return [it for it in bench.appended[CELL] if isinstance(it, ChunksCompacted)]


def test_a_compaction_fetches_its_chunks_first() -> None:
    bench = filled((1,), (2,), (3,), settings=SOON)
    bench.commit(put(4, 40))
    let_time_pass(bench, 3)
    restart_cold(bench)
    let_time_pass(bench, 100)
    assert sorted(numbers(bench.fetches)) == [1, 2, 3, 4]
    assert compactions(bench) == []
    bench.finish_fetches()
    let_time_pass(bench, 10)
    (record,) = compactions(bench)
    assert len(record.removed) == 4
    assert [bench.read(it) for it in (1, 2, 3, 4)] == [(it * 10, None) for it in (1, 2, 3, 4)]
    assert here(bench) == [5]


def test_a_compaction_whose_chunk_can_not_be_had_is_tried_again() -> None:
    bench = filled((1,), (2,), (3,), settings=SOON)
    bench.commit(put(4, 40))
    let_time_pass(bench, 3)
    restart_cold(bench)
    let_time_pass(bench, 100)
    bench.finish_fetches(Failure(Unavailable.kind, "away"))
    assert bench.nodes[CELL].statistics().last_failure == "away"
    let_time_pass(bench, 60)
    assert sorted(numbers(bench.fetches)) == [1, 2, 3, 4]
    bench.finish_fetches()
    let_time_pass(bench, 10)
    assert len(compactions(bench)) == 1


def test_chunks_of_a_compaction_stay_until_it_ends() -> None:
    bench = filled((1,), (2,), (3,), settings=SOON, limits=small(1))
    bench.holds_jobs = True
    bench.commit(put(4, 40))
    let_time_pass(bench, 3)
    bench.finish_jobs()
    let_time_pass(bench, 100)
    assert len(bench.jobs) == 1
    assert here(bench) == [1, 2, 3, 4]
    bench.finish_jobs()
    let_time_pass(bench, 10)
    assert len(here(bench)) <= 1
    assert bench.read(3) == (30, None)


def test_a_compaction_pushes_no_other_chunk_out() -> None:
    """Its old chunks count no more when the limit is looked at."""
    bench = filled((50,), (1,), (2,), (3,), settings=NO_COMPACTION)
    bench.limits = limited(int(4.5 * size_of(bench)))
    bench.start(CELL)
    bench.assign(CELL, [replace(assignment(ATOMIC, "full", Revision(2)), settings=SOON)])
    let_time_pass(bench, 120)
    assert len(compactions(bench)) == 1
    assert bench.evicted == []


def test_a_chunk_that_was_replaced_while_it_was_fetched_is_not_kept() -> None:
    bench = filled((1,), (2,), (3,), settings=SOON)
    bench.commit(put(4, 40))
    let_time_pass(bench, 3)
    restart_cold(bench)
    waiting = bench.lookup(1)
    (fetched,) = numbers(bench.fetches)
    bench.fetches.clear()
    cell = bench.nodes[CELL].cell
    del cell.chunks.open[1]  # as if its tablet was dropped
    bench.nodes[CELL].handle_chunk(1, bench.objects[CELL, 1], bench.now)
    bench.carry_out(CELL)
    assert bench.evicted == [fetched]
    assert bench.nodes[CELL].cell.chunks.here_bytes == 0
    assert failure(bench.answer(waiting)).kind == Unavailable.kind


# Other cells


def test_rows_are_told_to_another_cell_once_the_chunk_is_here() -> None:
    bench = filled((1, 2))
    closed = replace(assignment(ATOMIC, "full", Revision(2)), mode="unmounted")
    bench.assign(CELL, [closed])
    restart_cold(bench)
    question = AskRows(CellId(5), ATOMIC, TabletId(77), KEY_MIN, KEY_MAX)
    bench.nodes[CELL].handle_cell_message(question, bench.now)
    bench.carry_out(CELL)
    assert bench.in_flight == []
    assert numbers(bench.fetches) == [1]
    bench.finish_fetches()
    ((target, page),) = bench.in_flight
    assert (target, type(page)) == (CellId(5), TellRows)
    assert [it for it, _ in page.rows] == [key(1), key(2)]


def test_a_question_that_is_repeated_waits_once() -> None:
    bench = filled((1, 2))
    closed = replace(assignment(ATOMIC, "full", Revision(2)), mode="unmounted")
    bench.assign(CELL, [closed])
    restart_cold(bench)
    question = AskRows(CellId(5), ATOMIC, TabletId(77), KEY_MIN, KEY_MAX)
    for _ in range(3):
        bench.nodes[CELL].handle_cell_message(question, bench.now)
        bench.carry_out(CELL)
        let_time_pass(bench, 10)
    assert numbers(bench.fetches) == [1]
    bench.finish_fetches()
    ((_, page),) = bench.in_flight
    assert type(page) is TellRows
    let_go(bench)
    bench.in_flight.clear()
    for result in (Failure(Unavailable.kind, "away"), None):
        bench.nodes[CELL].handle_cell_message(question, bench.now)
        bench.carry_out(CELL)
        assert bench.in_flight == []
        bench.finish_fetches(result)
    assert len(bench.in_flight) == 1, "it is asked again after a failure"
    assert not bench.nodes[CELL].cell.chunks._holds_by_number


# Loads


def staged(bench: Bench, mode: LoadMode = "upsert") -> tuple[Loading, int]:
    load = Loading(bench, mode)
    return load, load.stage({1: 5, 2: 6})


@pytest.mark.parametrize(
    ("mode", "needed"),
    [("upsert", []), ("insert", [1, 4]), ("update", [1, 4]), ("delete", [])],
)
def test_a_seal_fetches_the_chunks_that_it_must_compare(mode: LoadMode, needed: list[int]) -> None:
    """Of older rows, only the presence matters, and only in some modes."""
    bench = filled((2, 9), (20, 21), (30, 31), settings=NO_COMPACTION)
    load = Loading(bench, mode)
    chunk = load.stage({2: 6, 3: 5}, kind="delete" if mode == "delete" else "write")
    restart_cold(bench)
    route = bench.ask(load.seal_request(chunk))
    assert sorted(numbers(bench.fetches)) == needed
    bench.finish_fetches()
    assert bench.answer(route) is not None


def test_a_seal_is_refused_if_its_load_ends_while_chunks_come() -> None:
    bench = filled((1, 9))
    load, chunk = staged(bench, "update")
    restart_cold(bench)
    route = bench.ask(load.seal_request(chunk))
    fetches, bench.fetches = bench.fetches, []
    load.close()
    bench.fetches = fetches
    bench.finish_fetches()
    assert failure(bench.answer(route)).kind == Unavailable.kind
    assert not bench.nodes[CELL].cell.chunks._holds_by_number


def test_a_seal_whose_chunk_can_not_be_had_fails_and_may_be_repeated() -> None:
    bench = filled((1, 9))
    load, chunk = staged(bench, "insert")
    restart_cold(bench)
    route = bench.ask(load.seal_request(chunk))
    bench.finish_fetches(Failure(Unavailable.kind, "away"))
    assert failure(bench.answer(route)).kind == Unavailable.kind
    bench.holds_fetches = False
    found = failure(load.try_seal(chunk))
    assert "is there" in found.message, "the rows were compared"


def test_a_writer_waits_for_the_chunk_of_a_recent_load() -> None:
    bench = Bench()
    older = bench.begin()
    load, chunk = staged(bench)
    load.seal(chunk)
    load.publish()
    let_go(bench)
    meets, misses = bench.commit_one(older, put(2, 1)), bench.begin()
    assert bench.answer(meets) is None
    assert numbers(bench.fetches) == [chunk]
    free = bench.commit_one(misses, put(1, 3))  # it began after the load
    bench.answer_oracle()
    assert isinstance(bench.answer(free), Committed)
    bench.finish_fetches()
    assert failure(bench.answer(meets)).kind == "transaction_conflict"


def test_a_writer_is_refused_if_the_chunk_can_not_be_had() -> None:
    bench = Bench()
    older, other = bench.begin(), bench.begin()
    load, chunk = staged(bench)
    load.seal(chunk)
    load.publish()
    let_go(bench)
    waiting = bench.commit_one(older, put(2, 1))
    bench.finish_fetches(Failure(Unavailable.kind, "away"))
    found = failure(bench.answer(waiting))
    assert found.kind == Unavailable.kind
    assert found.attributes["is_refused"]
    assert found.attributes["chunk"] == chunk
    late = bench.commit_one(other, put(2, 1))
    let_time_pass(bench, CellLimits().blocked_wait_ms_max // 1000 + 2)
    found = failure(bench.answer(late))
    assert found.kind == Unavailable.kind
    assert found.attributes == {
        "start_timestamp": other,
        "cell": CELL,
        "chunk": chunk,
        "is_refused": True,
    }
    bench.finish_fetches()
    assert not bench.nodes[CELL].cell.chunks.waiting_writers
    assert not bench.nodes[CELL].cell.transactions


def test_a_lock_that_depends_on_a_row_waits_for_its_chunk() -> None:
    """A lock of one group takes all groups if the row is absent."""
    bench = cold((1, 2))
    lock = RowLock(key(1), 2, "shared_strong")
    route = bench.ask(CommitOne(bench.begin(), (changes(put(50, 5), locks=(lock,)),)))
    assert bench.answer(route) is None
    assert numbers(bench.fetches) == [1]
    let_time_pass(bench, 3)  # the cell looks meanwhile what it waits for
    bench.finish_fetches()
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)


def test_arrow_answers_do_not_depend_on_a_map() -> None:
    """An answer that was made keeps its bytes when its chunk goes."""
    bench = filled((1, 2))
    route = bench.ask(READS["scan_arrow"])
    let_go(bench)
    page = bench.answer(route)
    assert isinstance(page, ArrowPage)
    assert pa.ipc.open_stream(page.batch).read_all().num_rows == 2
