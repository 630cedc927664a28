"""Reads of serializable transactions: what a cell refuses, and what it holds until the outcome.

Columns `b` and `c` are in lock groups of their own.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from dodona.schema import TableSchema
from dodona.types import CellId, Timestamp, TransactionId
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.commit.admission import READS_MAX
from dodona_tablets.core.records import PreparedHere
from dodona_tablets.core.upkeep.horizon import oldest_needed
from dodona_wire.messages.base import Failure
from dodona_wire.messages.conditions import RowCondition, TabletConditions
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    ConditionalCommit,
    Prepare,
    Prepared,
    Publication,
    RowLock,
    TabletModifications,
    ValidatedCommit,
)
from dodona_wire.messages.reads import ReadRange
from dodona_wire.types import LoadId
from unit.tablets.cells import ATOMIC, REVISION, SECOND, Bench, changes, delete, key, put, update
from unit.tablets.loads import Loading
from unit.tablets.owners import LEASE_MS, granted, is_waiting, locked, new_owner
from unit.tablets.owners import ask as ask_locks
from unit.tablets.owners import commit as commit_of_owner
from unit.tablets.reading import (
    BOTH,
    GROUP_B,
    MAIN,
    ask_one,
    ask_prepare,
    commit,
    conflict,
    part,
    prepare,
    reader,
    row,
    span,
    tablet,
)

THREE_GROUPS = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "int64"},
        {"name": "b", "type": "utf8", "lock": "group_b"},
        {"name": "c", "type": "int64", "lock": "group_c"},
    ]
)
ALL_THREE = 7


@pytest.fixture
def bench() -> Bench:
    return Bench(2)


@pytest.fixture
def grouped() -> Bench:
    return Bench(2, schema=THREE_GROUPS)


# What is not valid any more


@pytest.mark.parametrize("read", [row(5), span(3, 8), span(5, 6), span(4, 5), row(4)])
@pytest.mark.parametrize("change", [put(5, 1), update(5, b="x"), delete(5)])
def test_a_change_after_the_start_is_found_in_what_was_read(
    bench: Bench, read: ReadRange, change: Any
) -> None:
    bench.commit(put(5, 0))
    start = bench.begin()
    at = bench.commit(change)
    answer = commit(bench, start, read, writes=[put(100, 1)])
    if not read.lower <= key(5) < read.upper:
        assert isinstance(answer, Committed)
        return
    found = conflict(answer)
    assert found["winner_timestamp"] == at
    assert found["start_timestamp"] == start
    assert bench.read(100) is None


def test_a_row_that_was_absent_is_found_when_it_comes(bench: Bench) -> None:
    start = bench.begin()
    bench.commit(put(5, 1))
    assert conflict(commit(bench, start, row(5), writes=[put(100, 1)]))["key"] == {"id": 5}


def test_an_error_of_a_range_names_it(bench: Bench) -> None:
    start = bench.begin()
    bench.commit(put(256, 1))
    open_ended = ReadRange(key(250), tablet(bench).assignment.upper, 3)
    found = conflict(commit(bench, start, open_ended, writes=[put(1, 1)]))
    assert (found["range"], found["key"]) == ([[250], None], {"id": 256})
    behind_a_row = ReadRange(key(0), row(256).upper, 3)
    found = conflict(commit(bench, TransactionId(start - 1), behind_a_row, writes=[put(1, 1)]))
    assert found["range"] == [[0], [256]]


def test_changes_before_the_start_are_no_conflict(bench: Bench) -> None:
    bench.commit(put(5, 1))
    start = bench.begin()
    assert isinstance(commit(bench, start, row(5), span(0, 9), writes=[put(5, 2)]), Committed)
    assert bench.read(5) == (2, None)


def test_a_change_of_another_group_is_no_conflict_unless_the_row_was_absent(
    grouped: Bench,
) -> None:
    grouped.commit((key(1), 7, (0, "x", 0)))
    starts = [grouped.begin() for _ in range(3)]
    grouped.commit((key(1), 4, (1,)), (key(2), 4, (1,)))
    reads = row(1, GROUP_B), span(1, 2, GROUP_B)
    assert isinstance(commit(grouped, starts[0], *reads, writes=[(key(9), 4, (1,))]), Committed)
    for start, read in zip(starts[1:], (row(2, GROUP_B), span(1, 3, GROUP_B)), strict=True):
        found = conflict(commit(grouped, start, read, writes=[(key(8), 4, (2,))]))
        assert found["key"] == {"id": 2}


def test_rows_are_walked_where_recent_changes_are_not_known(bench: Bench) -> None:
    early = bench.begin()
    bench.commit(put(5, 1))
    assert commit(bench, bench.begin(), span(0, 9), writes=[put(100, 1)])
    assert tablet(bench).recent is None, "nothing is newer than that transaction"
    late = bench.begin()
    bench.commit(put(6, 1))
    assert conflict(commit(bench, early, span(0, 6), writes=[put(100, 1)]))["key"] == {"id": 5}
    recent = tablet(bench).recent
    assert recent is not None
    assert early < recent.complete_after
    assert conflict(commit(bench, late, span(0, 9), writes=[put(100, 1)]))["key"] == {"id": 6}
    later = bench.begin()
    bench.commit(put(7, 1))
    assert recent.changed_after(Timestamp(later), key(0), key(9)) == [key(7)]
    assert conflict(commit(bench, later, span(0, 9), writes=[put(100, 1)]))["key"] == {"id": 7}
    assert isinstance(
        commit(bench, TransactionId(later - 1), span(8, 9), writes=[put(100, 1)]), Committed
    )


# Writers of what was read


def test_a_writer_that_commits_now_is_met(bench: Bench) -> None:
    first, second = bench.begin(), bench.begin()
    bench.ask(CommitOne(second, (changes(put(5, 1)),)))
    for read in (row(5), span(0, 9)):
        found = conflict(commit_held(bench, first, read))
        assert found["winner"] == second
        first = TransactionId(first - 1)


def commit_held(bench: Bench, start: TransactionId, read: ReadRange) -> Any:
    """The answer before the oracle's."""
    return bench.answer(ask_one(bench, start, read, writes=[put(100, 1)]))


@pytest.mark.parametrize("commits", [True, False])
def test_a_writer_that_was_prepared_before_the_start_is_waited_for(
    bench: Bench, commits: bool
) -> None:
    writer = bench.begin()
    bench.prepare(writer, put(5, 1), cell=0)
    bench.answer_oracle()
    start = bench.begin()
    route = ask_one(bench, start, span(0, 9), writes=[put(100, 1)])
    bench.answer_oracle()
    assert bench.answer(route) is None
    bench.decide(writer, bench.timestamp() if commits else None)
    bench.settle()
    answer = bench.answer(route)
    if commits:
        assert conflict(answer)["key"] == {"id": 5}
    else:
        assert isinstance(answer, Committed)


def test_a_lock_without_data_changes_nothing(bench: Bench) -> None:
    locker = bench.begin()
    lock = RowLock(key(5), 3, "exclusive")
    bench.ask(CommitOne(locker, (changes(put(6, 1), locks=(lock,)),)))
    assert isinstance(commit(bench, bench.begin(), row(5), writes=[put(7, 1)]), Committed)


def test_a_writer_of_another_group_counts_if_the_row_is_absent(grouped: Bench) -> None:
    grouped.commit((key(1), 7, (0, "x", 0)))
    first = grouped.begin()
    writer = grouped.begin()
    grouped.ask(CommitOne(writer, (changes((key(1), 4, (1,)), (key(2), 4, (1,))),)))
    assert conflict(commit_held(grouped, first, row(2, GROUP_B)))["winner"] == writer
    route = ask_one(grouped, TransactionId(first - 1), row(1, GROUP_B), writes=[(key(9), 2, ("",))])
    grouped.answer_oracle()
    assert isinstance(grouped.answer(route), Committed)


# Readers that writers meet


@pytest.mark.parametrize("read", [row(5), span(3, 8)])
def test_what_was_read_is_held_until_the_outcome(bench: Bench, read: ReadRange) -> None:
    early = bench.begin()
    holder = reader(bench, read)
    refused = conflict(prepare(bench, early, writes=[put(5, 1)]))
    assert (refused["winner"], refused["key"]) == (holder, {"id": 5})
    late = bench.begin()
    waiting = [
        ask_prepare(bench, late, writes=[put(5, 1)]),
        bench.commit_one(TransactionId(early - 1), put(5, 3)),
        bench.commit_blind(bench.begin(), put(5, 2)),
    ]
    bench.answer_oracle()
    assert is_waiting(bench, *waiting)
    assert isinstance(bench.try_commit(put(8, 1)), Committed), "the end of a range is not in it"
    bench.decide(holder, None)
    bench.settle()
    assert isinstance(bench.answer(waiting[0]), Prepared)
    assert tablet(bench).read_holds is None


def test_readers_do_not_meet_each_other(bench: Bench) -> None:
    reader(bench, row(5), span(0, 9))
    assert isinstance(prepare(bench, bench.begin(), row(5), span(4, 6)), Prepared)


def test_a_row_that_was_read_twice_is_let_go_once(bench: Bench) -> None:
    holder = reader(bench, row(5, MAIN), row(5, GROUP_B), span(0, 9, MAIN))
    other = reader(bench, row(5))
    bench.decide(holder, None)
    bench.settle()
    holds = tablet(bench).read_holds
    assert holds is not None
    assert [it.transaction.id for it in holds] == [other]


def test_a_group_that_was_not_read_may_be_written(grouped: Bench) -> None:
    grouped.commit((key(1), 7, (0, "x", 0)))
    reader(grouped, row(1, GROUP_B), row(2, GROUP_B))
    assert isinstance(grouped.try_commit((key(1), 4, (1,))), Committed)
    waits = grouped.commit_one(grouped.begin(), (key(2), 4, (1,)))
    grouped.answer_oracle()
    assert is_waiting(grouped, waits), "it would create a row that was found absent"


def test_a_cell_that_was_only_read_holds_its_reads_over_a_restart(bench: Bench) -> None:
    holder = reader(bench, span(0, 9))
    (record,) = [it for it in bench.appended[CellId(0)] if isinstance(it, PreparedHere)]
    assert record.modifications == (part((span(0, 9),)),)
    bench.start(CellId(0))
    bench.assign(CellId(0), bench.tables)
    bench.answer_oracle()
    writing = bench.commit_one(bench.begin(), put(5, 1))
    bench.answer_oracle()
    assert is_waiting(bench, writing)
    bench.decide(holder, None)
    bench.settle()
    assert isinstance(bench.answer(writing), Committed)


def test_two_that_read_what_the_other_writes_do_not_both_commit(bench: Bench) -> None:
    first, second = bench.begin(), bench.begin()
    one = ask_one(bench, first, span(0, 9), writes=[put(1, 1)])
    other = ask_one(bench, second, span(0, 9), writes=[put(2, 1)])
    bench.answer_oracle()
    assert isinstance(bench.answer(one), Committed)
    conflict(bench.answer(other))


# Loads


def test_a_load_that_was_published_after_the_start_is_found(bench: Bench) -> None:
    start = bench.begin()
    load = Loading(bench)
    load.bring({5: 1, 6: 1})
    assert isinstance(load.publish(), Committed)
    for read in (row(5), span(0, 9)):
        conflict(commit(bench, start, read, writes=[put(100, 1)]))
        start = TransactionId(start - 1)
    assert isinstance(commit(bench, start, row(4), span(10, 20), writes=[put(9, 1)]), Committed)


def test_a_load_that_is_being_published_is_met(bench: Bench) -> None:
    start = bench.begin()
    load = Loading(bench)
    load.bring({5: 1})
    publisher = bench.begin()
    load.ask_publish(publisher)
    found = conflict(commit_held(bench, start, span(0, 9)))
    assert found["winner"] == publisher


def test_a_load_waits_for_a_reader_or_is_refused(bench: Bench) -> None:
    load = Loading(bench)
    load.bring({5: 1})
    load.bring({5: 1}, cell=1)
    early = bench.begin()
    holder = reader(bench, span(0, 9))
    route = load.prepare(early, 0)
    bench.answer_oracle()
    assert conflict(bench.answer(route))["winner"] == holder
    publishing = load.ask_publish()
    bench.answer_oracle()
    assert is_waiting(bench, publishing)
    bench.decide(holder, None)
    bench.settle()
    assert isinstance(bench.answer(publishing), Committed)


# Early locks


def test_reads_pass_early_locks_and_grants_pass_reads(bench: Bench) -> None:
    owner = locked(bench, 5)
    holder = reader(bench, row(5), span(0, 9))
    other = ask_locks(bench, new_owner(bench), 6)
    assert granted(bench, other) == [True]
    writing = commit_of_owner(bench, owner, put(5, 1))
    assert writing is None, "the owner waits for the reader"
    bench.decide(holder, None)
    bench.settle()
    assert bench.read(5) == (1, None)
    assert LEASE_MS > 0


# Forms


def test_reads_have_a_form(bench: Bench) -> None:
    backwards = ReadRange(key(9), key(0), 3)
    outside = ReadRange(key(9), b"\xff\xff", 3)  # type: ignore[arg-type]
    for read in (backwards, outside, row(1, 0), row(1, 8)):
        answer = commit(bench, bench.begin(), read, writes=[put(1, 1)])
        assert isinstance(answer, Failure)
        assert answer.kind == "invalid_request"
    many = [row(number) for number in range(READS_MAX + 1)]
    assert commit(bench, bench.begin(), *many, writes=[put(1, 1)]).kind == "limit_exceeded"
    assert isinstance(commit(bench, bench.begin(), *many[1:], writes=[put(1, 1)]), Committed)


def test_a_blind_transaction_and_a_publication_read_nothing(bench: Bench) -> None:
    blind = CommitOne(bench.begin(), (part((row(1),), put(1, 1)),), is_blind=True)
    publication = Publication(LoadId(1), ())
    load = TabletModifications(ATOMIC, REVISION, (), publication=publication, reads=(row(1),))
    for request in (blind, CommitOne(bench.begin(), (load,))):
        answer = bench.answer(bench.ask(ValidatedCommit(request)))
        assert isinstance(answer, Failure)
        assert answer.kind == "invalid_request"


# A new attempt, whose start is later than its reads


def refresh(bench: Bench, since: TransactionId, *reads: ReadRange, writes: Any) -> Any:
    """The answer to a new attempt of a transaction that has read at `since`."""
    request = CommitOne(bench.begin(), (part(reads, *writes),))
    route = bench.ask(ValidatedCommit(request, Timestamp(since)))
    bench.answer_oracle()
    return bench.answer(route)


def test_a_new_attempt_is_checked_from_when_it_read(bench: Bench) -> None:
    since = bench.begin()
    bench.commit(put(5, 1))
    bench.commit(put(7, 1))
    assert isinstance(refresh(bench, since, row(6), writes=[put(5, 2)]), Committed)
    assert conflict(refresh(bench, since, span(6, 9), writes=[put(5, 3)]))["key"] == {"id": 7}
    assert bench.read(5) == (2, None)


def test_a_new_attempt_waits_for_a_writer_that_was_prepared_before_its_start(bench: Bench) -> None:
    since = bench.begin()
    writer = bench.begin()
    bench.prepare(writer, put(5, 1), cell=0)
    bench.answer_oracle()
    request = CommitOne(bench.begin(), (part((row(5),), put(9, 1)),))
    route = bench.ask(ValidatedCommit(request, Timestamp(since)))
    assert is_waiting(bench, route)
    bench.decide(writer, bench.timestamp())
    bench.settle()
    assert conflict(bench.answer(route))["key"] == {"id": 5}


def test_what_a_new_attempt_has_read_is_needed_while_it_waits(bench: Bench) -> None:
    since, writer = bench.begin(), bench.begin()
    bench.prepare(writer, put(5, 1), cell=0)
    bench.answer_oracle()
    request = CommitOne(bench.begin(), (part((row(5),), put(9, 1)),))
    route = bench.ask(ValidatedCommit(request, Timestamp(since)))
    assert is_waiting(bench, route)
    cell = bench.nodes[CellId(0)].cell
    bench.oracle += 100 * SECOND
    bench.commit(put(50, 1))  # now the cell knows the time
    assert oldest_needed(cell) == since - 1


def test_conditions_beside_reads_are_checked_in_a_frozen_tablet(bench: Bench) -> None:
    bench.commit(put(5, 1))
    frozen = [replace(it, mode="frozen") for it in bench.tables]
    bench.assign(CellId(0), frozen)
    answers = []
    for is_absent in (True, False):
        request = Prepare(bench.begin(), BOTH, (part((row(6),)),))
        rows = (RowCondition(key(5), is_absent=is_absent, version=Timestamp(not is_absent)),)
        under = ConditionalCommit(request, (TabletConditions(ATOMIC, rows),))
        route = bench.ask(ValidatedCommit(under))
        bench.answer_oracle()
        answers.append(bench.answer(route))
    assert [it.kind for it in answers] == ["prerequisite_failed"] * 2  # type: ignore[union-attr]
    held = RowCondition(key(6), is_absent=True)
    under = ConditionalCommit(
        Prepare(bench.begin(), BOTH, (part((row(6),)),)), (TabletConditions(ATOMIC, (held,)),)
    )
    route = bench.ask(ValidatedCommit(under))
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Prepared)


def test_a_new_attempt_is_not_younger_than_its_reads(bench: Bench) -> None:
    since = bench.begin()
    bench.start(CellId(0))
    bench.assign(CellId(0), bench.tables)
    bench.answer_oracle()
    assert refresh(bench, since, row(5), writes=[put(9, 1)]).kind == "snapshot_too_old"
    since = bench.begin()
    bench.pass_time(61)
    bench.commit(put(1, 1))  # now the cell knows the time
    assert refresh(bench, since, row(5), writes=[put(9, 1)]).kind == "snapshot_too_old"


# A wait that takes too long


def test_a_wait_for_a_reader_or_a_writer_names_it() -> None:
    bench = Bench(2, CellLimits(blocked_wait_ms_max=1_000))
    holder = reader(bench, span(0, 9))
    writing = bench.commit_one(bench.begin(), put(5, 1))
    writer = bench.begin()
    bench.prepare(writer, put(20, 1), cell=0)
    bench.answer_oracle()
    reading = ask_one(bench, bench.begin(), span(19, 30), writes=[put(40, 1)])
    bench.pass_time(1.5)
    for route, number, winner in ((writing, 5, holder), (reading, 20, writer)):
        answer = bench.answer(route)
        assert isinstance(answer, Failure)
        assert "Timed out waiting" in answer.message
        assert (answer.attributes["key"], answer.attributes["winner"]) == ({"id": number}, winner)
