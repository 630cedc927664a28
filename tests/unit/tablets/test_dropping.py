"""Tablets that are gone: named to the master, forgotten for good, and never too early."""

from typing import Any

import pytest

from dodona.types import KEY_MAX, KEY_MIN, CellId, Revision, TabletId, Timestamp
from dodona_tablets.core.mounting import importing, mounting
from dodona_tablets.core.mounting.mounting import FenceToken
from dodona_tablets.core.records import Record, TabletsDropped
from dodona_wire.cores.fault_points import FaultAt, FaultPoint, no_faults
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Assignment, TabletAssignment
from dodona_wire.messages.cells import AskRows, TellRows
from dodona_wire.messages.data import Committed, PeekOutcome
from unit.tablets.cells import ATOMIC, CLUSTER, NON_ATOMIC, Bench, assignment, put
from unit.tablets.test_importing import (
    FIRST,
    HERE,
    OTHER,
    SECOND,
    THERE,
    divided,
    dump,
    exchange,
    fill,
    reported,
    source,
    unmount,
    wanted,
)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "PAGE_ROWS_MAX", 2)


def kept(bench: Bench, cell: CellId = HERE) -> set[TabletId]:
    return set(bench.nodes[cell].cell.tablets)


def told(bench: Bench, cell: CellId = HERE) -> tuple[TabletId, ...]:
    """What its last heartbeat named as stored."""
    stored: tuple[TabletId, ...] = bench.heartbeats[cell].stored
    return stored


def records(bench: Bench, cell: CellId = HERE) -> list[Record]:
    return [it for it in bench.logs[cell] if isinstance(it, TabletsDropped)]


def drop(bench: Bench, *tablets: TabletId, cell: CellId = HERE) -> None:
    """By an assignment that came after whatever took the tablets away."""
    bench.revision = Revision(bench.revision + 1)
    bench.assign(cell, [OTHER], tablets)


def kind(reply: Any) -> str:
    assert isinstance(reply, Failure), reply
    return reply.kind


# What the master hears


def test_a_heartbeat_names_the_tablets_that_are_kept_and_not_served() -> None:
    bench = Bench()
    assert told(bench) == ()
    unmount(bench, HERE)
    assert told(bench) == (ATOMIC,)
    copy = wanted(FIRST, source(HERE), mode="unmounted", revision=0)
    bench.assign(HERE, [OTHER, copy])
    assert told(bench) == (ATOMIC, FIRST)
    bench.assign(HERE, [OTHER, assignment(ATOMIC, "full", Revision(2))])
    bench.answer_oracle()
    assert told(bench) == (FIRST,)


def test_one_that_is_unmounted_under_a_transaction_is_named_when_that_has_ended() -> None:
    bench = Bench(2)
    start = bench.begin()
    for cell in (0, 1):
        bench.prepare(start, put(1, 1), cell=cell)
    bench.answer_oracle()
    unmount(bench, HERE)
    bench.pass_time(0.5)
    assert told(bench) == ()
    bench.decide(start, bench.timestamp())
    bench.settle()
    bench.pass_time(0.5)
    assert told(bench) == (ATOMIC,)


def full(bench: Bench, *numbers: int) -> None:
    """So many unmounted tablets, beside the two that are mounted."""
    both = [assignment(ATOMIC, "full"), OTHER]
    bench.assign(HERE, [*both, *[wanted(TabletId(number)) for number in numbers]])
    bench.assign(HERE, both)


def test_many_are_named_in_turns_and_a_turn_that_was_not_answered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mounting, "STORED_TOLD_MAX", 2)
    bench = Bench()
    full(bench, 25, 21, 24, 22, 23)
    bench.pass_time(0.4)
    assert told(bench) == (21, 22)
    bench.pass_time(0.4)
    assert told(bench) == (21, 22)
    both = [assignment(ATOMIC, "full"), OTHER]
    turns = []
    for _ in range(4):
        bench.assign(HERE, both, tuple(it for it in told(bench) if it == 24))
        bench.pass_time(0.4)
        turns.append(told(bench))
    assert turns == [(23, 24), (25, 21), (22, 23), (25, 21)]


def test_statistics_count_stored_and_dropped_tablets() -> None:
    bench = Bench()
    unmount(bench, HERE)
    statistics = bench.nodes[HERE].statistics()
    assert (statistics.tablets, statistics.tablets_stored, statistics.tablets_dropped) == (1, 1, 0)
    drop(bench, ATOMIC)
    statistics = bench.nodes[HERE].statistics()
    assert (statistics.tablets, statistics.tablets_stored, statistics.tablets_dropped) == (1, 0, 1)


# What is dropped


def test_a_dropped_tablet_is_forgotten_with_its_rows_also_after_a_restart() -> None:
    bench = Bench()
    fill(bench, 0, 1, 2)
    unmount(bench, HERE)
    drop(bench, ATOMIC)
    assert kept(bench) == {NON_ATOMIC}
    assert records(bench) == [TabletsDropped((ATOMIC,), bench.revision)]
    drop(bench, ATOMIC, TabletId(99))  # once more, and one that never was here
    assert len(records(bench)) == 1
    bench.start(HERE)
    assert kept(bench) == {NON_ATOMIC}
    assert told(bench) == ()
    bench.pass_time(0.5)
    assert reported(bench) == {NON_ATOMIC: "mounted"}


def test_a_tablet_that_is_served_or_needed_is_not_dropped() -> None:
    bench = Bench(2)
    start = bench.begin()
    for cell in (0, 1):
        bench.prepare(start, put(1, 1), cell=cell)
    bench.answer_oracle()
    bench.assign(HERE, [assignment(ATOMIC, "full"), OTHER], (ATOMIC, NON_ATOMIC))
    assert kept(bench) == {ATOMIC, NON_ATOMIC}
    drop(bench, ATOMIC)  # it closes, but somebody holds locks in it
    assert kept(bench) == {ATOMIC, NON_ATOMIC}
    bench.decide(start, bench.timestamp())
    bench.settle()
    bench.pass_time(0.2)
    bench.assign(HERE, [OTHER, wanted(FIRST, source(THERE), source(HERE))], (ATOMIC,))
    assert kept(bench) == {ATOMIC, NON_ATOMIC, FIRST}
    assert records(bench) == []
    drop(bench, ATOMIC)
    assert ATOMIC not in kept(bench)


def test_one_assignment_can_close_and_drop_a_tablet() -> None:
    bench = Bench()
    drop(bench, ATOMIC)
    assert kept(bench) == {NON_ATOMIC}
    bench.start(HERE)
    assert kept(bench) == {NON_ATOMIC}


def test_a_dropped_tablet_stops_asking_for_its_missing_rows() -> None:
    bench = Bench(2)
    divided(bench)
    bench.in_flight.clear()
    drop(bench, FIRST)
    assert kept(bench) == {ATOMIC, NON_ATOMIC}
    bench.pass_time(2)
    assert not bench.in_flight, "nobody asks for its rows any more"


def test_an_answer_that_is_stale_drops_nothing() -> None:
    bench = Bench()
    unmount(bench, HERE)
    beat = bench.heartbeats[HERE]
    for sequence, revision in (
        (beat.sequence - 1, bench.revision),
        (beat.sequence, Revision(bench.revision - 1)),
    ):
        stale = Assignment((OTHER,), {}, sequence, revision, CLUSTER, (ATOMIC,))
        bench.nodes[HERE].handle_assignment(stale, bench.now)
    assert ATOMIC in kept(bench)


def test_an_older_assignment_does_not_create_a_dropped_tablet_again() -> None:
    """A master that was replaced may still have it. It would be empty, and served."""
    bench = Bench()
    fill(bench, 0, 1)
    old = (assignment(ATOMIC, "full"), OTHER)
    before = bench.revision
    unmount(bench, HERE)
    drop(bench, ATOMIC)
    for _ in range(2):
        sequence = bench.heartbeats[HERE].sequence
        stale = Assignment(old, {}, sequence, before, CLUSTER)
        bench.nodes[HERE].handle_assignment(stale, bench.now)
        assert kept(bench) == {NON_ATOMIC}
        bench.start(HERE)


# What comes late


def test_a_fence_timestamp_for_a_dropped_tablet_has_no_effect() -> None:
    bench = Bench()
    bench.assign(HERE, [assignment(ATOMIC, "full"), OTHER, wanted(FIRST)])
    ((_, token),) = bench.asked
    assert isinstance(token, FenceToken)
    drop(bench, FIRST)
    bench.answer_oracle()
    assert FIRST not in kept(bench)


def test_requests_to_a_dropped_tablet_fail_with_tablet_moved() -> None:
    bench = Bench(2)
    unmount(bench, HERE)
    drop(bench, ATOMIC)
    start = bench.begin()
    answers = [
        bench.prepare(start, put(1, 1), cell=0),
        bench.commit_one(bench.begin(), put(1, 1)),
        bench.lookup(1),
    ]
    assert [kind(bench.answer(it)) for it in answers] == ["tablet_moved"] * 3


def test_a_cell_remembers_the_outcomes_of_transactions_of_a_dropped_tablet() -> None:
    bench = Bench()
    start = bench.begin()
    route = bench.commit_one(start, put(1, 1))
    bench.answer_oracle()
    outcome = bench.answer(route)
    unmount(bench, HERE)
    drop(bench, ATOMIC)
    assert isinstance(outcome, Committed)
    assert bench.answer(bench.ask(PeekOutcome(start))) == outcome
    assert bench.answer(bench.commit_one(start, put(1, 1))) == outcome
    bench.start(HERE)
    assert bench.answer(bench.ask(PeekOutcome(start))) == outcome


@pytest.mark.usefixtures("small_pages")
def test_late_copies_of_messages_of_a_dropped_source_change_nothing() -> None:
    """The asker has all rows, and the master heard of it: only copies of messages are left."""
    bench = Bench(2)
    divided(bench)
    messages = []
    while bench.in_flight:
        messages += bench.in_flight
        exchange(bench)
    bench.answer_oracle()
    rows = dump(bench, FIRST)
    assert [number for number, _ in rows] == [2, 3, 4, 5, 6, 7, 8]
    assert reported(bench)[FIRST] == "mounted"
    drop(bench, ATOMIC, cell=THERE)
    for _ in range(2):
        bench.in_flight += messages
        bench.deliver()
        assert dump(bench, FIRST) == rows
        assert reported(bench)[FIRST] == "mounted"
        bench.start(HERE)
        bench.answer_oracle()


@pytest.mark.usefixtures("small_pages")
def test_a_tablet_whose_source_was_dropped_is_never_served_with_a_part_of_its_rows() -> None:
    """The table was removed, and word of it came there first: nobody needs the rows, but nobody
    must see a part of them either."""
    bench = Bench(2)
    divided(bench)
    exchange(bench, 2)  # one page
    drop(bench, ATOMIC, cell=THERE)
    bench.pass_time(3)
    bench.settle()
    assert FIRST not in reported(bench)
    assert bench.nodes[HERE].cell.tablets[FIRST].missing
    bench.start(HERE)
    bench.pass_time(3)
    bench.settle()
    assert FIRST not in reported(bench)
    for _ in range(2):  # unmounted first, which takes a flush
        drop(bench, FIRST, ATOMIC)
    assert kept(bench) == {NON_ATOMIC}


def test_pages_and_questions_for_a_dropped_tablet_are_ignored() -> None:
    bench = Bench(2)
    divided(bench)
    exchange(bench)  # the question
    ((_, page),) = bench.in_flight
    assert isinstance(page, TellRows)
    drop(bench, FIRST)
    bench.deliver()
    assert FIRST not in kept(bench)
    question = AskRows(THERE, FIRST, SECOND, KEY_MIN, KEY_MAX)
    bench.nodes[HERE].handle_cell_message(question, bench.now)
    bench.carry_out(HERE)
    assert not bench.in_flight


# Fault points


def only(wanted_point: FaultPoint) -> FaultAt:
    return lambda point: point is wanted_point


def test_a_tablet_that_a_cell_failed_to_drop_is_named_again() -> None:
    bench = Bench()
    unmount(bench, HERE)
    bench.nodes[HERE].cell.fault_at = only(FaultPoint.KEEP_DROPPED)
    drop(bench, ATOMIC)
    bench.pass_time(0.5)
    assert told(bench) == (ATOMIC,)
    bench.nodes[HERE].cell.fault_at = no_faults
    drop(bench, ATOMIC)
    assert kept(bench) == {NON_ATOMIC}


def test_one_named_at_a_time_is_enough() -> None:
    bench = Bench(fault_at=only(FaultPoint.TELL_ONE_STORED))
    full(bench, 21, 22, 23)
    both: list[TabletAssignment] = [assignment(ATOMIC, "full"), OTHER]
    for _ in range(4):
        bench.pass_time(0.4)
        assert len(told(bench)) <= 1
        bench.assign(HERE, both, told(bench))
    assert kept(bench) == {ATOMIC, NON_ATOMIC}
    assert [it.tablets for it in records(bench)] == [(21,), (22,), (23,)]  # type: ignore[union-attr]
    assert bench.nodes[HERE].cell.dropped_revision == bench.revision > Timestamp(0)
