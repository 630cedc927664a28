"""The rules of row locks at their boundaries: equal timestamps, several holders, several groups.

A bug in one of these loses a write, and a whole cell meets the boundary once in a blue moon.
"""

from typing import Any, get_args

import pytest

from dodona.schema import TableSchema
from dodona.types import (
    MAX_TIMESTAMP,
    CellId,
    Key,
    LockType,
    Revision,
    SpecialWrites,
    TabletId,
    Timestamp,
    TransactionId,
)
from dodona_tablets.core.counts import CONFLICTS
from dodona_tablets.core.rows.version import Version, version_of
from dodona_tablets.core.tablet.lock_set import (
    EXCLUSIVE,
    KINDS,
    SHARED,
    SHARED_WRITE,
    TYPES,
    WRITTEN,
    WRITTEN_SHARED,
    LockSet,
    lock_locks,
    locks_of,
)
from dodona_tablets.core.tablet.locks import (
    Lost,
    acquire,
    acquire_all,
    blocking_reader,
    check_locks,
    check_versions,
    is_met,
    release,
)
from dodona_tablets.core.tablet.transaction import Holder, LockTable, RowLocks, State, Transaction
from dodona_wire.messages.data import RowLock, TabletModifications

SCHEMA = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "int64"},
        {"name": "sum", "type": "int64", "lock": "counts", "aggregate": "sum"},
        {"name": "note", "type": "utf8", "lock": "notes"},
    ]
)
MAIN, COUNTS, NOTES = 1, 2, 4
SUM, NOTE = 2, 4
"""Of the columns."""
KEY = SCHEMA.key_of({"id": 1})
OTHER = SCHEMA.key_of({"id": 2})
START = Timestamp(100)
TABLET, AT = TabletId(1), Revision(1)


def asked(kind: int, groups: int) -> LockSet:
    return LockSet(*[groups if it == kind else 0 for it in range(len(KINDS))])


def version(at: int, mask: int, older: Version | None = None, shared: int = 0) -> Version:
    return version_of(Timestamp(at), mask, ("x",) * mask.bit_count(), older, 0, shared)


def transaction(
    state: State = State.LOCKED, prepared: int = 0, name: int = 50, **_: Any
) -> Transaction:
    made = Transaction(TransactionId(name), Timestamp(name), (CellId(0),), (), 0)
    made.state, made.prepare_timestamp = state, Timestamp(prepared)
    return made


def lost(function: Any, *given: Any) -> dict[str, Any]:
    with pytest.raises(Lost) as caught:
        function(*given)
    return {**caught.value.failure.attributes, "said": caught.value.failure.message}


# Versions


@pytest.mark.parametrize(
    ("groups", "start", "winner", "lock"),
    [
        (NOTES, 119, 120, "notes"),
        (NOTES, 120, None, ""),
        (COUNTS, 109, 110, "counts"),
        (COUNTS, 110, None, ""),
        (COUNTS | NOTES, 119, 120, "notes"),
        (COUNTS | NOTES, 109, 120, "notes"),
        (MAIN, 119, 120, "notes"),
    ],
)
def test_only_a_younger_version_of_a_group_that_is_asked_for_is_in_the_way(
    groups: int, start: int, winner: int | None, lock: str
) -> None:
    chain = version(120, NOTE, version(110, SUM, version(90, SUM | NOTE)))
    given = (chain, KEY, SCHEMA, Timestamp(start), asked(EXCLUSIVE, groups))
    if winner is None:
        check_versions(*given)
        return
    said = lost(check_versions, *given)
    assert (said["winner_timestamp"], said["lock"]) == (winner, lock)
    assert (said["key"], said["start_timestamp"]) == ({"id": 1}, start)


def test_a_row_without_a_version_does_not_conflict() -> None:
    check_versions(None, KEY, SCHEMA, START, asked(EXCLUSIVE, MAIN))


@pytest.mark.parametrize(
    ("kind", "groups", "verb"),
    [
        (SHARED_WRITE, COUNTS, None),
        (EXCLUSIVE, COUNTS, "written in shared mode"),
        (SHARED, COUNTS, "written in shared mode"),
        (SHARED_WRITE, NOTES, "was written by"),
        (EXCLUSIVE, NOTES, "was written by"),
    ],
)
def test_a_version_is_shared_only_in_the_lock_groups_that_it_names(
    kind: int, groups: int, verb: str | None
) -> None:
    newest = version(120, SUM | NOTE, shared=COUNTS)
    given = (newest, KEY, SCHEMA, START, asked(kind, groups))
    if verb is None:
        check_versions(*given)
    else:
        assert verb in lost(check_versions, *given)["said"]


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED_WRITE, SHARED])
def test_a_version_of_an_exclusive_write_is_in_the_way_of_every_kind(kind: int) -> None:
    said = lost(check_versions, version(120, SUM), KEY, SCHEMA, START, asked(kind, COUNTS))
    assert "was written by" in said["said"]


def test_the_check_also_examines_versions_older_than_a_shared_version() -> None:
    chain = version(120, SUM, version(110, SUM), shared=COUNTS)
    said = lost(check_versions, chain, KEY, SCHEMA, START, asked(SHARED_WRITE, COUNTS))
    assert said["winner_timestamp"] == 110


# Times and holders


def check(locks: RowLocks, kind: int, groups: int, start: int = START) -> Transaction | None:
    return check_locks(locks, KEY, SCHEMA, Timestamp(start), asked(kind, groups))


@pytest.mark.parametrize(
    ("left", "kind", "verb"),
    [
        ("exclusive", EXCLUSIVE, "was locked by"),
        ("exclusive", SHARED_WRITE, "was locked by"),
        ("exclusive", SHARED, "was locked by"),
        ("shared_write", EXCLUSIVE, "locked in shared mode"),
        ("shared_write", SHARED_WRITE, None),
        ("shared_write", SHARED, "locked in shared mode"),
        ("shared_strong", EXCLUSIVE, "read-locked"),
        ("shared_strong", SHARED_WRITE, "read-locked"),
        ("shared_strong", SHARED, None),
    ],
)
def test_a_lock_that_was_committed_after_the_start_is_in_the_way(
    left: LockType, kind: int, verb: str | None
) -> None:
    locks = RowLocks()
    locks.remember(left, COUNTS, Timestamp(START + 1))
    assert check(locks, kind, COUNTS, START + 1) is None
    assert check(locks, kind, NOTES) is None
    if verb is None:
        assert check(locks, kind, COUNTS) is None
    else:
        said = lost(check, locks, kind, COUNTS)
        assert verb in said["said"]
        assert (said["winner_timestamp"], said["lock"]) == (START + 1, "counts")


def test_the_latest_time_of_a_group_is_remembered() -> None:
    locks = RowLocks()
    for at in (120, 110):
        locks.remember("exclusive", COUNTS | NOTES, Timestamp(at))
    assert locks.times == {"exclusive": {1: 120, 2: 120}}


@pytest.mark.parametrize(
    ("state", "prepared", "start", "is_waited_for"),
    [
        (State.PREPARED, 99, 100, True),
        (State.PREPARED, 100, 100, False),
        (State.PREPARED, 101, 100, False),
        (State.LOCKED, 0, 100, False),
        (State.WAITING, 0, 100, False),
        (State.LOCKED, 0, MAX_TIMESTAMP, True),
        (State.PREPARED, 101, MAX_TIMESTAMP, True),
    ],
)
def test_a_transaction_waits_for_a_holder_that_prepared_before_its_start(
    state: State, prepared: int, start: int, is_waited_for: bool
) -> None:
    other = transaction(state, prepared)
    assert is_met(other, Timestamp(start)) is is_waited_for
    locks = RowLocks()
    locks.holders.append(Holder(other, LockSet(COUNTS)))
    assert check(locks, EXCLUSIVE, NOTES, start) is None
    if is_waited_for:
        assert check(locks, EXCLUSIVE, COUNTS, start) is other
    else:
        assert lost(check, locks, EXCLUSIVE, COUNTS, start)["winner"] == other.id


def test_all_holders_are_looked_at_and_the_first_is_waited_for() -> None:
    elsewhere = transaction(name=51)
    first, second = (transaction(State.PREPARED, 99, name) for name in (52, 53))
    locks = RowLocks()
    locks.holders += [
        Holder(elsewhere, LockSet(NOTES)),
        Holder(first, LockSet(0, COUNTS)),
        Holder(second, LockSet(0, COUNTS)),
    ]
    assert check(locks, EXCLUSIVE, COUNTS) is first
    late = transaction(name=54)
    locks.holders.append(Holder(late, LockSet(0, COUNTS)))
    assert lost(check, locks, EXCLUSIVE, COUNTS)["winner"] == late.id


HELD = {
    EXCLUSIVE: "locked for a write",
    SHARED_WRITE: "locked for a shared write",
    SHARED: "locked for reading",
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize(("groups", "lock"), [(COUNTS, "counts"), (MAIN, "<primary>")])
def test_a_held_lock_admits_only_the_same_type_of_shared_lock(
    held: int, kind: int, groups: int, lock: str
) -> None:
    locks = RowLocks()
    locks.holders.append(Holder(transaction(), asked(held, groups)))
    if held == kind != EXCLUSIVE:
        assert check(locks, kind, groups) is None
    else:
        said = lost(check, locks, kind, groups)
        assert HELD[held] in said["said"]
        assert said["lock"] == lock


def test_conflicts_of_kinds_hold_in_both_directions() -> None:
    for kind, of_kind in enumerate(KINDS):
        assert of_kind.conflicts
        for other in of_kind.conflicts:
            assert kind in KINDS[other].conflicts
    assert len(KINDS) == len(LockSet())


def test_every_lock_type_has_a_rule_and_every_conflict_a_count() -> None:
    assert TYPES.keys() == set(get_args(LockType))
    met = [WRITTEN, WRITTEN_SHARED, *(it.locked for it in KINDS), *(it.held for it in KINDS)]
    assert [it.name for it in met] == [*CONFLICTS[: len(met)]]
    assert len({it.verb for it in met}) == len(met)


@pytest.mark.parametrize(
    ("wanted", "watched"),
    [
        (LockSet(), (0, 0, 0)),
        (LockSet(exclusive=COUNTS), (MAIN | COUNTS, MAIN | COUNTS, MAIN | COUNTS)),
        (LockSet(shared_write=COUNTS), (MAIN | COUNTS, 0, MAIN | COUNTS)),
        (LockSet(shared=MAIN), (7, 7, 0)),
        (LockSet(NOTES, COUNTS), (7, MAIN | NOTES, 7)),
    ],
)
def test_locks_watch_the_main_lock_and_the_kinds_that_conflict(
    wanted: LockSet, watched: tuple[int, int, int]
) -> None:
    assert tuple(wanted.watched(SCHEMA)) == watched


def test_an_overlap_names_the_first_kind_that_is_in_the_way() -> None:
    held = LockSet(NOTES, COUNTS, MAIN)
    assert held.groups == 7
    assert held.blocking_reads == NOTES | COUNTS
    assert held.overlap((MAIN | COUNTS, NOTES, COUNTS)) is None
    assert held.overlap((0, COUNTS | MAIN, 7)) == (SHARED_WRITE, COUNTS)
    assert held.overlap((7, 7, 7)) == (EXCLUSIVE, NOTES)


# Acquiring and releasing


@pytest.mark.parametrize(
    ("lock_type", "groups", "times"),
    [
        ("exclusive", (COUNTS, 0, 0), {"exclusive": {1: 120}}),
        ("shared_write", (0, NOTES, 0), {"shared_write": {2: 120}}),
        ("shared_strong", (0, 0, COUNTS | NOTES), {"shared_strong": {1: 120, 2: 120}}),
        ("shared_weak", (0, 0, COUNTS), None),
        (None, (COUNTS, 0, 0), None),
    ],
)
def test_only_a_committed_lock_without_data_leaves_its_timestamp(
    lock_type: LockType | None, groups: tuple[int, int, int], times: Any
) -> None:
    for committed in (Timestamp(120), None):
        table: LockTable = {}
        mine, other = transaction(name=50), transaction(name=51)
        acquire(table, KEY, Holder(mine, LockSet(*groups), lock_type))
        acquire(table, OTHER, Holder(mine, LockSet(*groups)))
        acquire(table, OTHER, Holder(other, LockSet(0, 0, COUNTS)))
        assert [it[1] for it in mine.held] == [KEY, OTHER]
        release(mine, committed)
        assert mine.held == []
        assert [it.transaction for it in table[OTHER].holders] == [other]
        if times is None or committed is None:
            assert KEY not in table
        else:
            assert table[KEY].times == times
            assert not table[KEY].holders
            assert not table[KEY].is_idle
        release(other, None)
        assert OTHER not in table


def test_a_released_row_keeps_the_timestamps_of_earlier_locks() -> None:
    table: LockTable = {}
    locker, writer = transaction(name=50), transaction(name=51)
    acquire(table, KEY, Holder(locker, LockSet(0, 0, COUNTS), "shared_strong"))
    release(locker, Timestamp(120))
    acquire(table, KEY, Holder(writer, LockSet(NOTES)))
    assert not table[KEY].is_idle
    release(writer, Timestamp(130))
    assert table[KEY].times == {"shared_strong": {1: 120}}


@pytest.mark.parametrize(
    ("lock_type", "groups"),
    [
        ("exclusive", (6, 0, 0)),
        ("shared_write", (0, 6, 0)),
        ("shared_weak", (0, 0, 6)),
        ("shared_strong", (0, 0, 6)),
    ],
)
def test_the_type_of_a_lock_decides_how_its_groups_are_locked(
    lock_type: LockType, groups: tuple[int, int, int]
) -> None:
    assert lock_locks(6, lock_type) == groups


def locks_in(table: LockTable) -> dict[Key, list[LockSet]]:
    return {key: [it.locks for it in locks.holders] for key, locks in table.items()}


def test_writes_and_locks_of_a_part_take_their_groups() -> None:
    part = TabletModifications(
        TabletId(1),
        Revision(1),
        ((KEY, SUM | NOTE, (1, "x")), (OTHER, NOTE, ("x",))),
        (RowLock(Key(b"third"), COUNTS, "shared_strong"),),
        {KEY: (0, COUNTS)},  # a value that is overwritten, by shared lock
    )
    assert [*locks_of(SCHEMA, part)] == [
        (KEY, (NOTES, COUNTS, 0)),
        (OTHER, (NOTES, 0, 0)),
        (b"third", (0, 0, COUNTS)),
    ]
    plain = TabletModifications(TabletId(1), Revision(1), ((KEY, SUM, (1,)),), (), None)
    assert [*locks_of(SCHEMA, plain)] == [(KEY, (COUNTS, 0, 0))]


def test_each_key_of_a_part_is_locked_as_its_own_write_asks() -> None:
    third = SCHEMA.key_of({"id": 3})
    writes = ((KEY, SUM, (1,)), (OTHER, SUM, (2,)), (third, SUM | NOTE, (3, "x")))
    table: LockTable = {}
    special: SpecialWrites = {OTHER: (SUM, COUNTS)}
    acquire_all(table, SCHEMA, transaction(), TabletModifications(TABLET, AT, writes, (), special))
    assert locks_in(table) == {
        KEY: [(COUNTS, 0, 0)],
        OTHER: [(0, COUNTS, 0)],
        third: [(COUNTS | NOTES, 0, 0)],
    }
    plain: LockTable = {}
    acquire_all(plain, SCHEMA, transaction(), TabletModifications(TABLET, AT, writes))
    assert locks_in(plain) == {
        KEY: [(COUNTS, 0, 0)],
        OTHER: [(COUNTS, 0, 0)],
        third: [(COUNTS | NOTES, 0, 0)],
    }


# Readers


@pytest.mark.parametrize(
    ("state", "prepared", "name", "is_blocking"),
    [
        (State.PREPARED, 99, 50, True),
        (State.PREPARED, 100, 50, True),
        (State.PREPARED, 101, 50, False),
        (State.LOCKED, 0, 99, True),
        (State.LOCKED, 0, 100, False),
        (State.LOCKED, 0, 101, False),
    ],
)
def test_a_reader_waits_for_writers_that_may_commit_at_its_timestamp_or_below(
    state: State, prepared: int, name: int, is_blocking: bool
) -> None:
    other = transaction(state, prepared, name)
    expected = other if is_blocking else None
    for groups in ((COUNTS, 0, 0), (0, COUNTS, 0)):
        holders = [Holder(transaction(), LockSet(NOTES)), Holder(other, LockSet(*groups))]
        assert blocking_reader(holders, COUNTS, START) is expected
        assert blocking_reader(holders, COUNTS | MAIN, START) is expected
    assert blocking_reader([Holder(other, LockSet(0, 0, COUNTS))], COUNTS, START) is None
