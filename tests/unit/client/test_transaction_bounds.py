"""The client's buffer and its attempts at their bounds: defaults, limits, sizes, and texts."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from dodona._core.protocol.attempts import Again, may_read_again, may_write_again
from dodona._core.protocol.limits import TransactionLimits
from dodona._core.protocol.steps import MASTER, Pause, Post
from dodona._core.writing.buffer import Changes, TableBuffer
from dodona._core.writing.committing import _let_go
from dodona._core.writing.parts import pack_special
from dodona._core.writing.transaction import TransactionBuffer, check_schema
from dodona.errors import (
    DiskFull,
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    SnapshotTooOld,
    TransactionAborted,
    TransactionClosed,
    Unavailable,
)
from dodona.schema import TableSchema
from dodona.types import Atomicity, CellId, Key, LockType, Timestamp, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Cluster
from dodona_wire.messages.data import Aborted, AskOutcome, Decide, Prepared, RowLock
from dodona_wire.messages.families import Reply
from dodona_wire.rows.sizes import write_bytes
from unit.client.protocols import (
    COLUMNS,
    LOST,
    MOVED,
    NEVER_SENT,
    PATH,
    SCHEMA,
    Clock,
    Play,
    key,
    new_session,
    table,
    with_rows,
)

ID = TransactionId(50)
SLACK = 48
"""An estimate of a message's part may be too large by so many bytes."""


def buffer(start: int | None = 50, atomicity: Atomicity = "full", **how: Any) -> TransactionBuffer:
    limits = TransactionLimits(**how)
    begun_us = 1_000_000
    return TransactionBuffer(
        None if start is None else Timestamp(start),
        atomicity=atomicity,
        durability="sync",
        begun_us=begun_us,
        limits=limits,
    )


# Attempts


@pytest.mark.parametrize(
    ("failure", "may_read", "may_write"),
    [
        (MOVED, True, True),
        (Failure("table_not_mounted", ""), True, True),
        (Failure("overloaded", ""), True, True),
        (LOST, True, False),
        (NEVER_SENT, True, True),
        (Failure("transaction_conflict", ""), False, False),
    ],
)
def test_which_failures_had_no_effect(failure: Failure, may_read: bool, may_write: bool) -> None:
    assert may_read_again(failure) is may_read
    assert may_write_again(failure) is may_write


def test_an_attempt_that_says_only_its_error_is_a_read_of_no_route_and_no_full_cell() -> None:
    again = Again(Unavailable("no answer"))
    assert (again.routes, again.is_write, again.is_full) == ((), False, False)


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (Prepared(ID, Timestamp(60)), (0,)),
        (Failure("transaction_conflict", ""), (0,)),
        (Failure("unavailable", "", {"address": "http://a"}), (0, 1)),
        (NEVER_SENT, (0, 1)),
    ],
)
def test_all_cells_are_told_of_an_abort_if_the_coordinator_may_be_silent(
    first: Reply, told: tuple[int, ...]
) -> None:
    """Rule 17."""
    cells = (CellId(0), CellId(1))
    post = _let_go(ID, cells, [first, LOST])
    abort = Decide(ID, cells, None, is_proved=True)
    assert post == Post(tuple((CellId(it), abort) for it in told))


@pytest.mark.parametrize("cause", [DiskFull.kind, "overloaded"])
def test_a_commit_that_a_full_disk_ended_is_refused_for_that_reason(cause: str) -> None:
    clock = Clock()
    session = new_session(clock, table())
    commit = Play(clock, session.commit(with_rows(clock, session, 1)))
    commit.answer(Failure("unavailable", "no answer", {"cause": cause}))
    error = DiskFull if cause == DiskFull.kind else TransactionAborted
    with pytest.raises(error) as caught:
        ask_until_aborted(commit)
    assert type(caught.value) is error


def ask_until_aborted(commit: Play[Timestamp | None]) -> None:
    """Answer the question for the outcome, which the client repeats after a pause."""
    while commit.step is not None:
        if isinstance(commit.step, Pause):
            commit.wait()
        elif commit.call[0] == MASTER:
            commit.answer(Cluster((), ()))
        else:
            assert commit.call == (0, AskOutcome(ID))
            commit.answer(Aborted(ID))


# Defaults and texts


def test_a_transaction_sees_its_own_writes_only_if_it_asks_for_them() -> None:
    it = buffer()
    it.insert(PATH, SCHEMA, [{"id": 1, "value": 1}], is_update=False)
    assert it.own_writes(PATH) is None
    it.reads_own_writes = True
    assert it.own_writes(PATH) is it.tables[PATH]
    assert it.own_writes("//other") is None


def test_a_transaction_is_described_with_its_id_if_it_has_one() -> None:
    assert buffer().describe("T") == "<T 50 active, 0 rows written>"
    assert buffer(None, "none").describe("T") == "<T non-atomic active, 0 rows written>"


@pytest.mark.parametrize(
    ("start", "name"), [(50, "Cannot read in transaction 50: "), (None, "in the transaction: ")]
)
def test_a_closed_transaction_is_named_by_its_id_if_it_has_one(
    start: int | None, name: str
) -> None:
    it = buffer(start)
    it.abort()
    with pytest.raises(TransactionClosed) as caught:
        it.read_timestamp()
    assert name in caught.value.message
    assert caught.value.attributes == {"transaction": start, "state": "aborted"}


def test_writes_are_nothing_special_unless_they_are_said_to_be() -> None:
    it = buffer()
    it.put(PATH, SCHEMA, [(key(1), 1, (5,))])
    assert (it.tables[PATH].writes, it.tables[PATH].special) == ({key(1): (key(1), 1, (5,))}, {})
    it.put(PATH, SCHEMA, [(key(2), 1, (5,))], 0, True)
    assert it.tables[PATH].special == {key(2): (0, 1)}


@pytest.mark.parametrize("how", [{"is_update": 1}, {"is_update": True, "is_aggregate": "no"}])
def test_a_flag_is_a_truth_value(how: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"update|aggregate"):
        buffer().insert(PATH, SCHEMA, [{"id": 1}], **how)


def test_a_row_and_a_key_are_dicts() -> None:
    it, wrong = buffer(), list[Any]([["id"]])
    for call in (
        partial(it.insert, PATH, SCHEMA, wrong, is_update=False),
        partial(it.delete, PATH, SCHEMA, wrong),
        partial(it.lock, PATH, SCHEMA, wrong, None, "exclusive"),
    ):
        with pytest.raises(DodonaError, match="dict") as caught:
            call()
        assert caught.value.attributes == {"table": PATH, "row_index": 0}
    assert it.tables == {}


def test_an_equal_schema_is_the_schema() -> None:
    it, again = buffer(), TableSchema.parse(COLUMNS)
    it.insert(PATH, SCHEMA, [{"id": 1, "value": 1}], is_update=False)
    it.insert(PATH, again, [{"id": 2, "value": 1}], is_update=False)
    assert it.row_count == 2
    check_schema(PATH, it.tables[PATH], again)
    with pytest.raises(TransactionAborted, match="schema changed"):
        check_schema(PATH, it.tables[PATH], TableSchema.parse(COLUMNS[:2]))


# Limits


def test_a_transaction_takes_exactly_the_bytes_of_its_limit() -> None:
    size = write_bytes(SCHEMA.write_of({"id": 1, "value": 1}))
    for bytes_max in (size, size - 1):
        it = buffer(bytes_max=bytes_max)
        if bytes_max == size:
            it.insert(PATH, SCHEMA, [{"id": 1, "value": 1}], is_update=False)
            assert it.size_bytes == size
        else:
            with pytest.raises(LimitExceeded, match=f"at most {bytes_max} bytes"):
                it.insert(PATH, SCHEMA, [{"id": 1, "value": 1}], is_update=False)


def test_an_iterator_is_asked_for_one_row_more_than_allowed() -> None:
    taken: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        while True:
            taken.append(len(taken))
            yield {"id": len(taken), "value": 1}

    with pytest.raises(LimitExceeded, match="at most 3 rows"):
        buffer(rows_max=3).insert(PATH, SCHEMA, rows(), is_update=False)
    assert len(taken) == 4


def test_a_transaction_lives_for_exactly_its_life() -> None:
    for age_us, is_too_old in ((2_000_999, False), (2_001_000, True)):
        it = buffer(life_ms_max=2_000)
        if is_too_old:
            with pytest.raises(SnapshotTooOld, match="at most 2000 ms") as caught:
                it.start_commit(1_000_000 + age_us)
            assert caught.value.attributes == {"transaction": 50, "age_ms": 2_001}
            assert it.is_aborted
        else:
            it.start_commit(1_000_000 + age_us)
            assert it.is_committing
    blind = buffer(None, life_ms_max=2_000)
    blind.start_commit(1 << 60)
    assert blind.is_committing, "it has no snapshot that could be too old"


# Sizes


def test_changes_begin_with_nothing() -> None:
    assert Changes() == Changes({}, {}, {}, 0, 0)
    assert TableBuffer(SCHEMA).after_locks([], 1, "exclusive") == Changes()


@pytest.mark.parametrize("lock_type", ["exclusive", "shared_write", "shared_weak", "shared_strong"])
@pytest.mark.parametrize("length", [0, 20, 300])
def test_the_size_of_a_lock_is_never_estimated_too_small(lock_type: LockType, length: int) -> None:
    name = Key(b"x" * length)
    changes = TableBuffer(SCHEMA).after_locks([name], (1 << 32) - 1, lock_type)
    wire = len(msgspec.msgpack.encode(RowLock(name, (1 << 32) - 1, lock_type)))
    assert wire <= changes.size_bytes <= wire + SLACK


@pytest.mark.parametrize("count", [1, 8, 63, 64, 1_024])
def test_the_size_of_a_special_write_is_never_estimated_too_small(count: int) -> None:
    sums = [
        {"name": f"c{it}", "type": "int64", "aggregate": "sum", "lock": f"l{it % 31}"}
        for it in range(count)
    ]
    schema = TableSchema.parse([{"name": "id", "type": "int64", "sort_order": "ascending"}, *sums])
    write = schema.change_of({"id": 1, **{it["name"]: 1 for it in sums}}, is_update=True)
    changes = TableBuffer(schema).after_special_writes([write], schema.aggregate_mask, True)
    packed = pack_special(schema, changes.special, [write])
    wire = len(msgspec.msgpack.encode(packed))
    assert wire <= changes.size_bytes - write_bytes(write) <= wire + SLACK
    assert changes.row_count == 1
