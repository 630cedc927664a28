"""Reads: what they see, what they wait for, and when they are refused."""

import pyarrow as pa
import pytest

from dodona.errors import SnapshotTooOld
from dodona.types import (
    ASYNC_LAST_COMMITTED,
    KEY_MAX,
    KEY_MIN,
    MAX_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    CellId,
    Key,
    TableSettings,
    TabletId,
    Timestamp,
)
from dodona_tablets.core.tablet import snapshot
from dodona_tablets.core.tablet.scans import COLUMN_ROWS_MAX, WALKED_ROWS_MAX
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    ArrowPage,
    Lookup,
    LookupReply,
    LookupVersions,
    RowVersion,
    Scan,
    ScanArrow,
    ScanPage,
    VersionedRows,
    WriteArrow,
)
from dodona_wire.messages.families import Reply
from dodona_wire.rows.arrow import arrow_schema, stream_of, table_of
from unit.tablets.cells import (
    ATOMIC,
    NON_ATOMIC,
    REVISION,
    SCHEMA,
    SECOND,
    Bench,
    delete,
    key,
    put,
    update,
)


def kind(reply: object) -> str:
    assert isinstance(reply, Failure), reply
    return reply.kind


def scan(bench: Bench, lower: Key = KEY_MIN, upper: Key = KEY_MAX, count: int = 100) -> ScanPage:
    request = Scan(ATOMIC, REVISION, SYNC_LAST_COMMITTED, lower, upper, 3, count)
    page = bench.answer(bench.ask(request))
    assert isinstance(page, ScanPage)
    return page


def test_columns_come_from_their_newest_version_since_the_newest_deletion() -> None:
    bench = Bench()
    bench.commit(put(1, 1, "x"))
    first = bench.commit(update(1, a=2))
    second = bench.commit(update(1, b="y"))
    gone = bench.commit(delete(1))
    back = bench.commit(update(1, a=3))
    assert bench.read(1, first) == (2, "x")
    assert bench.read(1, second) == (2, "y")
    assert bench.read(1, gone) is None
    assert bench.read(1, back) == (3, None)


def test_a_column_filter_keeps_the_order_of_the_schema_and_may_be_empty() -> None:
    bench = Bench()
    bench.commit(put(1, 1, "x"))
    bench.commit(update(1, a=2))
    for mask, expected in ((2, ("x",)), (1, (2,)), (3, (2, "x")), (0, ())):
        reply = bench.answer(bench.lookup(1, 9, mask=mask))
        assert reply == LookupReply((expected, None))


def test_answers_come_in_request_order_with_repeats() -> None:
    bench = Bench()
    bench.commit(put(1, 1), put(2, 2))
    assert bench.answer(bench.lookup(2, 1, 2, 5)) == LookupReply(
        ((2, None), (1, None), (2, None), None)
    )


def test_a_read_waits_for_rows_prepared_at_or_below_its_timestamp() -> None:
    for at_commit in (True, False):
        bench = Bench(2)
        bench.commit(put(1, 1))
        before = bench.timestamp()
        start = bench.begin()
        route = bench.prepare(start, put(1, 2), cell=0)
        unknown = bench.lookup(1, at=bench.timestamp())
        bench.answer_oracle()
        at = bench.answer(route).timestamp  # type: ignore[union-attr]
        after = bench.lookup(1, at=bench.timestamp())
        latest = bench.lookup(1)
        bench.answer_oracle()
        assert bench.answer(after) is None
        assert bench.answer(latest) is None
        assert bench.answer(bench.lookup(1, at=before)) == LookupReply(((1, None),))
        assert bench.answer(bench.lookup(1, at=ASYNC_LAST_COMMITTED)) == LookupReply(((1, None),))
        # Read before the prepare timestamp was asked for: it is below it, so it need not wait.
        assert bench.answer(unknown) == LookupReply(((1, None),))
        bench.decide(start, at if at_commit else None)
        bench.settle()
        seen = LookupReply(((2 if at_commit else 1, None),))
        assert bench.answer(after) == seen
        assert bench.answer(latest) == seen


def test_a_read_waits_while_the_prepare_timestamp_is_unknown() -> None:
    bench = Bench(2)
    bench.commit(put(1, 1))
    earlier = bench.timestamp()
    bench.prepare(bench.begin(), put(1, 2), cell=0)
    waiting = bench.lookup(1)
    assert bench.answer(waiting) is None
    assert bench.answer(bench.lookup(1, at=earlier)) is None  # not proven: the oracle is asked
    bench.answer_oracle()
    assert bench.answer(waiting) is None  # prepared now, and it wants the newest


def test_a_scan_waits_for_a_prepared_row_and_a_read_lock_blocks_no_reader() -> None:
    bench = Bench(2)
    start = bench.begin()
    route = bench.prepare(start, put(5, 5), cell=0)
    bench.answer_oracle()
    request = Scan(ATOMIC, REVISION, SYNC_LAST_COMMITTED, KEY_MIN, KEY_MAX, 3, 10)
    waiting = bench.ask(request)
    assert bench.answer(waiting) is None
    request = Scan(ATOMIC, REVISION, SYNC_LAST_COMMITTED, key(6), KEY_MAX, 3, 10)
    assert isinstance(bench.answer(bench.ask(request)), ScanPage)
    prepared_at = bench.answer(route).timestamp  # type: ignore[union-attr]
    other = bench.prepare(start, cell=1)
    bench.answer_oracle()
    at = max(prepared_at, bench.answer(other).timestamp)  # type: ignore[union-attr]
    bench.decide(start, at)
    bench.settle()
    page = bench.answer(waiting)
    assert isinstance(page, ScanPage)
    assert page.rows == ((5, None),)


def test_the_wait_is_bounded() -> None:
    bench = Bench(2)
    bench.prepare(bench.begin(), put(1, 2), cell=1)
    bench.answer_oracle()
    bench.nodes.pop(next(iter(bench.nodes)))  # the coordinator never answers
    waiting = bench.lookup(1, cell=1)
    bench.pass_time(5.5)
    assert kind(bench.answer(waiting)) == "unavailable"


def test_a_timestamp_that_was_never_issued_is_refused_after_asking_once() -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    route = bench.lookup(1, at=Timestamp(bench.oracle + SECOND))
    assert bench.answer(route) is None
    assert len(bench.asked) == 1
    bench.answer_oracle()
    assert kind(bench.answer(route)) == "invalid_request"


def test_reads_of_one_frame_share_one_question() -> None:
    bench = Bench()
    at = bench.timestamp()
    node = bench.nodes[next(iter(bench.nodes))]
    for route in range(5):
        node.handle(route, Lookup(ATOMIC, REVISION, at, (key(1),), 3), bench.now)
    bench.carry_out(node.cell.id)
    assert len(bench.asked) == 1
    bench.answer_oracle()
    assert all(bench.answer(route) == LookupReply((None,)) for route in range(5))


def test_an_oracle_that_does_not_answer_ends_the_read_with_a_typed_error() -> None:
    bench = Bench()
    route = bench.lookup(1, at=bench.timestamp())
    bench.pass_time(6)
    assert kind(bench.answer(route)) == "unavailable"


@pytest.mark.parametrize("at", [0, -1, MAX_TIMESTAMP + 2, SYNC_LAST_COMMITTED + 1])
def test_an_invalid_timestamp_is_refused(at: int) -> None:
    bench = Bench()
    assert kind(bench.answer(bench.lookup(1, at=Timestamp(at)))) == "invalid_request"


def test_scans_are_in_key_order_and_page() -> None:
    bench = Bench()
    for number in (5, -3, 9, 1):
        bench.commit(put(number, number))
    bench.commit(delete(5))
    page = scan(bench, count=2)
    assert page.rows == ((-3, None), (1, None))
    assert page.resume is not None
    bench.commit(put(0, 0))
    rest = scan(bench, lower=page.resume)
    assert rest.rows == ((9, None),)
    assert rest.resume is None
    assert scan(bench, key(0), key(9)).rows == ((0, None), (1, None))


def test_a_scan_as_arrow_has_the_key_columns_and_those_asked_for() -> None:
    bench = Bench()
    bench.commit(put(1, 10, "x"), put(2, None))
    request = ScanArrow(ATOMIC, REVISION, SYNC_LAST_COMMITTED, KEY_MIN, KEY_MAX, 2, 10)
    page = bench.answer(bench.ask(request))
    assert isinstance(page, ArrowPage)
    assert table_of(page.batch).to_pylist() == [{"id": 1, "b": "x"}, {"id": 2, "b": None}]
    empty = ScanArrow(ATOMIC, REVISION, SYNC_LAST_COMMITTED, key(50), KEY_MAX, 2, 10)
    page = bench.answer(bench.ask(empty))
    assert isinstance(page, ArrowPage)
    assert table_of(page.batch).num_rows == 0


def test_a_page_is_longer_if_its_rows_are_not_read_one_by_one() -> None:
    bench = Bench()
    count = COLUMN_ROWS_MAX + 10
    columns = {"id": range(count), "a": range(count), "b": [b"x"] * count}
    stream = stream_of(pa.record_batch(columns, schema=arrow_schema(SCHEMA)))
    stamp = Timestamp(bench.oracle)
    assert bench.answer(bench.ask(WriteArrow(NON_ATOMIC, REVISION, stamp, True, stream)))
    bench.commit(*[put(number, number) for number in range(WALKED_ROWS_MAX + 10)])

    def count_in(kind: type[Scan] | type[ScanArrow], tablet: TabletId) -> int:
        page = bench.answer(
            bench.ask(kind(tablet, REVISION, SYNC_LAST_COMMITTED, KEY_MIN, KEY_MAX, 3, count))
        )
        assert isinstance(page, ArrowPage | ScanPage)
        assert page.resume is not None
        return page.row_count if isinstance(page, ArrowPage) else len(page.keys)

    assert count_in(ScanArrow, NON_ATOMIC) == COLUMN_ROWS_MAX
    assert count_in(Scan, NON_ATOMIC) == WALKED_ROWS_MAX
    assert count_in(ScanArrow, ATOMIC) == count_in(Scan, ATOMIC) == WALKED_ROWS_MAX


def test_a_lookup_with_a_stale_revision_fails_with_tablet_moved() -> None:
    bench = Bench()
    request = Lookup(ATOMIC, type(REVISION)(9), SYNC_LAST_COMMITTED, (key(1),), 3)
    assert kind(bench.answer(bench.ask(request))) == "tablet_moved"


# A lower bound


def test_what_is_older_than_the_retention_timestamp_is_as_if_it_had_never_been() -> None:
    bench = Bench()
    first = bench.commit(put(1, 1, "x"))
    second = bench.commit(update(1, a=2))
    gone = bench.commit(delete(2))
    back = bench.commit(update(2, b="y"))
    for retention, expected in (
        (first, ((2, "x"), (None, "y"))),
        (second, ((2, None), (None, "y"))),
        (gone, (None, (None, "y"))),
        (back, (None, (None, "y"))),
    ):
        request = Lookup(ATOMIC, REVISION, back, (key(1), key(2)), 3, retention)
        assert bench.answer(bench.ask(request)) == LookupReply(expected)
        scanning = Scan(ATOMIC, REVISION, back, KEY_MIN, KEY_MAX, 3, 10, retention)
        page = bench.answer(bench.ask(scanning))
        assert isinstance(page, ScanPage)
        assert page.rows == tuple(row for row in expected if row is not None)
    arrow = ScanArrow(ATOMIC, REVISION, SYNC_LAST_COMMITTED, KEY_MIN, KEY_MAX, 3, 10, back)
    page = bench.answer(bench.ask(arrow))
    assert isinstance(page, ArrowPage)
    assert table_of(page.batch).to_pylist() == [{"id": 2, "a": None, "b": "y"}]


def test_a_retention_timestamp_above_the_read_timestamp_is_refused() -> None:
    bench = Bench()
    at = bench.commit(put(1, 1))
    for retention in (at + 1, SYNC_LAST_COMMITTED, -1):
        request = Lookup(ATOMIC, REVISION, at, (key(1),), 3, Timestamp(retention))
        assert kind(bench.answer(bench.ask(request))) == "invalid_request"
    for newest in (SYNC_LAST_COMMITTED, ASYNC_LAST_COMMITTED):
        request = Lookup(ATOMIC, REVISION, newest, (key(1),), 3, MAX_TIMESTAMP)
        assert bench.answer(bench.ask(request)) == LookupReply((None,))


# Versions


def versions(bench: Bench, at: Timestamp, mask: int = 3) -> object:
    return bench.ask(LookupVersions(ATOMIC, REVISION, at, (key(1), key(9)), mask, is_paged=True))


def paged(*rows: tuple[RowVersion, ...]) -> VersionedRows:
    return VersionedRows(rows, is_paged=True)


def test_versions_come_newest_first_and_a_filter_keeps_their_timestamps() -> None:
    bench = Bench()
    first = bench.commit(put(1, 1, "x"))
    second = bench.commit(update(1, a=2))
    gone = bench.commit(delete(1))
    whole = (RowVersion(second, 1, (2,)), RowVersion(first, 3, (1, "x")))
    assert bench.answer(versions(bench, second)) == paged(whole, ())
    filtered = (
        RowVersion(gone, 0, (), is_delete=True),
        RowVersion(second, 0, ()),
        RowVersion(first, 2, ("x",)),
    )
    for at in (gone, SYNC_LAST_COMMITTED, ASYNC_LAST_COMMITTED):
        assert bench.answer(versions(bench, at, 2)) == paged(filtered, ())


def test_versions_wait_and_prove_their_timestamp_as_other_reads_do() -> None:
    bench = Bench(2)
    route = bench.prepare(bench.begin(), put(1, 2), cell=0)
    bench.answer_oracle()
    at = bench.answer(route).timestamp  # type: ignore[union-attr]
    assert bench.answer(versions(bench, SYNC_LAST_COMMITTED)) is None
    assert bench.answer(versions(bench, ASYNC_LAST_COMMITTED)) == paged((), ())
    assert bench.answer(versions(bench, Timestamp(at - 1))) == paged((), ())
    future = versions(bench, Timestamp(bench.oracle + SECOND))
    assert bench.answer(future) is None
    bench.answer_oracle()
    assert kind(bench.answer(future)) == "invalid_request"


def stamps_of(reply: object) -> list[list[Timestamp]]:
    assert isinstance(reply, VersionedRows)
    return [[version.timestamp for version in row] for row in reply.rows]


@pytest.mark.parametrize("is_flushed", [False, True])
def test_versions_are_bounded_by_timestamps_and_by_their_number(is_flushed: bool) -> None:
    bench = Bench(settings=TableSettings(dynamic_store_auto_flush_period=100))
    at = [bench.commit(put(1, number)) for number in range(6)]
    if is_flushed:
        bench.pass_time(100)
        assert not bench.nodes[CellId(0)].cell.tablets[ATOMIC].stores.is_flat

    def found(since: int = 0, below: int = 0, count_max: int = 0, first_below: int = 0) -> Reply:
        bounds = (Timestamp(since), Timestamp(below), count_max, Timestamp(first_below))
        asked = LookupVersions(ATOMIC, REVISION, at[5], (key(1), key(1)), 3, *bounds, True)
        reply = bench.answer(bench.ask(asked))
        assert reply is not None
        return reply

    assert stamps_of(found(since=at[3])) == [[at[5], at[4]]] * 2
    assert stamps_of(found(below=at[2])) == [[at[1], at[0]]] * 2
    assert stamps_of(found(at[1], at[4])) == [[at[3], at[2]]] * 2
    cut = found(count_max=2)
    assert stamps_of(cut) == [[at[5], at[4]]] * 2
    assert isinstance(cut, VersionedRows)
    assert (cut.cut, cut.is_within) == ((0, 1), False)
    assert stamps_of(found(since=at[3], count_max=2)) == [[at[5], at[4]]] * 2
    assert stamps_of(found(below=at[5], first_below=at[1]))[0] == [at[0]]
    assert found(since=at[3], count_max=2) == found(since=at[3])


@pytest.mark.parametrize("bound", ["PAGE_VERSIONS", "PAGE_BYTES_MAX"])
def test_more_versions_than_an_answer_may_have_come_in_pages(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(snapshot, bound, 4 if bound == "PAGE_VERSIONS" else 50)
    bench = Bench()
    at = [bench.commit(put(1, number)) for number in range(10)]
    shown: list[Timestamp] = []
    below, page_count = Timestamp(0), 0
    while True:
        bounds = (Timestamp(0), Timestamp(0), 0, below)
        request = LookupVersions(ATOMIC, REVISION, at[-1], (key(1),), 3, *bounds, True)
        page = bench.answer(bench.ask(request))
        assert isinstance(page, VersionedRows)
        shown += [version.timestamp for version in page.rows[0]]
        below, page_count = shown[-1], page_count + 1
        if not page.is_within:
            break
    assert shown == at[::-1]
    assert page_count > 2


def test_an_older_client_gets_all_versions_in_one_answer_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "PAGE_VERSIONS", 2)
    monkeypatch.setattr(snapshot, "UNPAGED_VERSIONS_MAX", 8)
    bench = Bench()
    at = [bench.commit(put(1, number)) for number in range(7)]
    asked = LookupVersions(ATOMIC, REVISION, SYNC_LAST_COMMITTED, (key(1), key(9)), 3)
    whole = bench.answer(bench.ask(asked))
    assert stamps_of(whole) == [at[::-1], []]
    for number in range(2):
        bench.commit(put(9, number))
    refused = bench.answer(bench.ask(asked))
    assert isinstance(refused, Failure)
    assert (refused.kind, "upgrade the client" in refused.message) == ("limit_exceeded", True)


def test_a_read_below_the_retained_timestamp_is_refused_with_that_timestamp() -> None:
    bench = Bench()
    at = bench.commit(put(1, 1))
    tablet = bench.nodes[next(iter(bench.nodes))].cell.tablets[ATOMIC]
    tablet.retained_timestamp = Timestamp(at + 1)
    scanning = Scan(ATOMIC, REVISION, at, KEY_MIN, KEY_MAX, 3, 10)
    for route in (bench.lookup(1, at=at), versions(bench, at), bench.ask(scanning)):
        reply = bench.answer(route)
        assert isinstance(reply, Failure)
        assert reply.kind == SnapshotTooOld.kind
        assert reply.message == (
            f"timestamp {at} is less than tablet {ATOMIC} retained timestamp {at + 1}"
        )
        assert reply.attributes == {
            "tablet": ATOMIC,
            "table": "//test/full",
            "timestamp": at,
            "retained_timestamp": at + 1,
        }
    assert bench.answer(bench.lookup(1)) == LookupReply(((1, None),))
