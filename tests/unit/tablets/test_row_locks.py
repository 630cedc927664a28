"""Locks of all four types, and changes of aggregates, through a cell's requests."""

from typing import Any

import pytest
from msgspec.structs import replace

from dodona.schema import TableSchema
from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    SYNC_LAST_COMMITTED,
    CellId,
    LockType,
    SpecialWrites,
    TableSettings,
    TabletId,
    Timestamp,
    TransactionId,
    Write,
)
from dodona_tablets.core.tablet.transaction import RowLocks
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    Lookup,
    LookupVersions,
    Prepare,
    Prepared,
    RowLock,
    RowVersion,
    Scan,
    ScanPage,
    TabletModifications,
    VersionedRows,
)
from unit.tablets.cells import ATOMIC, REVISION, Bench

SCHEMA = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "int64"},
        {"name": "sum", "type": "int64", "lock": "counts", "aggregate": "sum"},
        {"name": "most", "type": "int64", "lock": "counts", "aggregate": "max"},
    ]
)
ALLOWED = TableSettings(enable_shared_write_locks=True)
COUNTS = 2
KEY = SCHEMA.key_of({"id": 1})
SUM, MOST = 2, 4


def bench_of(settings: TableSettings = ALLOWED) -> Bench:
    return Bench(schema=SCHEMA, settings=settings)


def part(
    *writes: Write, special: SpecialWrites | None = None, locks: tuple[RowLock, ...] = ()
) -> TabletModifications:
    return TabletModifications(ATOMIC, REVISION, writes, locks, special)


def update(**values: Any) -> Write:
    return SCHEMA.write_of({"id": 1, **values}, is_update=True)


def change(*, deltas: int = SUM, shared: int = COUNTS, **values: Any) -> TabletModifications:
    """A change of aggregates under a shared lock, or as told."""
    return part(update(**values), special={KEY: (deltas, shared)})


def lock(lock_type: LockType, mask: int = COUNTS) -> TabletModifications:
    return part(locks=(RowLock(KEY, mask, lock_type),))


def commit(
    bench: Bench, modifications: TabletModifications, start: TransactionId | None = None
) -> object:
    route = bench.ask(CommitOne(start or bench.begin(), (modifications,)))
    bench.answer_oracle()
    return bench.answer(route)


def at_of(reply: object) -> Timestamp:
    assert isinstance(reply, Committed), reply
    return reply.timestamp


def failure(reply: object) -> Failure:
    assert isinstance(reply, Failure), reply
    return reply


def read(bench: Bench, at: Timestamp = SYNC_LAST_COMMITTED, mask: int = 7) -> Any:
    route = bench.ask(Lookup(ATOMIC, REVISION, at, (KEY,), mask))
    bench.answer_oracle()
    reply = bench.answer(route)
    return reply.rows[0]  # type: ignore[union-attr]


SHARED_WRITE = change(sum=1)
OLD_AND_NEW = [
    (SHARED_WRITE, SHARED_WRITE, None),
    (SHARED_WRITE, lock("shared_write"), None),
    (lock("shared_write"), SHARED_WRITE, None),
    (SHARED_WRITE, part(update(sum=1)), "written in shared mode"),
    (SHARED_WRITE, lock("shared_weak"), "written in shared mode"),
    (SHARED_WRITE, lock("shared_strong"), "written in shared mode"),
    (SHARED_WRITE, part((KEY, 0, ())), "written in shared mode"),
    (SHARED_WRITE, part(update(a=1)), "written in shared mode"),
    (lock("shared_write"), lock("shared_weak"), "locked in shared mode"),
    (part(update(sum=1)), SHARED_WRITE, "written"),
    (lock("exclusive"), SHARED_WRITE, "locked"),
    (lock("exclusive"), lock("shared_weak"), "locked"),
    (lock("shared_strong"), SHARED_WRITE, "read-locked"),
    (lock("shared_strong"), part(update(sum=1)), "read-locked"),
    (lock("shared_strong"), lock("exclusive"), "read-locked"),
    (lock("shared_strong"), lock("shared_weak"), None),
    (lock("shared_weak"), part(update(sum=1)), None),
    (lock("exclusive"), part(update(a=1)), "locked"),
]


@pytest.mark.parametrize(("first", "second", "verb"), OLD_AND_NEW)
def test_a_commit_since_the_start_conflicts_according_to_the_lock_types(
    first: TabletModifications, second: TabletModifications, verb: str | None
) -> None:
    bench = bench_of()
    commit(bench, part(update(a=0)))  # a row that is absent is locked as a whole
    start = bench.begin()
    winner = at_of(commit(bench, first))
    reply = commit(bench, second, start)
    if verb is None:
        assert isinstance(reply, Committed)
        return
    refused = failure(reply)
    assert f"was {verb} by a concurrent transaction" in refused.message
    assert refused.kind == "transaction_conflict"
    assert refused.attributes == {
        "key": {"id": 1},
        "lock": refused.attributes["lock"],
        "start_timestamp": start,
        "winner_timestamp": winner,
        "table": "//test/full",
        "tablet": ATOMIC,
    }


@pytest.mark.parametrize(("first", "second", "verb"), OLD_AND_NEW)
def test_an_unprepared_lock_conflicts_according_to_the_lock_types(
    first: TabletModifications, second: TabletModifications, verb: str | None
) -> None:
    bench = bench_of()
    commit(bench, part(update(a=0)))
    holder, start = bench.begin(), bench.begin()
    held = bench.ask(CommitOne(holder, (first,)))
    route = bench.ask(CommitOne(start, (second,)))
    now = bench.answer(route)
    bench.answer_oracle()
    assert isinstance(bench.answer(held), Committed)
    is_weak = any(it.lock_type == "shared_weak" for it in first.locks)
    if verb is None and not is_weak:
        assert isinstance(bench.answer(route), Committed)
        return
    refused = failure(now)
    assert "was locked for" in refused.message
    assert refused.attributes["winner"] == holder
    assert refused.attributes["lock"] == "counts"


def test_shared_writers_prepare_side_by_side_and_commit_in_any_order() -> None:
    bench = Bench(2, schema=SCHEMA, settings=ALLOWED)
    starts = [bench.begin() for _ in range(3)]
    cells = (CellId(0), CellId(1))
    for number, start in enumerate(starts):
        modifications = change(sum=10**number, most=number, deltas=SUM | MOST)
        route = bench.ask(Prepare(start, cells, (modifications,)))
        bench.answer_oracle()
        assert isinstance(bench.answer(route), Prepared)
    waiting = bench.ask(Lookup(ATOMIC, REVISION, SYNC_LAST_COMMITTED, (KEY,), 7))
    assert bench.answer(waiting) is None
    stamps = [bench.timestamp() for _ in starts]
    for start, at in reversed(list(zip(starts, stamps, strict=True))):
        bench.decide(start, at)
        bench.settle()
    assert bench.answer(waiting).rows == ((None, 111, 2),)  # type: ignore[union-attr]
    assert read(bench, stamps[1]) == (None, 11, 1)
    bench.nodes[CellId(0)].cell.tablets[ATOMIC].stores.check()
    bench.start(CellId(0))
    assert read(bench) == (None, 111, 2)


def test_shared_writes_need_the_tables_leave() -> None:
    bench = bench_of(TableSettings())
    for modifications in (change(sum=1), lock("shared_write")):
        refused = failure(commit(bench, modifications))
        assert refused.kind == "invalid_request"
        assert refused.message == "Shared write locks are not allowed for the table"
    assert read(bench) is None
    assert isinstance(commit(bench, change(sum=1, shared=0)), Committed)


def test_blind_transactions_can_share_writes() -> None:
    bench = bench_of()
    routes = [
        bench.ask(CommitOne(bench.begin(), (change(sum=1),), is_blind=True)) for _ in range(10)
    ]
    bench.answer_oracle()
    assert all(isinstance(bench.answer(route), Committed) for route in routes)
    assert read(bench) == (None, 10, None)


@pytest.mark.parametrize(
    ("modifications", "words"),
    [
        (
            change(a=1, deltas=1, shared=0),
            '"aggregate" flag is set for value in column a which is not aggregating',
        ),
        (change(sum=1, deltas=MOST, shared=0), "no value for the change of column most"),
        (change(sum=1, deltas=8, shared=0), "does not fit"),
        (change(sum=1, shared=1), "locks a group that it does not set"),
        (change(sum=1, shared=COUNTS << 1), "locks a group that it does not set"),
        (part((KEY, 0, ()), special={KEY: (0, 1)}), "locks a group that it does not set"),
        (part(special={KEY: (0, 0)}), "A special write has no write of its key."),
    ],
)
def test_special_writes_must_fit_their_writes(
    modifications: TabletModifications, words: str
) -> None:
    bench = bench_of()
    refused = failure(commit(bench, modifications))
    assert refused.kind in ("schema_violation", "invalid_request")
    assert words in refused.message
    assert refused.attributes.get("table", "//test/full") == "//test/full"


def test_changes_build_on_the_newest_value_and_a_deletion_resets_them() -> None:
    bench = bench_of()
    first = at_of(commit(bench, change(sum=5, most=5, deltas=SUM | MOST)))
    at_of(commit(bench, part(update(sum=100, most=1))))
    third = at_of(commit(bench, change(sum=-1, most=9, deltas=SUM | MOST)))
    gone = at_of(commit(bench, part((KEY, 0, ()))))
    last = at_of(commit(bench, change(sum=7)))
    assert read(bench, first) == (None, 5, 5)
    assert read(bench, third) == (None, 99, 9)
    assert read(bench, third, SUM) == (99,)
    assert read(bench, gone) is None
    assert read(bench, last) == read(bench) == (None, 7, None)
    request = Scan(ATOMIC, REVISION, third, KEY_MIN, KEY_MAX, SUM | MOST, 10)
    page = bench.answer(bench.ask(request))
    assert isinstance(page, ScanPage)
    assert page.rows == ((99, 9),)
    versions = bench.answer(bench.ask(LookupVersions(ATOMIC, REVISION, gone, (KEY,), MOST)))
    assert isinstance(versions, VersionedRows)
    newest, change_of_most, *_ = versions.rows[0]
    assert newest == RowVersion(gone, 0, (), is_delete=True)
    assert change_of_most == RowVersion(third, MOST, (9,), MOST, COUNTS)


def test_times_stay_until_the_newest_of_all_kinds_is_not_needed() -> None:
    """A row may be locked without data in several ways, at several times: the oldest says nothing
    of the others."""
    locks = RowLocks()
    locks.remember("exclusive", 0b01, Timestamp(10))
    locks.remember("shared_strong", 0b10, Timestamp(20))
    locks.remember("shared_strong", 0b01, Timestamp(15))
    for needed in (9, 10, 15, 19):
        locks.forget(Timestamp(needed))
        assert not locks.is_idle, needed
    locks.forget(Timestamp(20))
    assert locks.is_idle


@pytest.mark.parametrize("number", [1, 2])
def test_each_row_of_each_tablet_is_checked_for_conflicts(number: int) -> None:
    """The first tablet and the first row of the second have none."""
    bench = bench_of()
    second = replace(bench.tables[0], tablet=TabletId(9), path="//test/second")
    bench.assign(CellId(0), [*bench.tables, second])
    bench.answer_oracle()

    def in_second(*ids: int) -> TabletModifications:
        writes = tuple(SCHEMA.write_of({"id": it, "a": it}) for it in ids)
        return TabletModifications(second.tablet, REVISION, writes, ())

    start = bench.begin()
    at_of(commit(bench, in_second(number)))
    route = bench.ask(CommitOne(start, (part(update(a=5)), in_second(3, 1, 2))))
    bench.answer_oracle()
    refused = failure(bench.answer(route))
    assert (refused.kind, refused.attributes["key"]) == ("transaction_conflict", {"id": number})
    assert read(bench) is None
