"""Whether a row is there belongs to all of its lock groups: reads of some columns, and locks.

Column `b` is in a lock group of its own. A transaction that writes it is prepared below the
timestamp of reads that ask for column `a` alone.
"""

from collections.abc import Callable
from typing import Any

import pytest

from dodona.schema import TableSchema
from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    NULL_TIMESTAMP,
    CellId,
    LockType,
    Timestamp,
    TransactionId,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    ArrowPage,
    CommitOne,
    Committed,
    Lookup,
    LookupReply,
    LookupVersions,
    Prepare,
    Prepared,
    RowLock,
    Scan,
    ScanArrow,
    ScanPage,
    ScanVersions,
    VersionedRows,
)
from unit.tablets.cells import ATOMIC, REVISION, Bench, changes, delete, key, update

GROUPS = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "int64"},
        {"name": "b", "type": "utf8", "lock": "group_b"},
        {"name": "c", "type": "int64", "lock": "group_c"},
    ]
)
CREATE = GROUPS.write_of({"id": 1, "c": 1}, is_update=True)
"""Row 1, by a group that is not locked."""
A = 1
GROUP_B = 2
BOTH = (CellId(0), CellId(1))
READS: dict[str, Callable[[Timestamp], Any]] = {
    "lookup": lambda at: Lookup(ATOMIC, REVISION, at, (key(1),), A),
    "lookup of nothing": lambda at: Lookup(ATOMIC, REVISION, at, (key(1),), 0),
    "versions": lambda at: LookupVersions(ATOMIC, REVISION, at, (key(1),), A),
    "scan": lambda at: Scan(ATOMIC, REVISION, at, KEY_MIN, KEY_MAX, A, 100),
    "columns": lambda at: ScanArrow(ATOMIC, REVISION, at, KEY_MIN, KEY_MAX, A, 100),
    "changes": lambda at: ScanVersions(
        ATOMIC, REVISION, NULL_TIMESTAMP, at, KEY_MIN, KEY_MAX, A, 100
    ),
}
SEES_ROWS = ("lookup", "lookup of nothing", "scan", "columns")
"""The others tell of each version, and wait for writers of any group."""


def count_of(reply: Any) -> int:
    """Of rows, or of versions, in an answer."""
    match reply:
        case LookupReply(rows):
            return sum(it is not None for it in rows)
        case VersionedRows(rows):
            return sum(map(len, rows))
        case ScanPage():
            return len(reply.rows)
        case ArrowPage():
            return reply.row_count
    raise AssertionError(reply)


@pytest.fixture
def bench() -> Bench:
    return Bench(2)


def prepare_b(bench: Bench) -> TransactionId:
    """A transaction that writes `b` of row 1, in two cells as far as this one knows."""
    start = bench.begin()
    route = bench.prepare(start, update(1, b="new"), cell=0)
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Prepared)
    return start


def never(bench: Bench) -> None: ...


def deleted(bench: Bench) -> None:
    bench.commit(update(1, a=1, b="old"))
    bench.commit(delete(1))


def deleted_in_chunks(bench: Bench) -> None:
    deleted(bench)
    flush(bench)


def there(bench: Bench) -> None:
    bench.commit(update(1, a=1, b="old"))


def there_in_chunks(bench: Bench) -> None:
    there(bench)
    flush(bench)


def there_by_b(bench: Bench) -> None:
    """None of the columns that are read was ever written."""
    bench.commit(update(1, b="old"))


def flush(bench: Bench) -> None:
    cell = bench.nodes[CellId(0)]
    cell._flushing.rotate(cell.cell.tablets[ATOMIC])
    bench.pass_time(1)
    assert not cell.cell.tablets[ATOMIC].stores.unflushed


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("before", [never, deleted, deleted_in_chunks])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_read_of_an_absent_row_waits_for_a_transaction_that_may_create_the_row(
    bench: Bench, name: str, before: Callable[[Bench], None], is_committed: bool
) -> None:
    before(bench)
    count = 0
    if name not in SEES_ROWS:
        asked = bench.ask(READS[name](bench.timestamp()))
        bench.answer_oracle()
        count = count_of(bench.answer(asked))
    start = prepare_b(bench)
    decision = bench.timestamp() if is_committed else None
    at = bench.timestamp()
    route = bench.ask(READS[name](at))
    bench.answer_oracle()
    assert bench.answer(route) is None, "it says that there is none, and at the same time there is"
    bench.decide(start, decision)
    bench.settle()
    answers = [route, bench.ask(READS[name](at))]
    bench.answer_oracle()
    assert [count_of(bench.answer(it)) for it in answers] == [count + is_committed] * 2


@pytest.mark.parametrize("name", SEES_ROWS)
@pytest.mark.parametrize("before", [there, there_in_chunks, there_by_b])
def test_a_read_of_a_row_that_is_there_does_not(
    bench: Bench, name: str, before: Callable[[Bench], None]
) -> None:
    before(bench)
    prepare_b(bench)
    route = bench.ask(READS[name](bench.timestamp()))
    bench.answer_oracle()
    assert count_of(bench.answer(route)) == 1


def lock(bench: Bench, start: TransactionId, lock_type: LockType) -> object:
    """Of `b` in row 1, and nothing else."""
    locks = (RowLock(key(1), GROUP_B, lock_type),)
    route = bench.ask(CommitOne(start, (changes(locks=locks),)))
    bench.answer_oracle()
    return bench.answer(route)


LOCK_TYPES: list[LockType] = ["shared_weak", "shared_strong", "exclusive"]


@pytest.mark.parametrize("lock_type", LOCK_TYPES)
@pytest.mark.parametrize("before", [never, deleted, deleted_in_chunks])
def test_a_lock_of_an_absent_row_loses_to_a_transaction_that_created_the_row(
    lock_type: LockType, before: Callable[[Bench], None]
) -> None:
    bench = Bench(schema=GROUPS)
    before(bench)
    start = bench.begin()
    bench.commit(CREATE)
    refused = lock(bench, start, lock_type)
    assert isinstance(refused, Failure)
    assert refused.kind == "transaction_conflict"
    assert isinstance(lock(bench, bench.begin(), lock_type), Committed), "it is there now"


@pytest.mark.parametrize("lock_type", LOCK_TYPES)
@pytest.mark.parametrize("before", [there, there_in_chunks, there_by_b])
def test_a_lock_of_a_row_that_was_there_does_not(
    lock_type: LockType, before: Callable[[Bench], None]
) -> None:
    bench = Bench(schema=GROUPS)
    before(bench)
    start = bench.begin()
    bench.commit(CREATE)
    assert isinstance(lock(bench, start, lock_type), Committed)


@pytest.mark.parametrize("lock_type", LOCK_TYPES)
def test_a_prepared_lock_of_an_absent_row_keeps_others_from_creating_the_row(
    lock_type: LockType,
) -> None:
    """Also after a restart: what is prepared says what it holds."""
    bench = Bench(2, schema=GROUPS)
    early = bench.begin()
    part = changes(locks=(RowLock(key(1), GROUP_B, lock_type),))
    route = bench.ask(Prepare(bench.begin(), BOTH, (part,)))
    bench.answer_oracle()
    assert isinstance(bench.answer(route), Prepared)
    refused = bench.try_commit(CREATE, start=early)
    assert isinstance(refused, Failure)
    assert refused.kind == "transaction_conflict"
    assert bench.try_commit(CREATE) is None, "it waits for the outcome"
    bench.start(CellId(0))
    assert bench.try_commit(CREATE) is None
