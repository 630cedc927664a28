"""Clients that lie: about one transaction to several cells, or in the fields of a request."""

import pytest
from msgspec.structs import replace

from dodona.schema import TableSchema
from dodona.types import CellId, Timestamp, TransactionId
from dodona_tablets.core.counts import ProtocolViolation
from dodona_tablets.shell.notices import ProtocolViolations
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    Aborted,
    CommitOne,
    Committed,
    Decide,
    Prepare,
    Prepared,
    TabletModifications,
    WriteNonAtomic,
)
from unit.tablets.cells import (
    ATOMIC,
    NON_ATOMIC,
    REVISION,
    SCHEMA,
    SECOND,
    Bench,
    changes,
    delete,
    key,
    put,
    update,
)

ZERO, ONE = CellId(0), CellId(1)


def prepare(bench: Bench, start: TransactionId, cell: int, *participants: int) -> object:
    cells = tuple(map(CellId, participants))
    route = bench.ask(Prepare(start, cells, (changes(put(1, cell)),)), cell)
    bench.answer_oracle()
    return route


def protocol_violations(bench: Bench) -> list[int]:
    return [node.statistics().protocol_violations for node in bench.nodes.values()]


def go_on(bench: Bench) -> None:
    for _ in range(5):
        bench.pass_time(1)
        bench.settle()


def test_a_transaction_that_is_prepared_here_and_committed_alone_there_is_aborted_here() -> None:
    bench = Bench(2)
    start = bench.begin()
    prepare(bench, start, 0, 0, 1)
    alone = bench.commit_one(start, put(1, 1), cell=1)
    go_on(bench)
    assert isinstance(bench.answer(alone), Committed)
    assert [bench.read(1, cell=cell) for cell in (0, 1)] == [None, (1, None)]


def test_a_transaction_with_two_coordinators_ends() -> None:
    bench = Bench(2)
    start = bench.begin()
    prepare(bench, start, 0, 0, 1)
    prepare(bench, start, 1, 1, 0)
    go_on(bench)
    assert not any(node.cell.transactions for node in bench.nodes.values())


def test_a_question_to_a_cell_that_is_not_the_coordinator_waits_for_the_outcome() -> None:
    bench = Bench(3)
    start = bench.begin()
    prepare(bench, start, 0, 0, 2)
    prepare(bench, start, 1, 2, 1)
    prepare(bench, start, 2, 0, 2)
    go_on(bench)
    assert [bench.read(1, cell=cell) for cell in (0, 1, 2)] == [(0, None), (1, None), (2, None)]


@pytest.mark.parametrize("is_prepared", [False, True])
def test_an_abort_by_a_cell_that_does_not_coordinate_is_not_obeyed(is_prepared: bool) -> None:
    bench = Bench(3)
    start = bench.begin()
    if is_prepared:
        votes = [prepare(bench, start, cell, 1, 2) for cell in (1, 2)]
        at = max(bench.answer(vote).timestamp for vote in votes)  # type: ignore[union-attr]
    else:
        bench.commit_one(start, put(1, 1), cell=1)
        bench.answer_oracle()
    bench.ask(Decide(start, (ZERO, ONE), None), 0)
    bench.settle()
    assert protocol_violations(bench) == [0, 1, 0]
    assert bench.nodes[ONE].statistics().last_protocol_violation == ProtocolViolation(start, ZERO)
    if is_prepared:
        assert bench.answer(bench.decide(start, at, cell=1)) == Committed(start, at)
    bench.settle()
    assert bench.read(1, cell=1) == (1, None)


def test_a_commit_against_a_refusal_is_not_obeyed(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(2)
    start = bench.begin()
    bench.commit(put(1, 7), cell=1)
    vote = bench.answer(prepare(bench, start, 0, 0, 1))
    assert isinstance(bench.answer(prepare(bench, start, 1, 0, 1)), Failure)
    assert isinstance(vote, Prepared)
    bench.decide(start, vote.timestamp)
    bench.settle()
    assert protocol_violations(bench) == [0, 1]
    for node in bench.nodes.values():
        look = ProtocolViolations(node.cell).look
        look()
        look()
    (told,) = caplog.records
    assert told.fields == {  # type: ignore[attr-defined]
        "event": "impossible_decision",
        "transaction": start,
        "source": ZERO,
        "count": 1,
    }
    assert [bench.read(1, cell=cell) for cell in (0, 1)] == [(0, None), (7, None)]
    assert not bench.nodes[ZERO].cell.transactions


def test_a_commit_timestamp_below_a_prepare_timestamp_does_not_change_a_read() -> None:
    bench = Bench(2)
    start = bench.begin()
    votes = [bench.answer(prepare(bench, start, cell, 0, 1)) for cell in (0, 1)]
    first, second = (vote.timestamp for vote in votes)  # type: ignore[union-attr]
    assert bench.read(1, first, cell=1) is None
    bench.decide(start, first)
    go_on(bench)
    assert bench.read(1, first, cell=1) is None
    assert bench.read(1, second, cell=1) == (1, None)


def test_a_commit_timestamp_that_was_never_issued_is_not_believed() -> None:
    bench = Bench(2)
    start = bench.begin()
    votes = [bench.answer(prepare(bench, start, cell, 0, 1)) for cell in (0, 1)]
    at = max(vote.timestamp for vote in votes)  # type: ignore[union-attr]
    route = bench.decide(start, Timestamp(bench.oracle + 1000 * SECOND))
    go_on(bench)
    assert bench.answer(route) == Committed(start, at)
    bench.start(ONE)
    assert bench.nodes[ONE].cell.latest <= bench.oracle


def test_a_cell_accepts_a_commit_timestamp_that_another_transaction_has() -> None:
    locks = {"a": "group_a", "b": "group_b"}
    columns = [replace(it, lock=locks.get(it.name)) for it in SCHEMA.columns]
    bench = Bench(2, schema=TableSchema.parse(columns))
    start = bench.begin()
    route = bench.ask(Prepare(start, (ZERO, ONE), (changes(update(1, b="x")),)))
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Prepared)
    at = bench.commit(update(1, a=5))
    bench.decide(start, at)
    assert bench.read(1) == (5, "x")


def test_a_tablet_is_named_once() -> None:
    bench = Bench()
    request = CommitOne(bench.begin(), (changes(put(1, 1)), changes(put(1, 2))))
    reply = bench.answer(bench.ask(request))
    assert isinstance(reply, Failure)
    assert reply.kind == "invalid_request"
    assert reply.message == (
        "The transaction has two parts for one tablet. Send one part per tablet."
    )


def test_a_transaction_without_modifications_obeys_the_fence() -> None:
    bench = Bench(2)
    start = bench.begin()
    bench.start(ZERO)
    reply = bench.answer(bench.ask(Prepare(start, (ZERO, ONE), ())))
    assert isinstance(reply, Failure)
    assert reply.kind == "snapshot_too_old"
    assert bench.answer(bench.decide(start, None)) == Aborted(start)


@pytest.mark.parametrize(
    ("mask", "values"),
    [(b"\x01", (1,)), (b"", ()), (-1, (1, "x")), (1 << 63, (1,)), (1, (1, 2)), (1, (True,))],
)
def test_a_write_that_is_none_of_the_table(mask: int | bytes, values: tuple[object, ...]) -> None:
    bench = Bench()
    writes = (delete(2), (key(1), mask, values))
    part = TabletModifications(ATOMIC, REVISION, writes)
    atomic = bench.answer(bench.ask(CommitOne(bench.begin(), (part,))))
    stamp = Timestamp(bench.oracle)
    other = bench.answer(bench.ask(WriteNonAtomic(NON_ATOMIC, REVISION, stamp, True, writes)))
    for reply in (atomic, other):
        assert isinstance(reply, Failure)
        assert reply.kind == "schema_violation"
