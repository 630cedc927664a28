"""Chunks whose rows are not on this machine: work waits for them, and old ones go."""

import pytest
from msgspec.structs import replace

from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    TIMESTAMP_COUNTER_BITS,
)
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.upkeep.caching import FETCHES_MAX, RESUMED_MAX, SLICE_PERIOD_MS
from dodona_tablets.core.upkeep.horizon import READ_S, oldest_needed_of
from dodona_wire.errors import DataCorrupted, Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    LookupVersions,
    ScanVersions,
    SplitTablet,
)
from unit.tablets.cells import ATOMIC, NON_ATOMIC, REVISION, Bench, key, put
from unit.tablets.cold import (
    CELL,
    NO_COMPACTION,
    NOW,
    READS,
    cold,
    filled,
    here,
    let_time_pass,
    limited,
    numbers,
    restart_cold,
    size_of,
    small,
)
from unit.tablets.loads import failure

# Reads


def test_a_lookup_waits_for_its_chunk_and_others_go_on() -> None:
    bench = cold((1, 2), (11, 12))
    waiting = bench.lookup(1, 2)
    assert bench.answer(waiting) is None
    assert numbers(bench.fetches) == [1]
    bench.commit(put(50, 5))
    assert bench.read(50) == (5, None)
    assert bench.nodes[CELL].is_busy
    bench.finish_fetches()
    assert bench.answer(waiting).rows == ((10, None), (20, None))  # type: ignore[union-attr]
    assert not bench.nodes[CELL].is_busy
    assert bench.read(1) == (10, None), "it is here now"


def test_an_absent_row_needs_no_chunk() -> None:
    bench = cold((1, 1_000))
    assert bench.read(5) is None
    assert bench.fetches == []


def test_reads_of_one_chunk_share_one_fetch() -> None:
    bench = cold((1, 2))
    routes = [bench.lookup(number) for number in (1, 2, 1)]
    assert numbers(bench.fetches) == [1]
    bench.finish_fetches()
    assert all(bench.answer(it) is not None for it in routes)
    assert bench.nodes[CELL].statistics().chunk_misses == 3


def test_a_read_asks_for_all_chunks_that_it_needs() -> None:
    bench = cold((1, 2), (2, 3), (3, 4), (100, 101), settings=NO_COMPACTION)
    waiting = bench.lookup(1, 2, 3)
    assert sorted(numbers(bench.fetches)) == [1, 2, 3]
    bench.finish_fetches()
    assert bench.answer(waiting) is not None


@pytest.mark.parametrize("kind", READS)
@pytest.mark.parametrize("limit", [None, 0.1], ids=["all stay", "less than one chunk"])
def test_each_kind_of_read_answers_as_if_the_rows_were_here(kind: str, limit: float | None) -> None:
    limits = CellLimits() if limit is None else small(limit)
    bench = filled((1, 2, 3), (2, 12, 13), (3, 13, 14), settings=NO_COMPACTION)
    request = replace(READS[kind], timestamp=bench.nodes[CELL].cell.latest)
    expected = bench.answer(bench.ask(request))
    assert expected is not None
    assert not isinstance(expected, Failure), expected
    bench.limits = limits
    restart_cold(bench)
    route = bench.ask(request)
    assert bench.answer(route) is None
    for _ in range(20):
        bench.finish_fetches()
    assert bench.answer(route) == expected
    assert (here(bench) == []) == (limit is not None)


def test_a_split_of_a_tablet_fetches_nothing() -> None:
    bench = cold(tuple(range(100)))
    request = SplitTablet(ATOMIC, REVISION, KEY_MIN, KEY_MAX, 10)
    assert not isinstance(bench.answer(bench.ask(request)), Failure | None)
    assert bench.fetches == []


# Failures


@pytest.mark.parametrize("kind", [Unavailable.kind, DataCorrupted.kind])
def test_a_chunk_that_can_not_be_had_is_named_and_the_cell_goes_on(kind: str) -> None:
    bench = cold((1, 2), (11, 12))
    waiting = bench.lookup(1)
    bench.finish_fetches(Failure(kind, "why", {"object_store": "s3://here"}))
    found = failure(bench.answer(waiting))
    assert (found.kind, found.message) == (kind, "why")
    assert found.attributes == {"object_store": "s3://here", "cell": CELL, "chunk": 1}
    other, again = bench.lookup(11), bench.lookup(1)
    assert sorted(numbers(bench.fetches)) == [1, 2]
    bench.finish_fetches()
    assert bench.answer(other).rows == ((110, None),)  # type: ignore[union-attr]
    assert bench.answer(again).rows == ((10, None),)  # type: ignore[union-attr]


def test_bytes_that_are_too_few_are_damage() -> None:
    bench = cold((1, 2))
    waiting = bench.lookup(1)
    bench.finish_fetches(memoryview(b"short"))
    assert failure(bench.answer(waiting)).kind == DataCorrupted.kind
    assert here(bench) == []


def test_a_wait_has_an_end_and_what_comes_later_is_kept() -> None:
    bench = cold((1, 2))
    waiting = bench.lookup(1)
    let_time_pass(bench, CellLimits().chunk_wait_ms_max // 1000 - 1)
    assert bench.answer(waiting) is None
    let_time_pass(bench, 2)
    found = failure(bench.answer(waiting))
    assert found.kind == Unavailable.kind
    assert found.attributes == {"cell": CELL, "chunk": 1}
    bench.finish_fetches()
    assert bench.read(1) == (10, None)


@pytest.mark.parametrize(
    "limits",
    [CellLimits(chunk_waits_max=2), CellLimits(chunk_waits_bytes_max=2 * len(key(1)))],
    ids=["requests", "bytes"],
)
def test_few_requests_wait_and_others_are_refused(limits: CellLimits) -> None:
    bench = cold((1, 2), limits=limits)
    waiting = [bench.lookup(1) for _ in range(3)]
    assert failure(bench.answer(waiting[2])).kind == "overloaded"
    bench.finish_fetches()
    assert [bench.answer(it) is not None for it in waiting] == [True] * 3
    assert bench.answer(bench.lookup(1)) is not None


# Chunks that go


def test_the_chunk_that_was_read_longest_ago_goes() -> None:
    bench = cold((1,), (2,), (3,), settings=NO_COMPACTION)
    bench.limits = limited(2 * size_of(bench))
    restart_cold(bench)
    bench.holds_fetches = False
    for number in (1, 2, 1):
        assert bench.read(number) == (number * 10, None)
        let_time_pass(bench, 2)
    assert bench.read(3) == (30, None)
    assert bench.evicted == [2]
    assert sorted(here(bench)) == [1, 3]


def test_the_shell_hears_in_which_order_chunks_were_read() -> None:
    bench = filled((1,), (2,), (3,), settings=NO_COMPACTION)
    bench.limits = limited(1 << 30)
    bench.start(CELL)
    for number in (3, 1):
        bench.read(number)
        let_time_pass(bench, 2)
    let_time_pass(bench, 60)
    assert [it for order in bench.touched for it in order] == [3, 1]
    let_time_pass(bench, 120)
    assert len([it for order in bench.touched for it in order]) == 2, "nothing was read since"


def test_without_a_limit_no_chunk_goes() -> None:
    bench = filled((1,), (2,), (3,))
    let_time_pass(bench, 100)
    assert bench.evicted == []
    assert bench.touched == []


def test_a_new_chunk_takes_the_place_of_an_old_one() -> None:
    bench = filled((1,), limits=small(1.5), settings=NO_COMPACTION)
    bench.commit(put(2, 20))
    let_time_pass(bench, 100)
    assert here(bench) == [2]
    assert bench.evicted == [1]
    assert bench.read(1) == (10, None)
    assert here(bench) == [1]


def test_a_chunk_is_not_let_go_between_its_arrival_and_the_read_that_waits_for_another() -> None:
    """The limit has room for one of two chunks that a read needs."""
    bench = cold((1, 3), (2, 4), limits=small(1.2), settings=NO_COMPACTION)
    waiting = bench.lookup(1, 2)
    assert sorted(numbers(bench.fetches)) == [1, 2]
    bench.finish_fetches()
    assert bench.answer(waiting).rows == ((10, None), (20, None))  # type: ignore[union-attr]
    assert len(here(bench)) == 1


def test_waiting_requests_hold_no_more_than_the_limit_and_what_one_of_them_needs() -> None:
    bench = cold((1,), (2,), (3,), (4,), limits=small(2.2), settings=NO_COMPACTION)
    routes = [bench.lookup(number) for number in (1, 2, 3, 4)]
    assert numbers(bench.fetches) == [1, 2, 3]
    bench.finish_fetches()
    assert [bench.answer(it).rows[0][0] for it in routes] == [10, 20, 30, 40]  # type: ignore[index,union-attr]


def test_blocks_that_views_keep_go_with_the_chunk() -> None:
    bench = filled((1, 2))
    chunk = bench.nodes[CELL].cell.chunks.open[1]
    assert bench.read(1) == (10, None)
    bench.nodes[CELL].cell.chunks.let_go(chunk)
    bench.holds_fetches = True
    assert bench.answer(bench.lookup(1)) is None
    bench.finish_fetches()
    assert bench.read(1) == (10, None)


def test_a_read_that_meets_more_chunks_than_have_room_has_its_turn_before_others() -> None:
    """Each of the reads needs two chunks, of which one has room. They have no chunk in common."""
    groups = [(number, 10 * number) for number in range(1, 9)]
    bench = cold(*groups, limits=small(1.2), settings=NO_COMPACTION)
    cell = bench.nodes[CELL].cell
    routes = [bench.lookup(number, 10 * (number + 1)) for number in (1, 3, 5, 7)]
    while bench.fetches:
        held = sum(cell.chunks.open[it].info.size_bytes for it in cell.chunks._holds_by_number)
        assert held <= 1.2 * 1_700 + 2 * size_of(bench)
        bench.finish_fetch()
    assert all(bench.answer(it) is not None for it in routes)
    assert not cell.chunks._holds_by_number


def test_a_read_that_needs_no_more_room_does_not_wait_for_room() -> None:
    bench = cold((1,), (2,), (3,), limits=small(0.5), settings=NO_COMPACTION)
    first, other, same = bench.lookup(1), bench.lookup(2), bench.lookup(1)
    assert numbers(bench.fetches) == [1]
    bench.finish_fetch()
    assert bench.answer(first) is not None
    assert bench.answer(same) is not None
    assert bench.answer(other) is None
    assert numbers(bench.fetches) == [2]


def test_few_chunks_come_side_by_side_and_those_that_no_request_misses_do_not_come() -> None:
    bench = cold(*[(number,) for number in range(8)], settings=NO_COMPACTION)
    routes = [bench.lookup(number) for number in range(8)]
    first = numbers(bench.fetches)
    assert len(first) == FETCHES_MAX
    let_time_pass(bench, CellLimits().chunk_wait_ms_max // 1000 + 1)
    assert all(failure(bench.answer(it)).kind == Unavailable.kind for it in routes)
    bench.finish_fetches()
    assert sorted(here(bench)) == sorted(first)
    assert bench.fetches == []


def test_requests_come_before_long_work_which_keeps_one_place() -> None:
    bench = filled((1,), (2,), (3,))
    for number in (4, 50, 60, 70, 80):
        bench.commit(put(number, number * 10))
        let_time_pass(bench, 2)
    restart_cold(bench)
    let_time_pass(bench, 100)
    under_way = numbers(bench.fetches)
    assert len(under_way) == FETCHES_MAX
    waiting = bench.lookup(80)
    bench.finish_fetch()
    assert bench.fetches[-1][1].number == 8, "the chunk of the request is next"
    bench.finish_fetches()
    assert bench.answer(waiting) is not None


def test_one_event_resumes_a_few_requests() -> None:
    bench = cold((1, 2))
    routes = [bench.lookup(1) for _ in range(RESUMED_MAX + 1)]
    (cell, info) = bench.fetches.pop()
    node = bench.nodes[CELL]
    node.handle_chunk(info.number, bench.objects[cell, info.number], bench.now)
    bench.carry_out(CELL)
    assert [bench.answer(it) is None for it in routes].count(True) == 1
    assert node.is_busy
    assert node.next_deadline() <= bench.now.instant_us + 1_000 * SLICE_PERIOD_MS
    bench.clock_us += 1_000 * SLICE_PERIOD_MS
    node.tick(bench.now)
    bench.carry_out(CELL)
    assert all(bench.answer(it) is not None for it in routes)


def test_copies_go_while_the_disk_is_full_whatever_the_limit() -> None:
    bench = cold((1,), (2,), (3,), limits=limited(1 << 30), settings=NO_COMPACTION)
    bench.holds_fetches = False
    for number in (1, 2, 3):
        bench.read(number)
        let_time_pass(bench, 1)
    assert len(here(bench)) == 3
    bench.nodes[CELL].cell.room.note_disk("the disk is full")
    let_time_pass(bench, 2)
    assert bench.evicted[:1] == [1]
    let_time_pass(bench, 10)
    assert here(bench) == []
    bench.nodes[CELL].cell.room.note_disk(None)
    assert bench.read(2) == (20, None)
    let_time_pass(bench, 10)
    assert here(bench) == [2]


def test_a_cell_without_an_object_store_lets_no_chunk_go_on_a_full_disk() -> None:
    bench = filled((1,), (2,), settings=NO_COMPACTION)
    bench.nodes[CELL].cell.room.note_disk("the disk is full")
    let_time_pass(bench, 10)
    assert len(here(bench)) == 2


def test_old_versions_stay_for_as_long_as_a_read_may_wait_for_a_chunk() -> None:
    bench = Bench(limits=limited(1 << 30))
    let_time_pass(bench, 1)
    cell = bench.nodes[CELL].cell
    waits = cell.latest - oldest_needed_of(cell, cell.tablets[NON_ATOMIC])
    assert waits >> TIMESTAMP_COUNTER_BITS == READ_S + cell.limits.chunk_wait_ms_max // 1000


def test_versions_need_only_chunks_of_their_time() -> None:
    bench = cold((1, 2), (1, 2), settings=NO_COMPACTION)
    chunks = bench.nodes[CELL].cell.chunks.open
    since = chunks[1].info.max_timestamp
    bench.ask(ScanVersions(ATOMIC, REVISION, since, NOW, KEY_MIN, KEY_MAX, 3, 100))
    bench.answer_oracle()
    assert numbers(bench.fetches) == [2]
    bench.fetches.clear()
    bench.ask(LookupVersions(ATOMIC, REVISION, since, (key(1),), 3))
    assert numbers(bench.fetches) == [1]
