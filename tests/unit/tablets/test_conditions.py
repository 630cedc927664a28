"""Conditions of a commit: what a cell checks, when, and what it keeps until the outcome.

Column `b` is in a lock group of its own.
"""

from collections.abc import Callable
from typing import Any

import pytest

from dodona.schema import TableSchema
from dodona.types import CellId, Key, Timestamp, TransactionId
from dodona_tablets.core.records import CommittedHere, PreparedHere
from dodona_wire.messages.base import Failure
from dodona_wire.messages.conditions import RowCondition, TabletConditions
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    ConditionalCommit,
    OutcomeUnknown,
    Prepare,
    Prepared,
    Publication,
    RowLock,
    TabletModifications,
)
from dodona_wire.rows.conditions import CONDITIONS_MAX, SHOWN_BYTES_MAX
from dodona_wire.types import LoadId, TabletId
from unit.tablets.cells import ATOMIC, REVISION, Bench, changes, delete, key, put, update
from unit.tablets.cold import NO_COMPACTION, cold, numbers

A, B = 1, 2
"""Masks of columns."""
THREE_GROUPS = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "int64"},
        {"name": "b", "type": "utf8", "lock": "group_b"},
        {"name": "c", "type": "int64", "lock": "group_c"},
    ]
)
BOTH = (CellId(0), CellId(1))


def absent(number: int) -> RowCondition:
    return RowCondition(key(number), is_absent=True)


def version(number: int, at: Timestamp) -> RowCondition:
    return RowCondition(key(number), version=at)


def expect(number: int, mask: int, *values: Any) -> RowCondition:
    return RowCondition(key(number), column_mask=mask, values=values)


def under(*rows: RowCondition) -> tuple[TabletConditions, ...]:
    return (TabletConditions(ATOMIC, rows),)


@pytest.fixture
def bench() -> Bench:
    return Bench(2)


def ask_one(
    bench: Bench,
    *rows: RowCondition,
    writes: Any = (),
    start: TransactionId | None = None,
    is_blind: bool = False,
) -> object:
    start = bench.begin() if start is None else start
    request = CommitOne(start, (changes(*writes),), is_blind)
    return bench.ask(ConditionalCommit(request, under(*rows)))


def commit_if(bench: Bench, *rows: RowCondition, **how: Any) -> Any:
    route = ask_one(bench, *rows, **how)
    bench.answer_oracle()
    return bench.answer(route)


def ask_prepare(bench: Bench, start: TransactionId, *rows: RowCondition, writes: Any = ()) -> Any:
    return bench.ask(ConditionalCommit(Prepare(start, BOTH, (changes(*writes),)), under(*rows)))


def prepare_if(bench: Bench, start: TransactionId, *rows: RowCondition, writes: Any = ()) -> Any:
    route = ask_prepare(bench, start, *rows, writes=writes)
    bench.answer_oracle()
    return bench.answer(route)


def prepare(bench: Bench, *writes: Any) -> TransactionId:
    """A transaction that this cell has prepared, and not decided."""
    start = bench.begin()
    route = bench.prepare(start, *writes, cell=0)
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Prepared)
    return start


def failed(answer: Any) -> tuple[str, Any, Any]:
    """The condition that failed, what it asked for, and what there was."""
    assert isinstance(answer, Failure), answer
    assert answer.kind == "prerequisite_failed", answer
    found = answer.attributes
    assert found["table"] == "//test/full"
    assert found["tablet"] == ATOMIC
    return found["condition"], found["expected"], found["found"]


def flush(bench: Bench) -> None:
    cell = bench.nodes[CellId(0)]
    cell._flushing.rotate(cell.cell.tablets[ATOMIC])
    let_time_pass(bench)
    tablet = cell.cell.tablets[ATOMIC]
    assert not tablet.stores.passive, "rows are still in memory"
    assert not tablet.stores.active.rows


def let_time_pass(bench: Bench) -> None:
    """Long enough to forget all transactions of today, and to drop what only they need."""
    for _ in range(20):
        bench.pass_time(10)
        bench.answer_oracle()


def in_memory(bench: Bench) -> None: ...


EVERYWHERE = pytest.mark.parametrize("settle", [in_memory, flush])
HOW = pytest.mark.parametrize("is_blind", [False, True])


# ---- what is checked


@HOW
@EVERYWHERE
def test_a_row_is_inserted_if_it_is_absent(
    bench: Bench, settle: Callable[[Bench], None], is_blind: bool
) -> None:
    bench.commit(put(2, 2))
    settle(bench)
    assert isinstance(commit_if(bench, absent(1), writes=[put(1, 1)], is_blind=is_blind), Committed)
    assert bench.read(1) == (1, None)


@HOW
@EVERYWHERE
def test_a_row_that_is_there_is_found_with_its_version(
    bench: Bench, settle: Callable[[Bench], None], is_blind: bool
) -> None:
    at = bench.commit(put(1, 1))
    settle(bench)
    answer = commit_if(bench, absent(1), writes=[put(1, 5)], is_blind=is_blind)
    assert failed(answer) == ("if_absent", None, at)
    assert answer.attributes["key"] == {"id": 1}
    assert bench.read(1) == (1, None)


@EVERYWHERE
def test_a_deleted_row_is_absent(bench: Bench, settle: Callable[[Bench], None]) -> None:
    at = bench.commit(put(1, 1))
    bench.commit(delete(1))
    settle(bench)
    assert failed(commit_if(bench, version(1, at))) == ("if_version", at, None)
    assert failed(commit_if(bench, expect(1, A, 1))) == ("expect", {"a": 1}, None)
    assert failed(commit_if(bench, expect(1, A, None))) == ("expect", {"a": None}, None)
    assert isinstance(commit_if(bench, absent(1), writes=[put(1, 1)]), Committed)


@HOW
@EVERYWHERE
def test_the_version_of_a_row_is_that_of_its_newest_change(
    bench: Bench, settle: Callable[[Bench], None], is_blind: bool
) -> None:
    first = bench.commit(put(1, 1))
    second = bench.commit(update(1, b="x"))
    settle(bench)
    old = commit_if(bench, version(1, first), writes=[update(1, a=2)], is_blind=is_blind)
    assert failed(old) == ("if_version", first, second)
    assert isinstance(
        commit_if(bench, version(1, second), writes=[update(1, a=2)], is_blind=is_blind), Committed
    )
    assert bench.read(1) == (2, "x")


@EVERYWHERE
def test_values_are_compared_column_by_column(
    bench: Bench, settle: Callable[[Bench], None]
) -> None:
    bench.commit(put(1, 1, "x"))
    bench.commit(update(1, a=2))
    settle(bench)
    assert failed(commit_if(bench, expect(1, A | B, 1, "x"))) == ("expect", {"a": 1}, {"a": 2})
    assert failed(commit_if(bench, expect(1, A | B, 2, None))) == (
        "expect",
        {"b": None},
        {"b": "x"},
    )
    both = RowCondition(key(1), version=Timestamp(5), column_mask=A, values=(2,))
    assert failed(commit_if(bench, both))[0] == "if_version"
    assert isinstance(commit_if(bench, expect(1, A | B, 2, "x")), Committed)


def test_the_newest_version_counts_and_not_that_of_the_start(bench: Bench) -> None:
    start = bench.begin()
    at = bench.commit(put(1, 1))
    answer = commit_if(bench, absent(1), writes=[put(1, 5)], start=start)
    assert failed(answer) == ("if_absent", None, at), "not as a conflict, which would be rerun"
    assert isinstance(commit_if(bench, version(1, at), start=TransactionId(start - 1)), Committed)


def test_a_condition_that_holds_does_not_hide_a_conflict_of_the_write(bench: Bench) -> None:
    start = bench.begin()
    at = bench.commit(put(1, 1))
    answer = commit_if(bench, version(1, at), writes=[update(1, a=2)], start=start)
    assert answer.kind == "transaction_conflict"


# ---- repeats


@HOW
def test_a_repeated_commit_does_not_meet_its_own_write(bench: Bench, is_blind: bool) -> None:
    start = bench.begin()
    first = commit_if(bench, absent(1), writes=[put(1, 1)], start=start, is_blind=is_blind)
    again = commit_if(bench, absent(1), writes=[put(1, 1)], start=start, is_blind=is_blind)
    assert isinstance(first, Committed)
    assert again == first


def test_a_repeated_request_of_a_refused_one_gets_the_first_answer(bench: Bench) -> None:
    start = bench.begin()
    bench.commit(put(1, 1))
    first = commit_if(bench, absent(1), writes=[put(1, 2)], start=start)
    bench.commit(delete(1))
    assert commit_if(bench, absent(1), writes=[put(1, 2)], start=start) == first


def test_a_repeated_prepare_gets_the_first_answer(bench: Bench) -> None:
    start = bench.begin()
    first = prepare_if(bench, start, absent(1), writes=[put(1, 1)])
    assert isinstance(first, Prepared)
    assert prepare_if(bench, start, absent(1), writes=[put(1, 1)]) == first
    bench.decide(start, first.timestamp)
    bench.settle()
    assert isinstance(prepare_if(bench, start, absent(1), writes=[put(1, 1)]), Committed)


def test_a_forgotten_transaction_is_not_checked_again(bench: Bench) -> None:
    start = bench.begin()
    assert isinstance(commit_if(bench, absent(1), writes=[put(1, 1)], start=start), Committed)
    let_time_pass(bench)
    assert isinstance(commit_if(bench, absent(1), writes=[put(1, 1)], start=start), OutcomeUnknown)


# ---- writers of the row


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_condition_waits_for_a_prepared_writer(bench: Bench, is_committed: bool) -> None:
    writer = prepare(bench, put(1, 1))
    route = ask_one(bench, absent(1), writes=[put(1, 5)])
    bench.answer_oracle()
    assert bench.answer(route) is None
    at = bench.timestamp()
    bench.decide(writer, at if is_committed else None)
    bench.settle()
    answer = bench.answer(route)
    if is_committed:
        assert failed(answer) == ("if_absent", None, at)
    else:
        assert isinstance(answer, Committed)


def test_a_condition_alone_waits_for_a_prepared_writer(bench: Bench) -> None:
    bench.commit(put(1, 1))
    writer = prepare(bench, put(1, 2))
    route = ask_one(bench, expect(1, A, 1), writes=[put(7, 7)])
    bench.answer_oracle()
    assert bench.answer(route) is None
    bench.decide(writer, bench.timestamp())
    bench.settle()
    assert failed(bench.answer(route)) == ("expect", {"a": 1}, {"a": 2})


@HOW
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_condition_on_an_absent_row_waits_for_who_creates_it(
    is_blind: bool, is_committed: bool
) -> None:
    """The writer of `b` may have been reported as committed: then the row is there, without a
    value in `c`, which is in a third lock group."""
    c, values = 4, (7, "x", 7)
    bench = Bench(2, schema=THREE_GROUPS)
    writer = prepare(bench, (key(1), B, ("x",)))
    route = ask_one(bench, expect(1, c, None), writes=[(key(7), 7, values)], is_blind=is_blind)
    bench.answer_oracle()
    assert bench.answer(route) is None
    bench.decide(writer, bench.timestamp() if is_committed else None)
    bench.settle()
    answer = bench.answer(route)
    if is_committed:
        assert isinstance(answer, Committed)
    else:
        assert failed(answer) == ("expect", {"c": None}, None)


def test_conditions_wait_for_all_their_chunks_together() -> None:
    bench = cold((1, 2), (11, 12), (21, 22), settings=NO_COMPACTION)
    route = ask_one(bench, expect(2, A, 20), expect(12, A, 120), absent(13), writes=[put(2, 0)])
    assert sorted(numbers(bench.fetches)) == [1, 2]
    bench.finish_fetches()
    bench.pass_time(0.1)
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)


def test_a_condition_loses_against_a_writer_that_comes_later(bench: Bench) -> None:
    bench.commit(put(1, 1))
    start = bench.begin()
    prepare(bench, put(1, 2))
    answer = commit_if(bench, expect(1, A, 1), start=start)
    assert answer.kind == "transaction_conflict", "run again, it waits"


def test_a_blind_condition_waits_for_every_writer(bench: Bench) -> None:
    route = bench.commit_one(bench.begin(), put(1, 1))
    insert = ask_one(bench, absent(1), writes=[put(1, 5)], is_blind=True)
    assert bench.answer(insert) is None
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Committed)
    assert failed(bench.answer(insert))[0] == "if_absent"


def test_two_blind_inserts_of_an_absent_row_do_not_both_commit(bench: Bench) -> None:
    routes = [ask_one(bench, absent(1), writes=[put(1, it)], is_blind=True) for it in (1, 2)]
    bench.answer_oracle()
    first, second = map(bench.answer, routes)
    assert isinstance(first, Committed)
    assert failed(second)[0] == "if_absent"
    assert bench.read(1) == (1, None)


# ---- what is held


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("condition", "write"),
    [(expect(1, A, 1), update(1, a=2)), (expect(1, A, 1), delete(1)), (absent(2), put(2, 2))],
)
def test_the_row_of_a_condition_stays_until_the_outcome(
    bench: Bench, restarts: bool, condition: RowCondition, write: Any
) -> None:
    bench.commit(put(1, 1))
    start = bench.begin()
    assert isinstance(prepare_if(bench, start, condition, writes=[put(7, 7)]), Prepared)
    if restarts:
        bench.start(CellId(0))
    route = bench.commit_one(bench.begin(), write)
    bench.answer_oracle()
    assert bench.answer(route) is None, "it waits for the outcome"
    at = bench.timestamp()
    bench.decide(start, at)
    bench.settle()
    answer = bench.answer(route)
    assert isinstance(answer, Committed)
    assert answer.timestamp > at


def test_the_log_has_locks_and_no_conditions(bench: Bench) -> None:
    bench.commit(put(1, 1))
    assert isinstance(
        prepare_if(bench, bench.begin(), expect(1, A, 1), absent(2), writes=[put(7, 7)]), Prepared
    )
    (record,) = [it for it in bench.appended[CellId(0)] if isinstance(it, PreparedHere)]
    (part,) = record.modifications
    assert part.locks == (RowLock(key(1), 1, "shared_weak"), RowLock(key(2), 3, "shared_weak"))
    assert part.reads == ()
    assert "conditions" not in part.__struct_fields__


def test_a_commit_without_conditions_logs_what_it_logged(bench: Bench) -> None:
    bench.commit(put(1, 1))
    record = bench.appended[CellId(0)][-1]
    assert isinstance(record, CommittedHere)
    assert record.modifications == (changes(put(1, 1)),)


def test_a_condition_leaves_no_trace_after_its_commit(bench: Bench) -> None:
    bench.commit(put(1, 1))
    start = bench.begin()
    assert isinstance(commit_if(bench, expect(1, A, 1)), Committed)
    assert isinstance(bench.try_commit(put(1, 2), start=start), Committed)
    assert not bench.nodes[CellId(0)].cell.tablets[ATOMIC].locks


@pytest.mark.parametrize("mask", [A, B])
def test_an_absent_row_is_kept_absent_in_all_groups(bench: Bench, mask: int) -> None:
    start = bench.begin()
    mine, theirs = (update(1, a=1), update(1, b="x"))[:: 1 if mask == A else -1]
    assert isinstance(prepare_if(bench, start, absent(1), writes=[mine]), Prepared)
    route = bench.commit_one(bench.begin(), theirs)
    bench.answer_oracle()
    assert bench.answer(route) is None, "it would create the row"
    assert prepare_if(bench, bench.begin(), absent(1), writes=[theirs]) is None


def test_values_are_kept_in_their_groups_alone(bench: Bench) -> None:
    """Column `b` has a group of its own, so its writers go on. One of column `a` takes the main
    lock, which stands for all groups."""
    bench.commit(put(1, 1, "x"))
    assert isinstance(prepare_if(bench, bench.begin(), expect(1, B, "x")), Prepared)
    assert prepare_if(bench, bench.begin(), writes=[update(1, b="y")]) is None
    other = Bench(2, schema=None)
    other.commit(put(1, 1, "x"))
    assert isinstance(prepare_if(other, other.begin(), expect(1, B, "x")), Prepared)
    assert isinstance(commit_if(other, expect(1, B, "x")), Committed), "conditions are shared"


# ---- which conditions a cell takes


def refusal(bench: Bench, *given: TabletConditions, **how: Any) -> str:
    parts = how.get("parts", (changes(put(1, 1)),))
    request = CommitOne(bench.begin(), parts)
    answer = bench.answer(bench.ask(ConditionalCommit(request, given)))
    assert isinstance(answer, Failure), answer
    return f"{answer.kind}: {answer.message}"


def test_conditions_need_a_part_for_their_tablet(bench: Bench) -> None:
    text = "need a part"
    assert text in refusal(bench, TabletConditions(TabletId(9), (absent(1),)))
    twice = TabletConditions(ATOMIC, (absent(1),))
    assert text in refusal(bench, twice, twice)
    load = TabletModifications(ATOMIC, REVISION, (), publication=Publication(LoadId(1), ()))
    assert text in refusal(bench, twice, parts=(load,))


def test_a_cell_does_not_trust_the_form_of_conditions(bench: Bench) -> None:
    def said(*rows: RowCondition) -> str:
        return refusal(bench, *under(*rows))

    assert said(RowCondition(Key(b"?"), is_absent=True)).startswith("schema_violation")
    assert "asks that a row is absent" in said(RowCondition(key(1)))
    assert "asks that a row is absent" in said(RowCondition(key(1), True, Timestamp(5)))
    assert "does not fit its values" in said(expect(1, A | B, 1))
    assert "does not fit its table" in said(expect(1, 8, 1))
    assert "version is a timestamp" in said(RowCondition(key(1), version=Timestamp(-1)))
    assert "two conditions for a key" in said(absent(1), expect(1, A, 1))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", "2024-01-01"),
        ("date", 1 << 40),
        ("decimal(5,2)", "1.50"),
        ("uuid", b"short"),
        ("int64", "1"),
        ("int64", True),
        ("any", {1, 2}),
    ],
)
def test_a_value_of_another_type_is_refused_and_the_cell_lives(kind: str, value: Any) -> None:
    schema = TableSchema.parse(
        [
            {"name": "id", "type": "int64", "sort_order": "ascending"},
            {"name": "a", "type": kind},
            {"name": "b", "type": "utf8", "required": True},
        ]
    )
    bench = Bench(1, schema=schema)
    given = under(expect(1, A, value))
    parts = (changes(),)
    assert refusal(bench, *given, parts=parts).startswith("schema_violation")
    assert refusal(bench, *under(expect(1, B, None)), parts=parts).startswith("schema_violation")
    assert failed(commit_if(bench, expect(1, B, "x"))) == ("expect", {"b": "x"}, None)


def test_the_number_of_conditions_has_a_limit() -> None:
    bench = Bench(1)
    given = under(*map(absent, range(CONDITIONS_MAX + 1)))
    assert refusal(bench, *given).startswith("limit_exceeded")
    assert isinstance(commit_if(bench, *map(absent, range(CONDITIONS_MAX))), Committed)


def test_a_long_value_is_not_kept_in_the_answer(bench: Bench) -> None:
    bench.commit(put(1, 1, "x" * 5_000))
    _, expected, found = failed(commit_if(bench, expect(1, B, "y")))
    assert expected == {"b": "y"}
    assert len(found["b"]) < SHOWN_BYTES_MAX + 40
