"""A cell or an oracle that does not answer is named to all who wait for it, and no conflict."""

import pytest

from dodona.schema import TableSchema
from dodona.types import CellId, TransactionId, Write
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.tablet.transaction import State
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Aborted, AskOutcome, Committed, Decide, Prepare, Prepared
from dodona_wire.messages.families import Reply
from unit.tablets.cells import ATOMIC, Bench, changes, put

CELLS = (CellId(0), CellId(1), CellId(2))


def prepared(bench: Bench, *cells: int) -> TransactionId:
    """A transaction of all cells that only these have prepared: the others are silent."""
    start = bench.begin()
    routes = [bench.prepare(start, put(1, 1), cell=cell) for cell in cells]
    bench.answer_oracle()
    assert all(isinstance(bench.answer(route), Prepared) for route in routes)
    return start


def stop(bench: Bench, *cells: int) -> None:
    """From here on these hear nothing and say nothing."""
    for cell in cells:
        del bench.nodes[CellId(cell)]


def pass_time(bench: Bench, seconds: float) -> None:
    """Time in which those who live hear each other."""
    for _ in range(int(seconds * 2)):
        bench.pass_time(0.5)
        bench.answer_oracle()
        while bench.in_flight:
            cell, body = bench.in_flight.pop(0)
            if cell in bench.nodes:
                bench.nodes[cell].handle_cell_message(body, bench.now)
                bench.carry_out(cell)


def failure(reply: Reply | None) -> Failure:
    assert isinstance(reply, Failure), reply
    return reply


def locked_count(bench: Bench) -> int:
    return sum(node.cell.tablets[ATOMIC].locked_count() for node in bench.nodes.values())


def test_an_abort_of_the_client_is_obeyed_though_a_participant_is_silent() -> None:
    """The first attempt of a commit must not stand in the way of the next one."""
    bench = Bench(2)
    start = prepared(bench, 0)
    stop(bench, 1)
    route = bench.ask(Decide(start, CELLS[:2], None))
    pass_time(bench, 1)
    assert bench.answer(route) is None, "it may be prepared: it is asked first"
    pass_time(bench, 2)
    assert bench.answer(route) == Aborted(start)
    assert locked_count(bench) == 0


def test_a_question_for_an_outcome_names_the_silent_cell() -> None:
    bench = Bench(3)
    start = prepared(bench, 0, 1)
    stop(bench, 2)
    route = bench.ask(AskOutcome(start))
    pass_time(bench, 3)
    told = failure(bench.answer(route))
    assert told.kind == "unavailable"
    assert "cell 2 does not answer" in told.message
    assert told.attributes == {"cell": 2, "coordinator": 0, "transaction": start}
    assert bench.nodes[CELLS[0]].cell.state_of(start) is State.PREPARED, "nobody has decided it"


@pytest.mark.parametrize("cell", [0, 1])
def test_each_participant_immediately_obeys_an_abort_that_a_client_proves(cell: int) -> None:
    """Also where the coordinator is the one that is silent."""
    bench = Bench(2)
    start = prepared(bench, cell)
    stop(bench, 1 - cell)
    route = bench.ask(Decide(start, CELLS[:2], None, is_proved=True), cell)
    assert bench.answer(route) == Aborted(start)
    assert locked_count(bench) == 0


def test_a_proof_that_comes_everywhere_is_no_violation() -> None:
    bench = Bench(3)
    start = prepared(bench, 0, 1)
    routes = [bench.ask(Decide(start, CELLS, None, is_proved=True), cell) for cell in (2, 1, 0)]
    bench.settle()
    assert [bench.answer(route) for route in routes] == [Aborted(start)] * 3
    assert all(node.cell.counts.protocol_violation_count == 0 for node in bench.nodes.values())
    assert locked_count(bench) == 0


def test_an_abort_after_all_are_prepared_is_still_answered_with_the_commit() -> None:
    bench = Bench(2)
    start = prepared(bench, 0, 1)
    route = bench.ask(Decide(start, CELLS[:2], None))
    bench.settle()
    assert isinstance(bench.answer(route), Committed)


ASKERS = {
    "commit": lambda bench, cell: bench.commit_one(bench.begin(), put(1, 2), cell=cell),
    "blind": lambda bench, cell: bench.commit_blind(bench.begin(), put(1, 2), cell=cell),
    "prepare": lambda bench, cell: bench.ask(
        Prepare(bench.begin(), CELLS, (changes(put(1, 2)),)), cell
    ),
    "lookup": lambda bench, cell: bench.lookup(1, cell=cell),
}


@pytest.mark.parametrize("how", ASKERS)
@pytest.mark.parametrize(
    ("cells", "silent", "asked"),
    [((0,), (1,), 0), ((1,), (0,), 1), ((0, 1), (2,), 0), ((0, 1), (2,), 1)],
    ids=["participant", "coordinator", "third-at-coordinator", "third-at-participant"],
)
def test_a_request_that_waits_for_a_row_names_the_silent_cell(
    how: str, cells: tuple[int, ...], silent: tuple[int, ...], asked: int
) -> None:
    """It was a conflict, or a row that stayed prepared in the cell that was asked."""
    bench = Bench(3 if silent == (2,) else 2)
    holder = prepared(bench, *cells)
    stop(bench, *silent)
    pass_time(bench, 3)
    route = ASKERS[how](bench, asked)
    pass_time(bench, 2)
    told = failure(bench.answer(route))
    assert told.kind == "unavailable"
    assert told.attributes["silent_ms"] >= 3_000
    assert told.attributes.get("is_refused") is (None if how == "lookup" else True)
    assert told.attributes["cell"] == silent[0]
    assert told.attributes["winner"] == holder
    assert told.attributes["table"] == "//test/full"
    assert f"cell {silent[0]} does not answer" in told.message
    if how != "lookup":
        assert told.attributes["key"] == {"id": 1}


@pytest.mark.parametrize("how", ASKERS)
@pytest.mark.parametrize("silent", [0, 1], ids=["coordinator", "participant"])
def test_a_short_silence_of_a_cell_causes_no_error(how: str, silent: int) -> None:
    """A wait is not given up as soon as a cell is silent: it may be starting again."""
    bench = Bench(2)
    prepared(bench, 1 - silent)
    gone = bench.nodes[CellId(silent)]
    stop(bench, silent)
    pass_time(bench, 1)
    route = ASKERS[how](bench, 1 - silent)
    pass_time(bench, 1.5)
    assert bench.answer(route) is None
    bench.nodes[CellId(silent)] = gone
    gone.tick(bench.now)
    bench.settle()
    pass_time(bench, 3)
    reply = bench.answer(route)
    assert not isinstance(reply, Failure), reply


def test_a_wait_behind_cells_that_answer_is_a_conflict_with_the_one_that_holds_the_row() -> None:
    bench = Bench(2)
    for node in bench.nodes.values():
        node.cell.limits = type(node.cell.limits)(blocked_wait_ms_max=500)
    holder = prepared(bench, 0)
    route = bench.commit_one(bench.begin(), put(1, 2))
    bench.pass_time(0.7)
    told = failure(bench.answer(route))
    assert told.kind == "transaction_conflict"
    assert told.attributes["winner"] == holder
    assert told.attributes["key"] == {"id": 1}


GROUPS = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "x", "type": "int64", "lock": "xs"},
        {"name": "y", "type": "int64", "lock": "ys"},
    ]
)


@pytest.mark.parametrize(("column", "number"), [("x", 0), ("y", 1)])
@pytest.mark.parametrize("is_blind", [True, False])
def test_a_writer_waits_for_the_holder_of_the_same_columns_of_the_row(
    column: str, number: int, is_blind: bool
) -> None:
    """Another holder of the row was named, and its silence ended the wait (found by seed 1925)."""

    def written(name: str) -> Write:
        return GROUPS.write_of({"id": 1, name: 1}, is_update=True)

    bench = Bench(2, CellLimits(blocked_wait_ms_max=500), schema=GROUPS)
    holders = [bench.begin(), bench.begin()]
    for holder, name in zip(holders, "xy", strict=True):
        bench.prepare(holder, written(name), cell=0)
        bench.answer_oracle()
    commit = bench.commit_blind if is_blind else bench.commit_one
    route = commit(bench.begin(), written(column))
    bench.pass_time(0.7)
    told = failure(bench.answer(route))
    assert told.kind == "transaction_conflict"
    assert told.attributes["winner"] == holders[number]


def test_a_proved_abort_answers_earlier_questions_for_the_outcome() -> None:
    bench = Bench(2)
    start = prepared(bench, 0)
    asked = bench.ask(AskOutcome(start))
    assert bench.answer(asked) is None
    bench.ask(Decide(start, CELLS[:2], None, is_proved=True))
    assert bench.answer(asked) == Aborted(start)


def test_a_silent_oracle_is_unavailable_and_later_requests_fail_sooner() -> None:
    bench = Bench(2)
    cell = bench.nodes[CELLS[0]]
    cell.note_oracle_failure("the master at a:1 can't be reached", bench.now)
    start = bench.begin()
    route = bench.commit_one(start, put(1, 1))
    bench.pass_time(4.5)
    assert bench.answer(route) is None
    bench.pass_time(1)
    told = failure(bench.answer(route))
    assert told.kind == "unavailable"
    assert told.attributes["server"] == "oracle"
    assert told.attributes["is_refused"] is True
    assert "the master at a:1" in told.message
    late = bench.commit_one(TransactionId(bench.begin()), put(2, 1))
    bench.pass_time(1.5)
    assert failure(bench.answer(late)).kind == "unavailable"
    bench.answer_oracle()
    assert bench.read(1) is None, "what was refused is not committed by a late answer"
