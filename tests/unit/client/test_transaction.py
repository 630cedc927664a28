"""The client's buffer: what several writes of one row come to, its states, and its limits."""

from typing import Any

import msgspec
import pytest

from dodona._core.protocol.limits import TransactionLimits
from dodona._core.writing.buffer import merge
from dodona._core.writing.modes import check_modes
from dodona._core.writing.transaction import TransactionBuffer, TransactionState
from dodona.errors import (
    InvalidRequest,
    LimitExceeded,
    SchemaViolation,
    SnapshotTooOld,
    TransactionAborted,
    TransactionClosed,
)
from dodona.schema import TableSchema
from dodona.types import SYNC_LAST_COMMITTED, Timestamp, Write
from dodona_wire.rows.sizes import write_bytes
from unit.client.protocols import PATH, SCHEMA, key

WIDE = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        *({"name": name, "type": "int64"} for name in "abc"),
    ]
)


def buffer(**limits: int) -> TransactionBuffer:
    return TransactionBuffer(
        Timestamp(50),
        atomicity="full",
        durability="sync",
        begun_us=0,
        limits=TransactionLimits(**limits),
    )


def wide(mask: int, *values: Any) -> Write:
    return key(1), mask, values


OVERWRITE_A = wide(0b111, 1, None, None)
UPDATE_A, UPDATE_B, UPDATE_AC = wide(0b001, 5), wide(0b010, 6), wide(0b101, 7, 8)
DELETE = wide(0)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (UPDATE_A, UPDATE_B, wide(0b011, 5, 6)),
        (UPDATE_B, UPDATE_A, wide(0b011, 5, 6)),
        (UPDATE_A, UPDATE_A, UPDATE_A),
        (UPDATE_AC, UPDATE_B, wide(0b111, 7, 6, 8)),
        (UPDATE_B, UPDATE_AC, wide(0b111, 7, 6, 8)),
        (UPDATE_A, UPDATE_AC, UPDATE_AC),
        (UPDATE_AC, UPDATE_A, wide(0b101, 5, 8)),
        (OVERWRITE_A, UPDATE_B, wide(0b111, 1, 6, None)),
        (UPDATE_B, OVERWRITE_A, OVERWRITE_A),
        (UPDATE_A, DELETE, DELETE),
        (OVERWRITE_A, DELETE, DELETE),
        (DELETE, DELETE, DELETE),
        (DELETE, OVERWRITE_A, OVERWRITE_A),
        (DELETE, UPDATE_A, wide(0b111, 5, None, None)),
        (DELETE, UPDATE_AC, wide(0b111, 7, None, 8)),
    ],
)
def test_two_writes_of_a_row_merge(old: Write, new: Write, expected: Write) -> None:
    assert merge(WIDE, old, new) == expected


def test_the_buffer_merges_within_a_call_and_between_calls() -> None:
    it = buffer()
    it.insert(PATH, WIDE, [{"id": 1, "a": 1}, {"id": 1, "b": 2}], is_update=True)
    it.delete(PATH, WIDE, [{"id": 1}, {"id": 2}])
    it.insert(PATH, WIDE, [{"id": 1, "c": 3}], is_update=True)
    assert it.tables[PATH].writes == {
        key(1): (key(1), 0b111, (None, None, 3)),
        key(2): (key(2), 0, ()),
    }
    assert it.row_count == 2


def test_reads_are_at_the_start_and_do_not_see_the_buffer() -> None:
    it = buffer()
    it.insert(PATH, SCHEMA, [{"id": 1, "value": 1}], is_update=False)
    assert it.read_timestamp() == 50
    assert it.own_writes(PATH) is None


def test_a_non_atomic_transaction_has_no_snapshot() -> None:
    it = TransactionBuffer(
        None, atomicity="none", durability="async", begun_us=0, limits=TransactionLimits()
    )
    assert it.read_timestamp() == SYNC_LAST_COMMITTED
    assert it.id is None
    it.start_commit(10**12)  # nor a life: nothing is compared with its start


# ---- refusals


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 1, "value": 1}, {"id": 2, "value": "x"}],
        [{"id": 1, "value": 1}, {"number": 2, "value": 2}],
        [{"id": 1, "value": 1}, (2, 2)],
        [{"id": 1, "value": 1}, "row"],
    ],
)
def test_one_bad_row_leaves_none_of_the_call_behind(rows: list[Any]) -> None:
    it = buffer()
    with pytest.raises(SchemaViolation) as caught:
        it.insert(PATH, SCHEMA, rows, is_update=False)
    assert caught.value.attributes["row_index"] == 1
    assert caught.value.attributes["table"] == PATH
    assert (it.row_count, it.size_bytes, it.tables) == (0, 0, {})


@pytest.mark.parametrize("rows", [{"id": 1, "value": 1}, "rows", b"rows", 5, None])
def test_rows_that_are_no_list_are_refused(rows: Any) -> None:
    with pytest.raises(InvalidRequest, match="list of dicts"):
        buffer().insert(PATH, SCHEMA, rows, is_update=False)
    with pytest.raises(InvalidRequest, match="list of dicts"):
        buffer().delete(PATH, SCHEMA, rows)


def test_an_invalid_key_is_reported_with_its_row_index() -> None:
    with pytest.raises(SchemaViolation) as caught:
        buffer().delete(PATH, SCHEMA, [{"id": 1}, {"id": 1, "value": 2}])
    assert caught.value.attributes["row_index"] == 1


def test_any_iterable_of_rows_will_do() -> None:
    it = buffer()
    it.insert(PATH, SCHEMA, ({"id": n, "value": n} for n in range(3)), is_update=False)
    it.delete(PATH, SCHEMA, iter([{"id": 9}]))
    assert it.row_count == 4


def test_another_schema_under_the_same_path_is_refused() -> None:
    it = buffer()
    it.insert(PATH, SCHEMA, [{"id": 1, "value": 1}], is_update=False)
    with pytest.raises(TransactionAborted, match="changed") as caught:
        it.insert(PATH, WIDE, [{"id": 1, "a": 1}], is_update=False)
    assert caught.value.is_retryable
    with pytest.raises(TransactionAborted):
        it.delete(PATH, WIDE, [{"id": 1}])
    with pytest.raises(TransactionAborted):
        it.lock(PATH, WIDE, [{"id": 1}], None, "shared_strong")


def test_the_row_limit_counts_rows_and_not_writes() -> None:
    it = buffer(rows_max=3)
    for _ in range(3):
        it.insert(PATH, SCHEMA, [{"id": n, "value": n} for n in range(3)], is_update=False)
    with pytest.raises(LimitExceeded, match="at most 3 rows"):
        it.insert(PATH, SCHEMA, [{"id": 4, "value": 4}], is_update=False)
    with pytest.raises(LimitExceeded):
        it.delete("//other", SCHEMA, [{"id": 1}])
    assert it.row_count == 3
    assert it.is_active


def test_the_row_limit_counts_each_locked_or_written_row_once() -> None:
    it = buffer(rows_max=2)
    for lock_type in ("shared_weak", "shared_strong"):
        it.lock(PATH, SCHEMA, [{"id": 1}, {"id": 1}, {"id": 2}], None, lock_type)
    it.insert(PATH, SCHEMA, [{"id": 1, "value": 1}], is_update=False)
    it.lock(PATH, SCHEMA, [{"id": 1}], None, "exclusive")
    assert it.row_count == 2
    before = it.size_bytes
    with pytest.raises(LimitExceeded, match="writes and locks at most 2 rows"):
        it.lock(PATH, SCHEMA, [{"id": 2}, {"id": 3}], None, "exclusive")
    with pytest.raises(LimitExceeded):
        it.insert(PATH, SCHEMA, [{"id": 3, "value": 3}], is_update=False)
    assert (it.row_count, it.size_bytes) == (2, before)
    assert list(it.tables[PATH].locks) == [key(1), key(2)]


def test_locks_and_shared_writes_count_as_bytes() -> None:
    plain, special = buffer(), buffer()
    plain.insert(PATH, SCHEMA, [{"id": 1, "value": 1}], is_update=False)
    special.insert(PATH, SCHEMA, [{"id": 1, "value": 1}], is_update=False, lock_type="shared_write")
    assert special.size_bytes > plain.size_bytes
    special.delete(PATH, SCHEMA, [{"id": 1}])
    plain.delete(PATH, SCHEMA, [{"id": 1}])
    assert special.size_bytes == plain.size_bytes
    special.lock(PATH, SCHEMA, [{"id": 1}], None, "shared_strong")
    locked = special.size_bytes
    assert locked > plain.size_bytes
    special.lock(PATH, SCHEMA, [{"id": 1}], None, "shared_strong")
    assert special.size_bytes == locked


def test_an_endless_iterable_is_cut_off_at_the_limit() -> None:
    def endless() -> Any:
        number = 0
        while True:
            number += 1
            yield {"id": number, "value": number}

    it = buffer(rows_max=100)
    with pytest.raises(LimitExceeded):
        it.insert(PATH, SCHEMA, endless(), is_update=False)
    assert it.row_count == 0


def test_the_byte_limit_does_not_count_overwritten_values() -> None:
    it = buffer(bytes_max=1_000)
    for _ in range(20):
        it.insert(PATH, SCHEMA, [{"id": 1, "note": "n" * 500}], is_update=False)
    with pytest.raises(LimitExceeded, match="at most 1000 bytes"):
        it.insert(PATH, SCHEMA, [{"id": 2, "note": "n" * 500}], is_update=False)
    it.delete(PATH, SCHEMA, [{"id": 1}])
    it.insert(PATH, SCHEMA, [{"id": 2, "note": "n" * 500}], is_update=False)


@pytest.mark.parametrize("mask", [1, 1 << 63, 1 << 64, 1 << 1_023])
@pytest.mark.parametrize("value", ["é" * 100, b"x" * 100, ["a" * 100], {"k": "v" * 100}, "x" * 200])
def test_the_size_estimate_of_a_write_is_never_too_small(value: Any, mask: int) -> None:
    packed = mask if mask < 1 << 64 else mask.to_bytes(128, "little").rstrip(b"\0")
    on_the_wire = msgspec.msgpack.encode((key(1), packed, (value,)))
    assert write_bytes((key(1), mask, (value,))) >= len(on_the_wire)


# ---- states


def committing() -> TransactionBuffer:
    it = buffer()
    it.start_commit(0)
    return it


def committed() -> TransactionBuffer:
    it = committing()
    it.end_committed(Timestamp(60))
    return it


def aborted() -> TransactionBuffer:
    it = buffer()
    it.abort()
    return it


@pytest.mark.parametrize(
    ("it", "said"),
    [
        (committing(), "the transaction is being committed"),
        (committed(), "the transaction is already committed"),
        (aborted(), "the transaction is already aborted"),
    ],
)
def test_a_closed_transaction_takes_nothing(it: TransactionBuffer, said: str) -> None:
    rows = [{"id": 1, "value": 1}]
    for act in (
        lambda: it.insert(PATH, SCHEMA, rows, is_update=False),
        lambda: it.delete(PATH, SCHEMA, [{"id": 1}]),
        lambda: it.lock(PATH, SCHEMA, [{"id": 1}], None, "shared_strong"),
        lambda: it.start_commit(0),
        it.read_timestamp,
    ):
        with pytest.raises(TransactionClosed, match=said) as caught:
            act()
        assert caught.value.attributes == {"transaction": 50, "state": it.state.value}


def test_abort_may_be_repeated_but_not_after_a_commit() -> None:
    it = aborted()
    it.abort()
    assert it.state is TransactionState.ABORTED
    with pytest.raises(TransactionClosed):
        committed().abort()


def test_a_committing_transaction_takes_the_settled_outcome() -> None:
    it = committing()
    it.settle(Timestamp(70))
    assert (it.is_committed, it.commit_timestamp) == (True, 70)
    it = committing()
    it.settle(None)
    assert (it.is_aborted, it.commit_timestamp) == (True, None)


def test_a_commit_aborts_a_transaction_that_is_too_old() -> None:
    it = buffer(life_ms_max=1_000)
    with pytest.raises(SnapshotTooOld) as caught:
        it.start_commit(1_001_000)
    assert caught.value.is_retryable
    assert it.is_aborted


@pytest.mark.parametrize(
    ("atomicity", "durability", "said"),
    [
        ("full", "async", 'Durability must be "sync"'),
        ("half", "sync", "Atomicity must be"),
        ("none", "maybe", "Durability must be"),
    ],
)
def test_modes_that_do_not_exist_or_fit(atomicity: str, durability: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        check_modes(atomicity, durability)
