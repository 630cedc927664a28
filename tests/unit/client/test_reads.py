"""The reads of a serializable transaction: what is kept of them, and how many become fewer."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dodona._core.protocol.routing import TableRoute
from dodona._core.writing.buffer import TableBuffer
from dodona._core.writing.reads import (
    READS_KEPT,
    READS_MAX,
    CallReads,
    ReadKeys,
    TransactionReads,
    condensed,
    groups_of,
    merged_exactly,
)
from dodona.errors import TransactionAborted
from dodona.schema import Column, TableSchema
from dodona.types import (
    KEY_MAX,
    KEY_MIN,
    Atomicity,
    Isolation,
    Key,
    LockType,
    TableSettings,
)
from dodona_wire.rows.keys import successor
from suite.levels import examples
from unit.client.protocols import COLUMNS, key, table

LOCKED = (
    Column("id", "int64", "ascending"),
    Column("a", "int64", lock="a"),
    Column("b", "int64", lock="b"),
    Column("plain", "int64"),
)
MAIN, A, B = 1, 2, 4


def route(
    *,
    path: str = "//t",
    columns: tuple[Column, ...] = LOCKED,
    its_id: int = 1,
    atomicity: Atomicity = "full",
    isolation: Isolation | None = None,
) -> TableRoute:
    of = table(path=path, columns=columns, its_id=its_id, atomicity=atomicity)
    settings = TableSettings(isolation=isolation)
    return TableRoute(replace(of, settings=settings), TableSchema.parse(columns))


def fresh(asked: Isolation | None = "serializable") -> TransactionReads:
    return TransactionReads(asked, None)


def noted(reads: TransactionReads, path: str = "//t") -> set[tuple[Key, Key, int]]:
    return {(it.lower, it.upper, it.lock_mask) for it in reads.tables[path].all()}


def one(number: int, mask: int) -> tuple[Key, Key, int]:
    return key(number), successor(key(number)), mask


# ---- what is recorded


def test_keys_are_recorded_with_the_groups_of_their_columns() -> None:
    reads = fresh()
    call = CallReads(reads)
    call.note_keys(route(), [key(1), key(2)], 0b001)
    call.note_keys(route(), [key(2)], 0b110)
    assert noted(reads) == {one(1, A), one(2, MAIN | A | B)}


def test_ranges_are_recorded_and_empty_ones_are_not() -> None:
    reads = fresh()
    ends = [(KEY_MIN, key(1)), (key(5), KEY_MAX), (key(3), key(3)), (key(4), key(2))]
    CallReads(reads).note_ranges(route(), ends, 0b010)
    assert noted(reads) == {(KEY_MIN, key(1), B), (key(5), KEY_MAX, B)}


def test_a_read_of_no_value_column_depends_on_all_groups() -> None:
    schema = TableSchema.parse(LOCKED)
    assert groups_of(schema, 0) == MAIN | A | B
    assert groups_of(schema, 0b100) == MAIN
    assert groups_of(schema, 0b011) == A | B


@pytest.mark.parametrize(
    ("asked", "default", "is_recorded"),
    [
        (None, None, False),
        (None, "snapshot", False),
        (None, "serializable", True),
        ("serializable", "snapshot", True),
        ("serializable", None, True),
        ("snapshot", "serializable", False),
    ],
)
def test_the_transaction_says_more_than_the_client(
    asked: Isolation | None, default: Isolation | None, is_recorded: bool
) -> None:
    reads = TransactionReads(asked, default)
    CallReads(reads).note_keys(route(), [key(1)], 0)
    assert bool(reads.tables) is is_recorded


@pytest.mark.parametrize(
    ("asked", "of_table", "default", "is_recorded"),
    [
        (None, "serializable", "snapshot", True),
        (None, "serializable", None, True),
        (None, "snapshot", "serializable", False),
        ("snapshot", "serializable", None, False),
        ("serializable", "snapshot", None, True),
    ],
)
def test_the_table_says_more_than_the_client_and_less_than_the_transaction(
    asked: Isolation | None,
    of_table: Isolation,
    default: Isolation | None,
    is_recorded: bool,
) -> None:
    reads = TransactionReads(asked, default)
    CallReads(reads).note_keys(route(isolation=of_table), [key(1)], 0)
    assert bool(reads.tables) is is_recorded


def test_reads_of_tables_without_atomicity_are_not_recorded() -> None:
    reads = fresh()
    CallReads(reads).note_keys(route(atomicity="none"), [key(1)], 0)
    CallReads(reads).note_ranges(route(atomicity="none"), [(KEY_MIN, KEY_MAX)], 0)
    assert reads.tables == {}


# ---- tables that change


def test_a_call_that_begins_again_replaces_its_reads() -> None:
    reads, new = fresh(), route(columns=COLUMNS)
    call = CallReads(reads)
    call.note_keys(route(), [key(1)], 0b001)
    call.note_keys(new, [key(2)], 0b01)
    assert noted(reads) == {one(2, MAIN)}
    reads.tables["//t"].check(new)
    with pytest.raises(TransactionAborted):
        reads.tables["//t"].check(route())


@pytest.mark.parametrize("new", [route(columns=COLUMNS), route(its_id=2)])
def test_two_calls_that_see_two_tables_abort_the_transaction(new: TableRoute) -> None:
    reads = fresh()
    CallReads(reads).note_keys(route(), [key(1)], 0b001)
    reads.tables["//t"].check(route())
    CallReads(reads).note_keys(new, [key(2)], 0b01)
    for it in (route(), new):
        with pytest.raises(TransactionAborted) as caught:
            reads.tables["//t"].check(it)
        assert caught.value.attributes == {"table": "//t"}


@pytest.mark.parametrize("new", [route(columns=COLUMNS), route(its_id=2)])
def test_another_table_at_the_commit_aborts_the_transaction(new: TableRoute) -> None:
    reads = fresh()
    call = CallReads(reads)
    call.note_keys(route(), [key(1)], 0b001)
    call.note_keys(route(), [key(1)], 0b001)
    with pytest.raises(TransactionAborted, match="Run the transaction again"):
        reads.tables["//t"].check(new)


# ---- keys that the writes protect


def buffer_of(*writes: tuple[int, int], locks: dict[int, dict[LockType, int]]) -> TableBuffer:
    made = TableBuffer(TableSchema.parse(LOCKED))
    for number, mask in writes:
        made.writes[key(number)] = (key(number), mask, (None,) * mask.bit_count())
    made.locks.update({key(number): its for number, its in locks.items()})
    return made


def left(own: TableBuffer, *numbers: int) -> list[int]:
    reads = fresh()
    CallReads(reads).note_keys(route(), [*map(key, numbers)], 0b111)
    kept = {it.lower for it in reads.tables["//t"].all(own)}
    return [it for it in numbers if key(it) in kept]


def test_keys_that_are_locked_exclusively_as_a_whole_need_no_validation() -> None:
    own = buffer_of(
        (1, 0b111),  # overwrites the row
        (2, 0b011),  # does not lock the main group
        (3, 0),  # deletes the row
        (4, 0b100),  # the main lock stands for all groups
        (5, 0b111),
        locks={
            6: {"exclusive": MAIN},
            7: {"exclusive": A},
            8: {"shared_strong": MAIN, "shared_weak": MAIN},
        },
    )
    own.special[key(5)] = (0, MAIN)  # others write the main group, too
    assert left(own, 1, 2, 3, 4, 5, 6, 7, 8, 9) == [2, 5, 7, 8, 9]


def test_ranges_are_validated_beside_writes() -> None:
    reads, own = fresh(), buffer_of((1, 0b111), locks={})
    ends = key(1), successor(key(1))
    CallReads(reads).note_ranges(route(), [ends], 0b111)
    assert [*reads.tables["//t"].all(own)] == [(*ends, MAIN | A | B)]


# ---- rows to lock before the next attempt


def test_single_keys_are_locked_first_next_time() -> None:
    reads = fresh()
    call = CallReads(reads)
    call.note_keys(route(), [key(2), key(1)], 0)
    call.note_keys(route(path="//u"), [key(7)], 0)
    call.note_ranges(route(path="//v"), [(KEY_MIN, KEY_MAX)], 0)
    rows = {"//t": [key(1)], "//w": [key(3)]}
    both = {"//t": [key(1), key(2)], "//w": [key(3)], "//u": [key(7)]}
    assert reads.with_keys(rows, 4) == both
    assert reads.with_keys(rows, 3) is rows, "too many together"


def test_keys_that_were_condensed_are_not_locked() -> None:
    reads = fresh()
    call = CallReads(reads)
    call.note_keys(route(), [*map(key, range(READS_MAX + 1))], 0)
    call.note_keys(route(path="//u"), [key(7)], 0)
    assert reads.with_keys({}, 10**9) == {}


# ---- few instead of many


def covers(reads: Iterable[tuple[Key, Key, int]], wanted: tuple[Key, Key, int]) -> bool:
    """Whether one of the reads covers all of the wanted one, as a hull does."""
    lower, upper, mask = wanted
    return any(it[0] <= lower and upper <= it[1] and not mask & ~it[2] for it in reads)


def test_up_to_the_limit_all_reads_stay_as_they_are() -> None:
    reads = fresh()
    call = CallReads(reads)
    for number in range(READS_MAX):
        call.note_keys(route(), [key(2 * number)], 0)
    assert len(noted(reads)) == READS_MAX
    call.note_keys(route(), [key(-1)], 0)
    assert len(noted(reads)) == READS_KEPT


@pytest.mark.parametrize("seed", range(4))
def test_many_reads_are_bounded_and_stay_covered(seed: int) -> None:
    dice, reads, all_of = random.Random(seed), fresh(), dict[str, set[tuple[Key, Key, int]]]()
    for _ in range(3_000):
        path = dice.choice(("//t", "//t", "//u"))
        column = dice.randrange(4)
        mask = (MAIN | A | B, A, B, A | B)[column]
        low = dice.randrange(1 << 40)
        call = CallReads(reads)
        if dice.random() < 0.7:
            call.note_keys(route(path=path), [key(low)], column)
            all_of.setdefault(path, set()).add(one(low, mask))
        else:
            ends = key(low), key(low + dice.choice((1, 1 << 10, 1 << 36)))
            call.note_ranges(route(path=path), [ends], column)
            all_of.setdefault(path, set()).add((*ends, mask))
        assert sum(it.count for it in reads.tables.values()) <= READS_MAX
    for path, wanted in all_of.items():
        kept = noted(reads, path)
        assert all(covers(kept, it) for it in wanted)


def test_near_neighbours_are_merged_first() -> None:
    reads = [ReadKeys(*one(number, A)) for number in (0, 1, 1_000, 1_001, 5_000)]
    found = condensed({"//t": reads}, 2)
    assert found == {
        "//t": [
            ReadKeys(key(0), successor(key(1)), A),
            ReadKeys(key(1_000), successor(key(1_001)), A),
            reads[4],
        ]
    }
    assert condensed({"//t": reads, "//u": reads}, 100) == {
        "//t": [ReadKeys(key(0), successor(key(5_000)), A)],
        "//u": [ReadKeys(key(0), successor(key(5_000)), A)],
    }
    assert condensed({"//t": reads}, -1) == {"//t": reads}
    assert condensed({"//t": []}, 1) == {"//t": []}


READS = st.lists(
    st.builds(
        lambda low, length, mask: ReadKeys(Key(low), Key(max(low, length) + b"\0"), mask),
        st.binary(max_size=3),
        st.binary(max_size=3),
        st.integers(1, 3),
    ),
    max_size=12,
)
"""Ranges of short keys, which overlap and touch in all ways."""
POINTS = [bytes(it) for it in ([], [0], [0, 0], [1], [1, 255, 1], [7], [255], [255, 255, 255])]


def masks_at(reads: Iterable[ReadKeys], point: bytes) -> int:
    found = 0
    for it in reads:
        found |= it.lock_mask if it.lower <= point < it.upper else 0
    return found


@given(READS)
@settings(max_examples=examples(100), deadline=None)
def test_exact_merging_changes_nothing_of_what_is_read(reads: list[ReadKeys]) -> None:
    merged = merged_exactly(reads)
    points = {*POINTS, *[it.lower for it in reads], *[it.upper for it in reads]}
    for point in points:
        assert masks_at(merged, point) == masks_at(reads, point)
    assert len(merged) <= len(reads)
    assert merged == sorted(merged, key=lambda it: it.lower)
    of_mask: dict[int, Key] = {}
    for it in merged:
        assert it.lock_mask not in of_mask or of_mask[it.lock_mask] < it.lower, "they are apart"
        of_mask[it.lock_mask] = it.upper


@given(READS, st.integers(0, 12))
@settings(max_examples=examples(100), deadline=None)
def test_condensing_covers_all_that_was_read(reads: list[ReadKeys], excess: int) -> None:
    merged = merged_exactly(reads)
    found = condensed({"//t": merged}, excess)["//t"]
    assert len(found) == max(min(len(merged), 1), len(merged) - excess)
    assert all(covers(found, it) for it in reads)
