"""Rows that a tablet takes over: from its own cell, from others, over losses and restarts."""

from typing import Any

import pytest
from msgspec.structs import replace

from dodona.types import KEY_MAX, KEY_MIN, CellId, Key, Revision, TabletId, Timestamp
from dodona_tablets.core.mounting import importing
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import MountedTablet, TabletAssignment, TabletSource
from dodona_wire.messages.cells import AskRows, TellRows
from dodona_wire.messages.data import CommitOne as Commit
from dodona_wire.messages.data import Committed, TabletModifications
from unit.tablets.cells import (
    ATOMIC,
    NON_ATOMIC,
    SCHEMA,
    Bench,
    assignment,
    changes,
    delete,
    key,
    put,
    update,
)

HERE, THERE = CellId(0), CellId(1)
FIRST, SECOND = TabletId(11), TabletId(12)
OTHER = assignment(NON_ATOMIC, "none")


def wanted(
    tablet: TabletId,
    *sources: TabletSource,
    lower: Key = KEY_MIN,
    upper: Key = KEY_MAX,
    mode: str = "mounted",
    revision: int = 2,
) -> TabletAssignment:
    return TabletAssignment(
        tablet,
        Revision(revision),
        "//test/new",
        SCHEMA.columns,
        "full",
        lower,
        upper,
        mode,
        sources=sources,
    )


def source(cell: CellId, tablet: TabletId = ATOMIC) -> TabletSource:
    return TabletSource(tablet, cell)


def fill(bench: Bench, cell: int, *numbers: int) -> None:
    for number in numbers:
        bench.commit(put(number, number), cell=cell)


def dump(bench: Bench, tablet: TabletId, cell: CellId = HERE) -> list[tuple[int, list[Any]]]:
    it = bench.nodes[cell].cell.tablets[tablet]
    it.stores.check()
    return [(SCHEMA.decode_key(row)[0], versions) for row, versions in it.dump()]


def reported(bench: Bench, cell: CellId = HERE) -> dict[int, str]:
    return {it.tablet: it.mode for it in bench.heartbeats[cell].mounted}


def unmount(bench: Bench, *cells: CellId) -> None:
    for cell in cells:
        bench.assign(cell, [OTHER])


def page(bench: Bench) -> tuple[CellId, Any]:
    (sent,) = bench.in_flight
    bench.in_flight.clear()
    return sent


def exchange(bench: Bench, times: int = 1) -> None:
    """Deliver exactly so many messages between cells."""
    for _ in range(times):
        cell, body = bench.in_flight.pop(0)
        bench.nodes[cell].handle_cell_message(body, bench.now)
        bench.carry_out(cell)


# From the same cell


def test_a_tablet_immediately_takes_over_all_versions_of_rows_of_its_own_cell() -> None:
    bench = Bench()
    fill(bench, 0, 1, 2, 3)
    bench.commit(update(2, b="x"))
    bench.commit(delete(3))
    before = dump(bench, ATOMIC)
    unmount(bench, HERE)
    bench.assign(
        HERE,
        [
            OTHER,
            wanted(FIRST, source(HERE), upper=key(2)),
            wanted(SECOND, source(HERE), lower=key(2)),
        ],
    )
    assert dump(bench, FIRST) + dump(bench, SECOND) == before
    assert [number for number, _ in dump(bench, FIRST)] == [1]
    assert dump(bench, ATOMIC) == before
    bench.answer_oracle()
    assert reported(bench) == {NON_ATOMIC: "mounted", FIRST: "mounted", SECOND: "mounted"}
    bench.start(HERE)
    assert dump(bench, FIRST) + dump(bench, SECOND) == before


def test_a_source_that_is_not_unmounted_yet_is_waited_for() -> None:
    """Here word of the unmount reached the master before all was over."""
    bench = Bench(2)
    start = bench.begin()
    for cell in (0, 1):
        bench.prepare(start, put(1, 1), cell=cell)
    bench.answer_oracle()
    new = [OTHER, wanted(FIRST, source(HERE))]
    bench.assign(HERE, new)
    assert FIRST not in bench.nodes[HERE].cell.tablets
    bench.decide(start, bench.timestamp())
    bench.settle()
    bench.pass_time(0.2)
    bench.assign(HERE, new)
    assert [number for number, _ in dump(bench, FIRST)] == [1]


def test_a_copy_keeps_its_rows_when_its_source_is_mounted_and_changed() -> None:
    bench = Bench()
    fill(bench, 0, 1)
    unmount(bench, HERE)
    copy = wanted(FIRST, source(HERE), mode="unmounted", revision=0)
    again = assignment(ATOMIC, "full", Revision(2))
    bench.assign(HERE, [copy, again, OTHER])
    assert MountedTablet(FIRST, Revision(0), "unmounted") in bench.heartbeats[HERE].mounted
    bench.answer_oracle()
    part = TabletModifications(ATOMIC, Revision(2), (put(2, 2),))
    route = bench.ask(Commit(bench.begin(), (part,)))
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)
    assert [number for number, _ in dump(bench, ATOMIC)] == [1, 2]
    assert [number for number, _ in dump(bench, FIRST)] == [1]
    bench.assign(HERE, [wanted(FIRST, source(HERE), revision=3), again, OTHER])
    bench.answer_oracle()
    assert reported(bench)[FIRST] == "mounted"
    assert [number for number, _ in dump(bench, FIRST)] == [1]
    bench.start(HERE)
    assert [number for number, _ in dump(bench, FIRST)] == [1]
    assert [number for number, _ in dump(bench, ATOMIC)] == [1, 2]


def test_a_source_that_is_mounted_too_early_is_closed_and_copied_first() -> None:
    bench = Bench()
    fill(bench, 0, 1)
    copy = wanted(FIRST, source(HERE), mode="unmounted", revision=0)
    for _ in range(2):  # closing takes a flush, and then the master says again what it wants
        bench.assign(HERE, [copy, assignment(ATOMIC, "full", Revision(2)), OTHER])
    bench.answer_oracle()
    assert [number for number, _ in dump(bench, FIRST)] == [1]
    assert MountedTablet(ATOMIC, Revision(2)) in bench.heartbeats[HERE].mounted


def test_a_cell_reports_a_copy_until_the_master_has_received_the_report() -> None:
    bench = Bench()
    unmount(bench, HERE)
    copy = wanted(FIRST, source(HERE), mode="unmounted", revision=0)
    bench.assign(HERE, [copy, OTHER])
    assert reported(bench)[FIRST] == "unmounted"
    sequence = bench.heartbeats[HERE].sequence
    bench.assign(HERE, [copy, OTHER])
    assert bench.heartbeats[HERE].sequence == sequence  # once is enough, until the next is due
    bench.start(HERE)
    bench.assign(HERE, [copy, OTHER])
    assert reported(bench)[FIRST] == "unmounted"
    bench.assign(HERE, [OTHER])
    bench.pass_time(0.5)
    assert FIRST not in reported(bench)


def test_a_source_that_is_not_here_is_not_one_without_rows() -> None:
    """It was here once, so that it may have had some: they were lost, or dropped."""
    bench = Bench()
    bench.assign(HERE, [OTHER, wanted(FIRST, source(HERE, TabletId(99)))])
    bench.answer_oracle()
    assert FIRST not in bench.nodes[HERE].cell.tablets


# From other cells


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "PAGE_ROWS_MAX", 2)


def divided(bench: Bench) -> None:
    """A tablet takes over rows 2 to 8 of both cells; rows 0 to 9 are there, odd ones in cell 1."""
    fill(bench, 0, 0, 2, 4, 6, 8)
    fill(bench, 1, 1, 3, 5, 7, 9)
    unmount(bench, HERE, THERE)
    new = wanted(FIRST, source(HERE), source(THERE), lower=key(2), upper=key(9))
    bench.assign(HERE, [OTHER, new])


@pytest.mark.usefixtures("small_pages")
def test_rows_of_another_cell_come_in_pages_and_are_served_when_all_are_there() -> None:
    bench = Bench(2)
    divided(bench)
    bench.answer_oracle()
    assert FIRST not in reported(bench)
    exchange(bench, 2)  # one page: 3 and 5
    assert [number for number, _ in dump(bench, FIRST)] == [2, 3, 4, 5, 6, 8]
    bench.answer_oracle()
    assert FIRST not in reported(bench)
    bench.deliver()
    assert [number for number, _ in dump(bench, FIRST)] == [2, 3, 4, 5, 6, 7, 8]
    assert reported(bench)[FIRST] == "mounted"
    bench.start(HERE)
    assert [number for number, _ in dump(bench, FIRST)] == [2, 3, 4, 5, 6, 7, 8]
    assert reported(bench)[FIRST] == "mounted"


def test_pages_are_asked_for_while_the_log_has_room() -> None:
    bench = Bench(2)
    divided(bench)
    bench.in_flight.clear()  # the question is lost
    bench.nodes[HERE].note_log(0, 0.9, bench.now)
    bench.pass_time(5)
    assert not bench.in_flight
    bench.nodes[HERE].note_log(0, 0.1, bench.now)
    bench.pass_time(0.2)
    assert isinstance(page(bench)[1], AskRows)


@pytest.mark.usefixtures("small_pages")
def test_a_lost_page_is_asked_for_again_and_a_repeated_one_is_taken_once() -> None:
    bench = Bench(2)
    divided(bench)
    bench.in_flight.clear()  # the question is lost
    bench.pass_time(0.5)
    assert not bench.in_flight
    bench.pass_time(1)
    _, question = page(bench)
    bench.nodes[THERE].handle_cell_message(question, bench.now)
    bench.nodes[THERE].handle_cell_message(question, bench.now)
    bench.carry_out(THERE)
    first, again = bench.in_flight
    bench.in_flight.clear()
    for _, body in (first, again):
        bench.nodes[HERE].handle_cell_message(body, bench.now)
        bench.carry_out(HERE)
    (next_question,) = [body for _, body in bench.in_flight]
    assert isinstance(next_question, AskRows)
    assert next_question.lower > key(5)
    bench.deliver()
    bench.nodes[HERE].handle_cell_message(first[1], bench.now)  # much later
    bench.carry_out(HERE)
    assert [number for number, _ in dump(bench, FIRST)] == [2, 3, 4, 5, 6, 7, 8]
    assert all(len(versions) == 1 for _, versions in dump(bench, FIRST))


@pytest.mark.usefixtures("small_pages")
def test_an_import_continues_after_a_restart_from_the_last_page() -> None:
    bench = Bench(2)
    divided(bench)
    exchange(bench, 2)
    bench.in_flight.clear()
    record_count = len(bench.logs[HERE])
    bench.start(HERE)
    bench.answer_oracle()
    assert FIRST not in reported(bench)
    bench.pass_time(0.2)
    _, question = page(bench)
    assert question.lower > key(5)
    bench.in_flight.append((THERE, question))
    bench.deliver()
    assert len(bench.logs[HERE]) == record_count + 1
    assert [number for number, _ in dump(bench, FIRST)] == [2, 3, 4, 5, 6, 7, 8]
    assert reported(bench)[FIRST] == "mounted"


def test_a_cell_sends_rows_only_after_its_tablet_is_unmounted() -> None:
    bench = Bench(2)
    fill(bench, 1, 1)
    unmount(bench, HERE)
    bench.assign(HERE, [OTHER, wanted(FIRST, source(THERE))])
    bench.deliver()
    assert FIRST not in reported(bench)
    unmount(bench, THERE)
    bench.pass_time(1.5)
    bench.settle()
    assert reported(bench)[FIRST] == "mounted"
    assert [number for number, _ in dump(bench, FIRST)] == [1]


def test_a_cell_without_the_tablet_does_not_answer_a_request_for_rows() -> None:
    bench = Bench(2)
    bench.assign(HERE, [OTHER, wanted(FIRST, source(THERE, TabletId(99)))])
    bench.pass_time(3)
    bench.settle()
    assert FIRST not in reported(bench)
    assert bench.nodes[HERE].cell.tablets[FIRST].missing


def test_a_tablet_with_missing_rows_refuses_commits() -> None:
    bench = Bench(2)
    divided(bench)
    bench.in_flight.clear()
    bench.answer_oracle()
    part = replace(changes(put(3, 3)), tablet=FIRST, revision=Revision(2))
    reply = bench.answer(bench.ask(Commit(bench.begin(), (part,))))
    assert isinstance(reply, Failure)
    assert reply.kind == "tablet_moved"
    bench.start(HERE)  # nor by its cell's fence after a restart
    assert FIRST not in reported(bench)


def test_an_unassigned_tablet_stops_asking_for_rows_and_sends_none() -> None:
    bench = Bench(2)
    divided(bench)
    bench.in_flight.clear()
    unmount(bench, HERE)
    bench.pass_time(2)
    assert not bench.in_flight
    question = AskRows(THERE, FIRST, SECOND, KEY_MIN, KEY_MAX)
    bench.nodes[HERE].handle_cell_message(question, bench.now)
    bench.carry_out(HERE)
    assert not bench.in_flight


def test_the_number_of_pages_requested_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "PAGES_ASKED_MAX", 2)
    bench = Bench(2)
    fill(bench, 1, 1, 2, 3, 4)
    unmount(bench, HERE, THERE)
    bounds = [KEY_MIN, key(2), key(3), key(4), KEY_MAX]
    new = [
        wanted(TabletId(20 + at), source(THERE), lower=bounds[at], upper=bounds[at + 1])
        for at in range(4)
    ]
    bench.assign(HERE, [OTHER, *new])
    assert len(bench.in_flight) == 2
    bench.settle()
    assert {20, 21, 22, 23} < set(reported(bench))


def test_a_page_ends_with_the_row_that_exceeds_its_byte_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importing, "PAGE_BYTES_MAX", 500)
    bench = Bench(2)
    for number in range(6):
        bench.commit(put(number, number, "x" * 200), cell=1)
    unmount(bench, HERE, THERE)
    bench.assign(HERE, [OTHER, wanted(FIRST, source(THERE))])
    exchange(bench)
    _, body = page(bench)
    assert isinstance(body, TellRows)
    assert len(body.rows) == 2
    bench.in_flight.append((HERE, body))
    bench.deliver()
    assert [number for number, _ in dump(bench, FIRST)] == [*range(6)]


def test_the_retained_timestamp_comes_along() -> None:
    bench = Bench(2)
    for cell, retained in ((HERE, 40), (THERE, 70)):
        bench.nodes[cell].cell.tablets[ATOMIC].retained_timestamp = Timestamp(retained)
    unmount(bench, HERE, THERE)
    bench.assign(HERE, [OTHER, wanted(FIRST, source(HERE))])
    assert bench.nodes[HERE].cell.tablets[FIRST].retained_timestamp == 40
    bench.assign(HERE, [OTHER, wanted(SECOND, source(HERE), source(THERE))])
    bench.settle()
    it: Tablet = bench.nodes[HERE].cell.tablets[SECOND]
    assert it.retained_timestamp == 70


def test_a_transaction_that_began_before_the_import_ended_is_refused() -> None:
    """Their lock times did not come along: nobody is let in whom they could stop."""
    bench = Bench(2)
    divided(bench)
    early = bench.begin()
    bench.settle()
    part = replace(changes(put(3, 3)), tablet=FIRST, revision=Revision(2))
    reply = bench.answer(bench.ask(Commit(early, (part,))))
    assert isinstance(reply, Failure)
    assert reply.kind == "snapshot_too_old"
    late = bench.ask(Commit(bench.begin(), (part,)))
    bench.answer_oracle()
    assert isinstance(bench.answer(late), Committed)
