"""Writes without atomicity: stamps, clocks, modes, the two durabilities, Arrow batches."""

import pyarrow as pa
import pytest

from dodona.schema import TableSchema
from dodona.types import SYNC_LAST_COMMITTED, CellId, SpecialWrites, Timestamp, Write
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.requests.nonatomic import OFF_LIMITS
from dodona_wire.cores.effects import Append, ReplyAtOnce, ReplyTo
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    CommitOne,
    Lookup,
    TabletModifications,
    WriteArrow,
    WriteNonAtomic,
    Written,
)
from dodona_wire.rows.arrow import arrow_schema, stream_of
from unit.tablets.cells import (
    ATOMIC,
    NON_ATOMIC,
    REVISION,
    SCHEMA,
    SECOND,
    Bench,
    key,
    put,
)


def write(bench: Bench, *writes: Write, stamp: int | None = None, durable: bool = True) -> object:
    at = Timestamp(bench.oracle if stamp is None else stamp)
    return bench.ask(WriteNonAtomic(NON_ATOMIC, REVISION, at, durable, writes))


def versions(bench: Bench, number: int) -> list[tuple[int, object]]:
    rows = dict(bench.nodes[CellId(0)].cell.tablets[NON_ATOMIC].dump())
    return [(version[0], version[2][0]) for version in rows[key(number)]]


def batch(rows: list[dict[str, object]], schema: TableSchema = SCHEMA) -> bytes:
    return stream_of(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema)))


def failure(reply: object) -> Failure:
    assert isinstance(reply, Failure), reply
    return reply


def test_the_last_write_wins_and_stamps_are_raised_above_all_before() -> None:
    bench = Bench()
    stamp = bench.oracle
    assert bench.answer(write(bench, put(1, 1), put(2, 2))) == Written(2, Timestamp(stamp))
    again = bench.answer(write(bench, put(1, 3), stamp=stamp - SECOND))
    assert again == Written(1, Timestamp(stamp + 1))
    assert versions(bench, 1) == [(stamp, 1), (stamp + 1, 3)]
    assert versions(bench, 2) == [(stamp, 2)]
    request = Lookup(NON_ATOMIC, REVISION, SYNC_LAST_COMMITTED, (key(1),), 1)
    assert bench.answer(bench.ask(request)).rows == ((3,),)  # type: ignore[union-attr]


@pytest.mark.parametrize("seconds", [-62, 62])
def test_a_clock_that_is_far_off_is_refused_with_the_text_of_the_document(seconds: int) -> None:
    bench = Bench()
    reply = failure(bench.answer(write(bench, put(1, 1), stamp=bench.oracle + seconds * SECOND)))
    assert reply.message == OFF_LIMITS
    assert reply.attributes["client_timestamp"] == bench.oracle + seconds * SECOND
    inside = write(bench, put(1, 1), stamp=bench.oracle + (seconds - seconds // 31) * SECOND)
    assert isinstance(bench.answer(inside), Written)


def test_clocks_are_compared_in_whole_seconds() -> None:
    bench = Bench()
    bench.timestamp()
    ours = bench.nodes[CellId(0)].cell.latest // SECOND
    for theirs, is_inside in ((ours + 60, True), (ours + 61, False), (ours - 60, True)):
        reply = bench.answer(write(bench, put(1, 1), stamp=theirs * SECOND + SECOND - 1))
        assert isinstance(reply, Written) is is_inside


def test_the_modes_of_table_and_transaction_must_match_both_ways() -> None:
    bench = Bench()
    atomic = WriteNonAtomic(ATOMIC, REVISION, Timestamp(bench.oracle), True, (put(1, 1),))
    text = 'Invalid atomicity mode: "none" instead of "full"'
    assert failure(bench.answer(bench.ask(atomic))).message == text
    part = TabletModifications(NON_ATOMIC, REVISION, (put(1, 1),))
    text = 'Invalid atomicity mode: "full" instead of "none"'
    reply = bench.answer(bench.ask(CommitOne(bench.begin(), (part,))))
    assert failure(reply).message == text


def test_a_request_is_written_whole_or_not_at_all() -> None:
    bench = Bench()
    bad: Write = (key(2), 1, ("not a number",))
    assert failure(bench.answer(write(bench, put(1, 1), bad))).kind == "schema_violation"
    assert bench.nodes[CellId(0)].cell.tablets[NON_ATOMIC].dump() == []


def test_sync_waits_for_the_log_and_async_does_not() -> None:
    bench = Bench()
    node = bench.nodes[CellId(0)]
    for durable, expected in ((True, ReplyTo), (False, ReplyAtOnce)):
        request = WriteNonAtomic(NON_ATOMIC, REVISION, bench.timestamp(), durable, (put(1, 1),))
        node.handle("route", request, bench.now)
        append, reply = node.take_effects()
        assert isinstance(append, Append)
        assert isinstance(reply, expected)


def test_an_arrow_batch_writes_the_same_versions_as_its_rows() -> None:
    bench = Bench()
    stream = batch([{"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": None, "b": None}])
    request = WriteArrow(NON_ATOMIC, REVISION, Timestamp(bench.oracle), True, stream)
    assert isinstance(bench.answer(bench.ask(request)), Written)
    rows = bench.nodes[CellId(0)].cell.tablets[NON_ATOMIC].dump()
    expected = Bench()
    expected.oracle = bench.oracle
    write(expected, put(1, 1, "x"), put(2, None))
    assert rows == expected.nodes[CellId(0)].cell.tablets[NON_ATOMIC].dump()


COUNTING = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "sum", "type": "int64", "aggregate": "sum"},
        {"name": "text", "type": "utf8"},
    ]
)
COUNTED = COUNTING.key_of({"id": 1})


def count(bench: Bench, by: int, deltas: int = 1) -> object:
    change = COUNTING.write_of({"id": 1, "sum": by}, is_update=True)
    special: SpecialWrites = {COUNTED: (deltas, 0)}
    at = Timestamp(bench.oracle)
    return bench.ask(WriteNonAtomic(NON_ATOMIC, REVISION, at, True, (change,), special))


def test_overlapping_changes_all_apply_and_a_deletion_resets_them_also_after_a_restart() -> None:
    bench = Bench(schema=COUNTING)
    lookup = Lookup(NON_ATOMIC, REVISION, SYNC_LAST_COMMITTED, (COUNTED,), 1)
    for by, expected in ((1, 1), (2, 3), (None, None), (4, 4), (5, 9)):
        if by is None:
            write(bench, (COUNTED, 0, ()))
            assert bench.answer(bench.ask(lookup)).rows == (None,)  # type: ignore[union-attr]
            continue
        assert isinstance(bench.answer(count(bench, by)), Written)
        assert bench.answer(bench.ask(lookup)).rows == ((expected,),)  # type: ignore[union-attr]
    bench.start(CellId(0))
    assert bench.answer(bench.ask(lookup)).rows == ((9,),)  # type: ignore[union-attr]


def test_a_change_of_a_column_that_does_not_aggregate_is_refused() -> None:
    bench = Bench(schema=COUNTING)
    assert failure(bench.answer(count(bench, 1, deltas=2))).kind == "schema_violation"
    assert bench.nodes[CellId(0)].cell.tablets[NON_ATOMIC].dump() == []


def test_a_request_has_bounds_in_rows_and_in_bytes() -> None:
    bench = Bench(limits=CellLimits(transaction_rows_max=2, transaction_bytes_max=500))
    text = "x" * 300
    for writes, is_allowed in (
        ((put(1, 1), put(2, 2)), True),
        ((put(1, 1), put(2, 2), put(3, 3)), False),
        ((put(1, 1, text),), True),
        ((put(1, 1, text), put(2, 2, text)), False),
    ):
        reply = bench.answer(write(bench, *writes))
        if is_allowed:
            assert isinstance(reply, Written)
        else:
            assert failure(reply).kind == "limit_exceeded"


OTHER = TableSchema.parse(
    [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "a", "type": "double"}]
)


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (b"nonsense", "invalid_request"),
        (b"", "invalid_request"),
        (batch([{"id": 1, "a": 1, "b": "x"}])[:-20], "invalid_request"),
        (batch([{"id": 1, "a": 1.0}], OTHER), "schema_violation"),
    ],
)
def test_a_bad_batch_is_a_typed_error(stream: bytes, kind: str) -> None:
    bench = Bench()
    request = WriteArrow(NON_ATOMIC, REVISION, Timestamp(bench.oracle), True, stream)
    assert failure(bench.answer(bench.ask(request))).kind == kind
    assert bench.nodes[CellId(0)].cell.tablets[NON_ATOMIC].dump() == []


def test_a_restart_gives_every_row_the_same_stamps() -> None:
    bench = Bench()
    for value in range(3):
        write(bench, put(1, value), stamp=bench.oracle - value * 10)
    stream = batch([{"id": 1, "a": 7, "b": "x"}])
    bench.ask(WriteArrow(NON_ATOMIC, REVISION, Timestamp(bench.oracle - 5), False, stream))
    before = versions(bench, 1)
    bench.start(CellId(0))
    assert versions(bench, 1) == before
    assert len(before) == 4
