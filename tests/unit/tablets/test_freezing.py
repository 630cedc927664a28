"""Freezing, unfreezing and new settings: what goes on, what waits, and who is refused."""

from typing import Any

import pytest
from msgspec.structs import replace

from dodona.types import CellId, Revision, TableSettings
from dodona_tablets.core.records import TabletAdjusted
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    Prepared,
    TabletModifications,
    WriteNonAtomic,
    Written,
)
from unit.tablets.cells import (
    ATOMIC,
    NON_ATOMIC,
    REVISION,
    Bench,
    assignment,
    delete,
    put,
)
from unit.tablets.reading import prepare, row

CELL = CellId(0)
OPEN = [assignment(ATOMIC, "full"), assignment(NON_ATOMIC, "none")]
FROZEN = [replace(it, mode="frozen") for it in OPEN]


def modes(bench: Bench) -> dict[int, str]:
    return {it.tablet: it.mode for it in bench.heartbeats[CELL].mounted}


def failure(reply: Any) -> Failure:
    assert isinstance(reply, Failure), reply
    return reply


def commit(bench: Bench, number: int) -> Any:
    route = bench.commit_one(bench.begin(), put(number, number))
    bench.answer_oracle()
    return bench.answer(route)


def write(bench: Bench) -> Any:
    request = WriteNonAtomic(NON_ATOMIC, REVISION, bench.timestamp(), True, (put(1, 1),))
    return bench.answer(bench.ask(request))


def prepared(bench: Bench) -> tuple[Any, Any]:
    """A transaction of two cells that holds a row of the tablet. → its start and prepare time."""
    start = bench.begin()
    votes = [bench.prepare(start, put(1, 1), cell=cell) for cell in (0, 1)]
    bench.answer_oracle()
    answers = [bench.answer(vote) for vote in votes]
    return start, max(it.timestamp for it in answers if isinstance(it, Prepared))


def test_a_conflict_from_before_a_freeze_is_found_after_the_freeze() -> None:
    """Its rows are in a chunk by then, and conflicts are looked for in memory."""
    bench = Bench()
    loser = bench.begin()
    bench.commit(put(1, 1))
    bench.assign(CELL, FROZEN)
    assert bench.nodes[CELL].cell.tablets[ATOMIC].stores.chunks
    bench.assign(CELL, OPEN)
    route = bench.commit_one(loser, put(1, 2))
    bench.answer_oracle()
    assert failure(bench.answer(route)).kind == "transaction_conflict"


def test_a_frozen_tablet_is_read_and_not_written() -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    assert isinstance(write(bench), Written)
    bench.assign(CELL, FROZEN)
    assert modes(bench) == {ATOMIC: "frozen", NON_ATOMIC: "frozen"}
    assert bench.read(1) == (1, None)
    for reply in (commit(bench, 2), write(bench)):
        refused = failure(reply)
        assert refused.kind == "table_not_mounted"
        assert refused.attributes["state"] == "frozen"
    assert bench.read(2) is None
    bench.assign(CELL, OPEN)
    assert modes(bench) == {ATOMIC: "mounted", NON_ATOMIC: "mounted"}
    assert isinstance(commit(bench, 2), Committed)
    assert isinstance(write(bench), Written)


def test_freezing_waits_for_locks_and_refuses_new_transactions() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    bench.assign(CELL, FROZEN)
    assert modes(bench)[ATOMIC] == "mounted"
    assert modes(bench)[NON_ATOMIC] == "frozen"
    assert failure(commit(bench, 2)).kind == "table_not_mounted"
    bench.pass_time(0.5)
    assert modes(bench)[ATOMIC] == "mounted"
    assert isinstance(bench.answer(bench.decide(start, at)), Committed)
    bench.settle()
    bench.pass_time(0.5)
    assert modes(bench)[ATOMIC] == "frozen"
    assert bench.read(1) == (1, None)


def test_a_commit_that_waits_for_a_row_is_refused_when_the_tablet_freezes() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    waiting = bench.commit_one(bench.begin(), put(1, 2))
    bench.assign(CELL, FROZEN)
    assert bench.answer(waiting) is None
    bench.decide(start, at)
    bench.settle()
    assert failure(bench.answer(waiting)).kind == "table_not_mounted"
    assert bench.read(1) == (1, None)


@pytest.mark.parametrize("is_back", [True, False])
def test_a_commit_that_waits_for_a_row_is_aborted_when_the_table_is_unmounted(
    is_back: bool,
) -> None:
    """One of its tablets closes at once: nobody holds locks there. It must not commit there."""
    bench = Bench(2)
    other = replace(OPEN[0], tablet=type(ATOMIC)(9), path="//test/other")
    bench.assign(CELL, [*OPEN, other])
    bench.answer_oracle()
    start, at = prepared(bench)
    parts = [TabletModifications(it.tablet, REVISION, (put(1, 5),)) for it in (OPEN[0], other)]
    waiting = bench.ask(CommitOne(bench.begin(), tuple(parts)))
    bench.assign(CELL, OPEN)
    if is_back:
        bench.assign(CELL, [*OPEN, replace(other, revision=Revision(2))])
        bench.answer_oracle()
    bench.decide(start, at)
    bench.settle()
    assert failure(bench.answer(waiting)).kind == "transaction_aborted"
    assert not bench.nodes[CELL].cell.tablets[other.tablet].dump()


def test_a_cell_remembers_a_refusal_so_that_a_late_copy_has_no_effect() -> None:
    bench = Bench()
    bench.assign(CELL, FROZEN)
    start = bench.begin()
    assert failure(bench.answer(bench.commit_one(start, put(1, 1)))).kind == "table_not_mounted"
    bench.assign(CELL, OPEN)
    late = bench.commit_one(start, put(1, 1))
    bench.answer_oracle()
    assert failure(bench.answer(late)).kind == "table_not_mounted"
    assert bench.read(1) is None


def test_a_restart_restores_which_tablets_are_frozen() -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    bench.assign(CELL, FROZEN)
    bench.start(CELL)
    assert modes(bench) == {ATOMIC: "frozen", NON_ATOMIC: "frozen"}
    assert failure(commit(bench, 2)).kind == "table_not_mounted"
    assert bench.read(1) == (1, None)
    bench.assign(CELL, OPEN)
    bench.start(CELL)
    assert modes(bench) == {ATOMIC: "mounted", NON_ATOMIC: "mounted"}
    assert isinstance(commit(bench, 2), Committed)


def test_a_tablet_may_be_mounted_frozen() -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    bench.assign(CELL, [])
    bench.assign(CELL, [replace(it, revision=Revision(2)) for it in FROZEN])
    assert modes(bench) == {}
    bench.answer_oracle()
    assert modes(bench) == {ATOMIC: "frozen", NON_ATOMIC: "frozen"}


def test_a_frozen_tablet_may_be_unmounted() -> None:
    bench = Bench()
    bench.assign(CELL, FROZEN)
    bench.assign(CELL, [])
    assert modes(bench) == {}


def test_new_settings_are_logged_and_applied_during_open_transactions() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    settings = TableSettings(max_data_versions=7)
    bench.assign(CELL, [replace(it, settings=settings) for it in OPEN])
    tablets = bench.nodes[CELL].cell.tablets
    assert [it.assignment.settings for it in tablets.values()] == [settings, settings]
    assert bench.logs[CELL][-1] == TabletAdjusted(NON_ATOMIC, "mounted", settings)
    assert isinstance(bench.answer(bench.decide(start, at)), Committed)
    bench.settle()
    record_count = len(bench.logs[CELL])
    bench.assign(CELL, [replace(it, settings=settings) for it in OPEN])
    assert len(bench.logs[CELL]) == record_count
    bench.start(CELL)
    tablets = bench.nodes[CELL].cell.tablets
    assert [it.assignment.settings for it in tablets.values()] == [settings, settings]


def test_settings_and_freezing_may_come_together() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    settings = TableSettings(min_data_versions=2)
    bench.assign(CELL, [replace(it, settings=settings) for it in FROZEN])
    tablet = bench.nodes[CELL].cell.tablets[ATOMIC]
    assert (tablet.assignment.settings, tablet.assignment.mode) == (settings, "mounted")
    bench.decide(start, at)
    bench.settle()
    bench.pass_time(0.2)
    assert (tablet.assignment.settings, tablet.assignment.mode) == (settings, "frozen")


def test_a_tablet_with_a_new_revision_is_unmounted_before_it_is_mounted_again() -> None:
    """Word of an unmount may have come late: nothing is mounted over a transaction."""
    bench = Bench(2)
    start, at = prepared(bench)
    anew = [replace(OPEN[0], revision=Revision(2)), OPEN[1]]
    bench.assign(CELL, anew)
    assert failure(commit(bench, 2)).kind == "transaction_aborted"
    bench.decide(start, at)
    bench.settle()
    bench.pass_time(0.2)
    assert ATOMIC not in modes(bench)
    bench.assign(CELL, anew)
    bench.answer_oracle()
    assert modes(bench)[ATOMIC] == "mounted"


def test_a_deletion_is_refused_as_a_write_is() -> None:
    bench = Bench()
    bench.commit(put(1, 1))
    bench.assign(CELL, FROZEN)
    route = bench.commit_one(bench.begin(), delete(1))
    assert failure(bench.answer(route)).kind == "table_not_mounted"
    assert bench.read(1) == (1, None)


def test_a_transaction_may_read_a_frozen_tablet_and_write_elsewhere() -> None:
    bench = Bench(2)
    bench.commit(put(1, 1))
    bench.assign(CELL, FROZEN)
    answer = prepare(bench, bench.begin(), row(1))
    assert isinstance(answer, Prepared)
    refused = prepare(bench, bench.begin(), row(2), writes=[put(3, 1)])
    assert failure(refused).attributes["state"] == "frozen"


def test_a_reader_does_not_keep_a_tablet_from_freezing() -> None:
    bench = Bench(2)
    start, at = prepared(bench)
    bench.assign(CELL, FROZEN)
    reading = bench.begin()
    assert failure(prepare(bench, reading, row(5))).kind == "transaction_aborted"
    bench.decide(start, at)
    bench.settle()
    bench.pass_time(0.1)
    assert isinstance(prepare(bench, bench.begin(), row(5)), Prepared)
