"""Versions between two timestamps, as a cell gives them: pages, waiting, and stamps to come."""

from typing import Any

import pyarrow as pa
import pytest

from dodona.schema import TableSchema
from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    CellId,
    Key,
    TabletId,
    Timestamp,
    Write,
)
from dodona_tablets.core.rows.chunks.block import Block
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.tablet import changes
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    ArrowPage,
    CountVersions,
    Lookup,
    ScanVersions,
    WriteArrow,
    WriteNonAtomic,
    Written,
)
from dodona_wire.rows.arrow import arrow_schema, stream_of, table_of
from unit.tablets.cells import (
    ATOMIC,
    NON_ATOMIC,
    REVISION,
    SECOND,
    Bench,
    delete,
    key,
    put,
    update,
)

Seen = tuple[int, int, int]
"""Of a version: the row's number, the timestamp, the mask."""


def kind(reply: object) -> str:
    assert isinstance(reply, Failure), reply
    return reply.kind


def ask(
    bench: Bench,
    since: int = 0,
    at: int | None = None,
    lower: Key = KEY_MIN,
    upper: Key = KEY_MAX,
    count: int = 1_000,
    lower_at: int = 0,
    tablet: TabletId = ATOMIC,
    mask: int = 3,
) -> object:
    until = Timestamp(bench.timestamp() if at is None else at)
    ends = lower, upper, mask, count, Timestamp(lower_at)
    return bench.ask(ScanVersions(tablet, REVISION, Timestamp(since), until, *ends))


def page(bench: Bench, route: object) -> ArrowPage:
    bench.answer_oracle()
    reply = bench.answer(route)
    assert isinstance(reply, ArrowPage), reply
    return reply


def rows_of(answer: ArrowPage) -> list[Seen]:
    rows = table_of(answer.batch).to_pylist()
    assert len(rows) == answer.row_count
    return [(it["id"], it["$timestamp"], it["$mask"]) for it in rows]


def seen(bench: Bench, *arguments: Any, **options: Any) -> list[Seen]:
    """Of one page that is all."""
    answer = page(bench, ask(bench, *arguments, **options))
    assert answer.resume is None
    return rows_of(answer)


def counted(
    bench: Bench, since: int, at: int | None = None, tablet: TabletId = ATOMIC
) -> list[tuple[int, int]]:
    until = Timestamp(bench.timestamp() if at is None else at)
    request = CountVersions(tablet, REVISION, Timestamp(since), until, KEY_MIN, KEY_MAX)
    answer = page(bench, bench.ask(request))
    assert answer.resume is None
    rows = table_of(answer.batch).to_pylist()
    return [(row["$timestamp"], row["$count"]) for row in rows]


def write(bench: Bench, *writes: Write, behind_s: int = 0) -> Timestamp:
    stamp = Timestamp(bench.nodes[CellId(0)].cell.latest - behind_s * SECOND)
    reply = bench.answer(bench.ask(WriteNonAtomic(NON_ATOMIC, REVISION, stamp, True, writes)))
    assert isinstance(reply, Written), reply
    return reply.timestamp


def flush(bench: Bench) -> None:
    """All rows into chunks, and the stores that they came from out of memory."""
    bench.pass_time(1)
    node = bench.nodes[CellId(0)]
    for tablet in node.cell.tablets.values():
        if tablet.active.rows:
            node._flushing.rotate(tablet)
    bench.pass_time(100)
    bench.answer_oracle()
    bench.pass_time(1)
    bench.answer_oracle()
    stores = node.cell.tablets[ATOMIC].stores
    assert not stores.passive
    assert not stores.active.rows


# ---- what is given


def test_each_change_has_a_timestamp_and_columns_and_the_newest_of_a_row_is_first() -> None:
    bench = Bench()
    first = bench.commit(put(1, 1, "x"), put(2, 2, "y"))
    second = bench.commit(update(1, b="z"))
    gone = bench.commit(delete(1))
    versions = [(1, gone, 0), (1, second, 2), (1, first, 3), (2, first, 3)]
    assert seen(bench) == versions
    assert seen(bench, first) == versions[:2]
    assert seen(bench, first, second) == versions[1:2]
    assert seen(bench, second, second) == []
    table = table_of(page(bench, ask(bench)).batch)
    assert table.column("a").to_pylist() == [None, None, 1, 2]
    assert table.column("b").to_pylist() == [None, "z", "x", "y"]
    assert table.column_names == ["id", "a", "b", "$timestamp", "$mask"]


def test_columns_that_are_not_asked_for_are_left_out_and_their_versions_are_not() -> None:
    bench = Bench()
    bench.commit(put(1, 1, "x"))
    bench.commit(update(1, b="z"))
    answer = page(bench, ask(bench, mask=1))
    table = table_of(answer.batch)
    assert table.column_names == ["id", "a", "$timestamp", "$mask"]
    assert table.column("a").to_pylist() == [None, 1]
    assert table.column("$mask").to_pylist() == [2, 3]


def test_required_columns_are_null_in_deletions() -> None:
    schema = TableSchema.parse(
        [
            {"name": "id", "type": "int64", "sort_order": "ascending", "required": True},
            {"name": "a", "type": "int64", "required": True},
        ]
    )
    bench = Bench(schema=schema)
    bench.commit((key(1), 1, (7,)))
    bench.commit(delete(1))
    table = table_of(page(bench, ask(bench, mask=1)).batch)
    assert table.column("a").to_pylist() == [None, 7]
    assert table.schema.field("a").nullable
    assert not table.schema.field("id").nullable


def test_changes_of_aggregates_are_marked_for_any_choice_of_columns() -> None:
    schema = TableSchema.parse(
        [
            {"name": "id", "type": "int64", "sort_order": "ascending"},
            {"name": "a", "type": "int64"},
            {"name": "sum", "type": "int64", "aggregate": "sum"},
        ]
    )
    bench = Bench(schema=schema)
    write = (key(1), 3, (7, 5))
    stamp = Timestamp(bench.oracle - 1)
    plain = WriteNonAtomic(NON_ATOMIC, REVISION, stamp, True, (write,))
    change = WriteNonAtomic(NON_ATOMIC, REVISION, stamp, True, (write,), {key(1): (2, 0)})
    for request in (plain, change):
        assert isinstance(bench.answer(bench.ask(request)), Written)
    for mask in (1, 2, 3):
        for _ in range(2):
            table = table_of(page(bench, ask(bench, mask=mask, tablet=NON_ATOMIC)).batch)
            assert table.column("$delta").to_pylist() == [2, 0]
            flush(bench)


def test_versions_in_chunks_and_stores_are_merged() -> None:
    bench = Bench()
    first = bench.commit(put(1, 1), put(2, 2), put(3, 3))
    flush(bench)
    second = bench.commit(put(2, 4))
    flush(bench)
    third = bench.commit(delete(2), put(3, 5))
    assert len(bench.nodes[CellId(0)].cell.tablets[ATOMIC].stores.layers) == 2
    everything = [
        (1, first, 3),
        (2, third, 0),
        (2, second, 3),
        (2, first, 3),
        (3, third, 3),
        (3, first, 3),
    ]
    assert seen(bench, 1) == everything
    assert seen(bench, first) == [it for it in everything if it[1] > first]
    assert seen(bench, first, second) == [(2, second, 3)]
    assert seen(bench, 0, first) == [it for it in everything if it[1] == first]


def test_the_feed_does_not_read_chunks_blocks_or_stores_without_newer_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a chunk, nor a block of one, nor a store."""
    monkeypatch.setattr("dodona_tablets.core.rows.chunks.writing.BLOCK_ROWS_MAX", 10)
    bench = Bench()
    bench.commit(*[put(number, number) for number in range(100)])
    bench.commit(put(45, 0))
    after = bench.commit(put(46, 0))
    flush(bench)
    opened: list[int] = []
    open_block = Chunk.block

    def block(chunk: Chunk, place: int) -> Block:
        opened.append(place)
        return open_block(chunk, place)

    monkeypatch.setattr(Chunk, "block", block)
    assert seen(bench, after - 1) == [(46, after, 3)]
    assert 0 < len(opened) <= 2
    del opened[:]
    newest = bench.commit(put(7, 7))
    assert seen(bench, after) == [(7, newest, 3)]
    assert seen(bench, newest) == []
    assert counted(bench, after) == [(newest, 1)]
    assert opened == []
    store = bench.nodes[CellId(0)].cell.tablets[ATOMIC].active
    monkeypatch.setattr(store, "newer", None)
    assert seen(bench, newest) == []
    assert counted(bench, newest) == []


# ---- pages


def pages(bench: Bench, count: int, since: int = 0) -> list[list[Seen]]:
    """All of them, by two rows or how many there are."""
    found: list[list[Seen]] = []
    lower, lower_at, at = KEY_MIN, 0, bench.timestamp()
    while True:
        answer = page(bench, ask(bench, since, at, lower, count=count, lower_at=lower_at))
        found.append(rows_of(answer))
        if answer.resume is None:
            return found
        assert (answer.resume, -answer.resume_timestamp) > (lower, -lower_at or 1 - SECOND**3)
        lower, lower_at = answer.resume, answer.resume_timestamp


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 100])
def test_a_page_may_end_within_a_row(count: int, is_flushed: bool) -> None:
    bench = Bench()
    expected: list[Seen] = []
    for number in (1, 2, 3):
        stamps = [bench.commit(put(number, at)) for at in range(3)]
        expected += [(number, stamp, 3) for stamp in reversed(stamps)]
    if is_flushed:
        flush(bench)
    found = pages(bench, count)
    assert [it for rows in found for it in rows] == expected
    assert all(len(rows) <= count for rows in found)
    assert len(found) >= len(expected) / count


def test_a_page_examines_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not they have changed: everybody else waits meanwhile."""
    monkeypatch.setattr(changes, "WALKED_KEYS_MAX", 10)
    bench = Bench()
    old = bench.commit(*[put(number, number) for number in range(35)])
    new = bench.commit(put(32, 0))
    assert pages(bench, 100, old) == [[], [], [], [(32, new, 3)]]
    at = bench.timestamp()
    request = CountVersions(ATOMIC, REVISION, old, at, KEY_MIN, KEY_MAX)
    assert page(bench, bench.ask(request)).resume == key(10)


def test_a_page_examines_a_bounded_number_of_versions_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dodona_tablets.core.rows.chunks.writing.BLOCK_ROWS_MAX", 10)
    monkeypatch.setattr(changes, "LOOKED_AT_MAX", 20)
    bench = Bench()
    first = bench.commit(*[put(number, number) for number in range(100)])
    second = bench.commit(*[put(number, 1) for number in range(0, 100, 30)])
    flush(bench)
    found = pages(bench, 1_000, first)
    assert [it for rows in found for it in rows] == [(at, second, 3) for at in (0, 30, 60, 90)]
    assert 1 < len(found) <= 4  # blocks without a newer version are not counted
    third = bench.commit(put(1, 2), put(95, 2))
    found = pages(bench, 1_000, first)
    expected = [(0, second, 3), (1, third, 3), *[(at, second, 3) for at in (30, 60, 90)]]
    assert [it for rows in found for it in rows] == [*expected, (95, third, 3)]
    assert sum(sum(count for _, count in counts) for counts in count_pages(bench, first)) == 6


def count_pages(bench: Bench, since: Timestamp) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = []
    lower: Key | None = KEY_MIN
    while lower is not None:
        request = CountVersions(ATOMIC, REVISION, since, bench.timestamp(), lower, KEY_MAX)
        answer = page(bench, bench.ask(request))
        rows = table_of(answer.batch).to_pylist()
        found.append([(row["$timestamp"], row["$count"]) for row in rows])
        assert answer.resume is None or answer.resume > lower
        lower = answer.resume
    return found


def test_a_page_of_changes_has_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "PAGE_BYTES_MAX", 10_000)
    bench = Bench()
    for _ in range(4):
        bench.commit(*[put(number, number, "x" * 1_000) for number in range(10)])
    found = pages(bench, 1_000)
    assert sum(map(len, found)) == 40
    assert all(0 < len(rows) <= 10 for rows in found)


# ---- how many


def test_versions_are_counted_by_time_wherever_they_are() -> None:
    bench = Bench()
    first = bench.commit(put(1, 1), put(2, 2))
    flush(bench)
    second = bench.commit(put(1, 3), delete(2), put(3, 1))
    third = bench.commit(put(1, 3))
    assert counted(bench, 0) == [(first, 2), (second, 3), (third, 1)]
    assert counted(bench, first) == [(second, 3), (third, 1)]
    assert counted(bench, first, second) == [(second, 3)]
    assert counted(bench, third) == []


def test_many_timestamps_are_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "COUNT_STEPS_MAX", 4)
    bench = Bench()
    stamps = [bench.commit(put(number, 1)) for number in range(20)]
    assert counted(bench, 0) == [(stamps[at], 5) for at in (4, 9, 14, 19)]
    big = bench.commit(*[put(number, 2) for number in range(100)])
    assert counted(bench, 0)[-1][0] == big
    assert sum(count for _, count in counted(bench, 0)) == 120


# ---- what it waits for, and what is refused


def test_the_feed_waits_for_a_writer_of_any_column_that_may_commit_below_its_end() -> None:
    bench = Bench(2)
    before = bench.timestamp()
    start = bench.begin()
    route = bench.prepare(start, update(1, b="x"), cell=0)
    bench.answer_oracle()
    at = bench.answer(route).timestamp  # type: ignore[union-attr]
    waiting = ask(bench, before, mask=1)
    bench.answer_oracle()
    assert bench.answer(waiting) is None
    assert seen(bench, 0, at - 1) == []
    assert seen(bench, before, lower=key(2)) == []
    bench.decide(start, at)
    bench.settle()
    assert rows_of(page(bench, waiting)) == [(1, at, 2)]


def test_a_page_that_ends_within_a_row_waits_for_the_writer_of_the_row() -> None:
    bench = Bench(2)
    for at in range(3):
        bench.commit(put(1, at))
    bench.prepare(bench.begin(), put(1, 9), cell=0)
    bench.answer_oracle()
    waiting = ask(bench, count=2)
    bench.answer_oracle()
    assert bench.answer(waiting) is None


def test_changes_since_an_unretained_timestamp_are_refused_except_since_null() -> None:
    bench = Bench()
    first = bench.commit(put(1, 1))
    second = bench.commit(put(1, 2))
    bench.nodes[CellId(0)].cell.tablets[ATOMIC].retained_timestamp = second
    for since in (1, first, second - 1):
        assert kind(bench.answer(ask(bench, since, second))) == "snapshot_too_old"
        counting = CountVersions(ATOMIC, REVISION, Timestamp(since), second, KEY_MIN, KEY_MAX)
        assert kind(bench.answer(bench.ask(counting))) == "snapshot_too_old"
    reply = bench.answer(ask(bench, first, second))
    assert reply.attributes["timestamp"] == first  # type: ignore[union-attr]
    assert kind(bench.answer(ask(bench, 0, first))) == "snapshot_too_old"
    assert seen(bench, second) == []
    assert seen(bench, NULL_TIMESTAMP) == [(1, second, 3), (1, first, 3)]


def test_what_is_no_range_of_time_is_refused() -> None:
    bench = Bench()
    at = bench.commit(put(1, 1))
    assert kind(bench.answer(ask(bench, at + 1, at))) == "invalid_request"
    future = ask(bench, at, bench.oracle + SECOND)
    bench.answer_oracle()
    assert kind(bench.answer(future)) == "invalid_request"


# ---- without atomicity: what was read stays true


def test_later_rows_get_timestamps_above_the_end_of_the_feed() -> None:
    bench = Bench()
    bench.pass_time(120)
    bench.answer_oracle()
    first = write(bench, put(1, 1), behind_s=30)
    at = bench.timestamp()
    assert seen(bench, 0, at, tablet=NON_ATOMIC) == [(1, first, 3)]
    late = write(bench, put(2, 2), behind_s=30)
    assert late > at
    assert seen(bench, 0, at, tablet=NON_ATOMIC) == [(1, first, 3)]
    assert seen(bench, at, tablet=NON_ATOMIC) == [(2, late, 3)]


def test_a_batch_in_progress_gets_a_timestamp_above_the_end_of_the_feed() -> None:
    bench = Bench()
    bench.pass_time(120)
    bench.answer_oracle()
    bench.holds_jobs = True
    count = 20_000
    columns = {"id": range(count), "a": range(count), "b": [b"x" * 9] * count}
    stream = stream_of(pa.record_batch(columns, schema=arrow_schema(bench_schema(bench))))
    stamp = Timestamp(bench.oracle - 30 * SECOND)
    route = bench.ask(WriteArrow(NON_ATOMIC, REVISION, stamp, True, stream))
    assert bench.jobs
    at = bench.timestamp()
    assert seen(bench, 0, at, tablet=NON_ATOMIC) == []
    bench.finish_jobs()
    written = bench.answer(route)
    assert isinstance(written, Written)
    assert written.timestamp > at
    assert counted(bench, at, tablet=NON_ATOMIC) == [(written.timestamp, count)]


def bench_schema(bench: Bench) -> TableSchema:
    return bench.nodes[CellId(0)].cell.tablets[NON_ATOMIC].schema


def test_every_read_at_a_timestamp_is_for_good() -> None:
    bench = Bench()
    bench.pass_time(120)
    bench.answer_oracle()
    at = bench.timestamp()
    lookup = Lookup(NON_ATOMIC, REVISION, at, (key(1),), 3)
    for _ in range(2):
        route = bench.ask(lookup)
        bench.answer_oracle()
        assert bench.answer(route).rows == (None,)  # type: ignore[union-attr]
        assert write(bench, put(1, 1), behind_s=30) > at


def test_reads_of_the_newest_leave_stamps_alone() -> None:
    bench = Bench()
    bench.pass_time(120)
    bench.answer_oracle()
    bench.ask(Lookup(NON_ATOMIC, REVISION, SYNC_LAST_COMMITTED, (key(1),), 3))
    stamp = bench.nodes[CellId(0)].cell.latest - 30 * SECOND
    assert write(bench, put(1, 1), behind_s=30) == stamp


def test_after_a_restart_later_rows_get_timestamps_above_the_end_of_the_feed() -> None:
    bench = Bench()
    bench.pass_time(120)
    bench.answer_oracle()
    first = write(bench, put(1, 1), behind_s=30)
    at = bench.timestamp()
    assert seen(bench, 0, at, tablet=NON_ATOMIC) == [(1, first, 3)]
    bench.start(CellId(0))
    late = write(bench, put(2, 2), behind_s=30)
    assert late > at
    assert seen(bench, 0, at, tablet=NON_ATOMIC) == [(1, first, 3)]
    bench.start(CellId(0))
    assert seen(bench, at, tablet=NON_ATOMIC) == [(2, late, 3)]
