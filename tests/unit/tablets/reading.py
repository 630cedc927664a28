"""Serializable transactions on a bench: short words for what tests do with them."""

from typing import Any

from dodona.types import CellId, TransactionId, Write
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import CommitOne, Prepare, Prepared, ValidatedCommit
from dodona_wire.messages.reads import ReadRange
from dodona_wire.rows.keys import successor
from unit.tablets.cells import ATOMIC, Bench, changes, key

BOTH = (CellId(0), CellId(1))
MAIN, GROUP_B, ALL = 1, 2, 3
"""Masks of lock groups of the bench's table."""


def row(number: int, groups: int = ALL) -> ReadRange:
    return ReadRange(key(number), successor(key(number)), groups)


def span(first: int, end: int, groups: int = ALL) -> ReadRange:
    return ReadRange(key(first), key(end), groups)


def part(reads: tuple[ReadRange, ...], *writes: Write) -> Any:
    made = changes(*writes)
    return type(made)(made.tablet, made.revision, made.writes, reads=reads)


def ask_one(bench: Bench, start: TransactionId, *reads: ReadRange, writes: Any = ()) -> object:
    """A commit in one cell, as far as the question to the oracle."""
    return bench.ask(ValidatedCommit(CommitOne(start, (part(reads, *writes),))))


def commit(bench: Bench, start: TransactionId, *reads: ReadRange, writes: Any = ()) -> Any:
    route = ask_one(bench, start, *reads, writes=writes)
    bench.answer_oracle()
    return bench.answer(route)


def ask_prepare(bench: Bench, start: TransactionId, *reads: ReadRange, writes: Any = ()) -> object:
    return bench.ask(ValidatedCommit(Prepare(start, BOTH, (part(reads, *writes),))))


def prepare(bench: Bench, start: TransactionId, *reads: ReadRange, writes: Any = ()) -> Any:
    route = ask_prepare(bench, start, *reads, writes=writes)
    bench.answer_oracle()
    return bench.answer(route)


def reader(bench: Bench, *reads: ReadRange) -> TransactionId:
    """A transaction that has read, and is prepared in the first cell."""
    start = bench.begin()
    assert isinstance(prepare(bench, start, *reads), Prepared)
    return start


def conflict(answer: Any) -> dict[str, Any]:
    """The attributes of a refusal."""
    assert isinstance(answer, Failure), answer
    assert answer.kind == "transaction_conflict", answer
    assert answer.attributes["table"] == "//test/full"
    return answer.attributes


def tablet(bench: Bench) -> Tablet:
    return bench.nodes[CellId(0)].cell.tablets[ATOMIC]
