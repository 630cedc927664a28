"""A row's versions against the definitions of a read and of retention, written out naively."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dodona.schema import TableSchema
from dodona.types import DELETE_MASK, MAX_TIMESTAMP, TableSettings, Timestamp
from dodona_tablets.core.rows import retention
from dodona_tablets.core.rows.retention import Terms, retire, retire_all
from dodona_tablets.core.rows.version import (
    Version,
    add,
    bits_of,
    chain_of,
    delta_mask_of,
    history,
    linked,
    values_at,
    values_between,
    version_of,
)

COLUMNS = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "plain", "type": "int64"},
        {"name": "sum", "type": "int64", "aggregate": "sum"},
        {"name": "max", "type": "int64", "aggregate": "max"},
        {"name": "first", "type": "int64", "aggregate": "first"},
    ]
).value_columns
FULL = (1 << len(COLUMNS)) - 1
LATEST = 60

masks = st.integers(min_value=0, max_value=FULL)
numbers = st.sampled_from([None, 0, 1, -7, (1 << 63) - 1, -(1 << 63)])


@st.composite
def versions_of_a_row(draw: st.DrawFn) -> list[Version]:
    """In timestamp order; the first column never changes by aggregation."""
    found: list[Version] = []
    for at in sorted(draw(st.sets(st.integers(1, LATEST), max_size=14))):
        mask = draw(masks)
        values = tuple(draw(numbers) for _ in bits_of(mask))
        deltas = draw(masks) & mask & ~1
        shared = draw(st.integers(0, 1)) if deltas else 0
        found.append(version_of(Timestamp(at), mask, values, None, deltas, shared))
    return found


def plain_ones(versions: list[Version]) -> list[Version]:
    return [version_of(*version[:3]) for version in versions]


COMBINE: dict[str, Callable[[int, int], int]] = {
    "sum": lambda a, b: (a + b + (1 << 63)) % (1 << 64) - (1 << 63),
    "max": max,
    "first": lambda a, _: a,
}


def naive_read(
    versions: list[Version], at: int, wanted: int, oldest: int = 0
) -> tuple[Any, ...] | None:
    """Per column what was written since the newest deletion: the newest plain value, then the
    changes after it in their order."""
    seen = [it for it in versions if oldest <= it[0] <= at]
    gone = max((it[0] for it in seen if it[1] == DELETE_MASK), default=0)
    alive = [it for it in seen if it[0] > gone]
    if not alive:
        return None
    cells: list[Any] = [None] * len(COLUMNS)
    for version in alive:
        deltas = delta_mask_of(version)
        for bit, value in zip(bits_of(version[1]), version[2], strict=True):
            if not deltas >> bit & 1:
                cells[bit] = value
            elif value is not None:
                how = COMBINE[COLUMNS[bit].aggregate or ""]
                cells[bit] = value if cells[bit] is None else how(cells[bit], value)
    return tuple(cells[bit] for bit in bits_of(wanted))


@given(versions_of_a_row(), st.integers(0, LATEST + 1), masks, st.randoms(use_true_random=False))
def test_a_read_sees_the_newest_value_of_each_column(
    versions: list[Version], at: int, wanted: int, dice: Any
) -> None:
    newest: Version | None = None
    plain = plain_ones(versions)
    for version in dice.sample(plain, len(plain)):  # commits of different groups come in any order
        newest = add(newest, version)
    assert [linked(it, None) for it in history(newest)] == plain[::-1]
    assert values_at(newest, Timestamp(at), wanted, FULL) == naive_read(plain, at, wanted)


@given(versions_of_a_row(), masks, masks)
def test_two_changes_at_one_timestamp_are_one(
    versions: list[Version], first: int, second: int
) -> None:
    """Only clients that lie about a commit timestamp get there: nothing is lost, nothing raised."""
    at = Timestamp(LATEST // 2)
    both = [version_of(at, it, tuple(bits_of(it))) for it in (first, second)]
    newest = chain_of([it for it in reversed(versions) if it[0] != at])
    for version in both:
        newest = add(newest, version)
    (found,) = [it for it in history(newest) if it[0] == at]
    assert found[1] == first | second
    assert found[2] == tuple(bits_of(first | second))


@given(versions_of_a_row(), st.integers(0, LATEST), st.integers(0, LATEST), masks)
def test_a_read_folds_changes_and_ignores_versions_below_its_lower_bound(
    versions: list[Version], at: int, oldest: int, wanted: int
) -> None:
    newest = chain_of(reversed(versions))
    found = values_between(newest, Timestamp(oldest), Timestamp(at), wanted, COLUMNS)
    assert found == naive_read(versions, at, wanted, oldest)


def retired(versions: list[Version], terms: Terms) -> list[Version]:
    left = list(versions)
    while retire(left, terms, COLUMNS):
        pass
    return left


limits = st.integers(0, 4)
times = st.integers(0, LATEST)


@given(versions_of_a_row(), times, times, st.integers(1, 4), limits)
def test_retention_changes_nothing_that_may_be_read(
    versions: list[Version], retained: int, expired: int, least: int, most: int
) -> None:
    settings = TableSettings(min_data_versions=least, max_data_versions=most)
    terms = Terms(Timestamp(retained), Timestamp(min(expired, retained)), settings)
    left = retired(versions, terms)
    for at in range(retained, LATEST + 1):
        assert naive_read(left, at, FULL) == naive_read(versions, at, FULL)
    is_young = [it for it in versions if it[0] >= retained]
    assert left[len(left) - len(is_young) :] == is_young, "locks and conflicts go by these"
    assert retired(left, terms) == left


@given(versions_of_a_row(), times, times, limits, limits)
def test_retention_changes_only_reads_of_expired_versions(
    versions: list[Version], retained: int, expired: int, least: int, most: int
) -> None:
    expired = min(expired, retained)
    settings = TableSettings(min_data_versions=least, max_data_versions=most)
    left = retired(versions, Terms(Timestamp(retained), Timestamp(expired), settings))
    for at in range(retained, LATEST + 1):
        before, after = naive_read(versions, at, 1), naive_read(left, at, 1)
        if before != after:
            assert least == 0
            seen = [it for it in versions if it[0] <= at]
            newest = [it for it in seen if it[1] & 1][-1:] or seen
            assert all(it[0] < expired for it in newest)
            assert after in (None, (None,))


LAST_IS_OTHERS: list[Version] = [
    version_of(Timestamp(at), mask, (at,) * mask.bit_count())
    for at, mask in [(1, 1), (2, DELETE_MASK), (4, 2), (5, 2), (6, DELETE_MASK)]
]


@example(LAST_IS_OTHERS, 4, 0, 0, 2)
@given(versions_of_a_row(), times, times, limits, limits)
def test_retention_keeps_exactly_the_versions_of_the_rules(
    versions: list[Version], retained: int, expired: int, least: int, most: int
) -> None:
    """The rules, column by column, for tables without aggregates. The newest old one also stays
    until it has expired: a reader at the retained timestamp sees it."""
    expired = min(expired, retained)
    plain = plain_ones(versions)
    settings = TableSettings(min_data_versions=least, max_data_versions=most)
    left = retired(plain, Terms(Timestamp(retained), Timestamp(expired), settings))
    kept: set[tuple[int, int]] = set()
    for bit in range(1):
        entries = [it for it in reversed(plain) if it[1] >> bit & 1 or it[1] == DELETE_MASK]
        old = [it for it in entries if it[0] < retained]
        young_count = len(entries) - len(old)
        for place, entry in enumerate(old):
            is_fresh = entry[0] >= expired
            if place < least or (is_fresh and (place == 0 or young_count + place < most)):
                kept.add((entry[0], bit))
        kept |= {(it[0], bit) for it in entries if it[0] >= retained}
    found = {(it[0], 0) for it in left if it[1] & 1}
    assert found == {
        (at, bit) for at, bit in kept if any(it[0] == at and it[1] & 1 for it in plain)
    }
    deletions = [it[0] for it in left if it[1] == DELETE_MASK and it[0] < retained]
    writes = [it[0] for it in left if it[1] != DELETE_MASK]
    assert all(any(write < at for write in writes) for at in deletions)


@given(versions_of_a_row(), times, st.integers(1, 3))
def test_a_long_row_comes_to_the_same_in_many_steps(
    versions: list[Version], retained: int, least: int
) -> None:
    terms = Terms(Timestamp(retained), Timestamp(0), TableSettings(min_data_versions=least))
    at_once = retired(versions, terms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "STEP_VERSIONS_MAX", 3)
        in_steps = retired(versions, terms)
    for at in range(retained, LATEST + 1):
        assert naive_read(in_steps, at, FULL) == naive_read(at_once, at, FULL)


MOMENTS = 10
moments = st.integers(0, MOMENTS + 1)


@st.composite
def stores_of_a_row(draw: st.DrawFn) -> list[list[Version]]:
    """A version at every moment, each in one of a few stores: they overlap in time."""
    stores: list[list[Version]] = [[] for _ in range(3)]
    for at in range(1, MOMENTS + 1):
        mask = draw(st.sampled_from([DELETE_MASK, 1, 2, 2, 3, 6, FULL]))
        values = tuple(at * 100 + bit for bit in bits_of(mask))
        deltas = draw(st.sampled_from([0, FULL])) & mask & ~1
        shared = draw(st.integers(0, 1)) if deltas else 0
        home = draw(st.sampled_from(stores))
        home.append(version_of(Timestamp(at), mask, values, None, deltas, shared))
    return stores


def joined(stores: list[list[Version]]) -> list[Version]:
    return sorted((it for store in stores for it in store), key=lambda it: it[0])


def compact(
    stores: list[list[Version]],
    chosen: set[int],
    retained: int,
    expired: int,
    limits: TableSettings,
) -> list[list[Version]]:
    others = [store for place, store in enumerate(stores) if place not in chosen]
    major = min([it[0] for store in others for it in store], default=MAX_TIMESTAMP)
    left = joined([store for place, store in enumerate(stores) if place in chosen])
    terms = Terms(Timestamp(retained), Timestamp(min(expired, retained)), limits, Timestamp(major))
    retire_all(left, terms, COLUMNS)
    once_more = list(left)
    assert not retire_all(once_more, terms, COLUMNS)
    return [*others, left]


compactions = st.lists(
    st.tuples(st.sets(st.integers(0, 2), min_size=1), moments, moments), min_size=1, max_size=4
)


@given(stores_of_a_row(), compactions, st.integers(1, 3), limits)
def test_stores_compacted_in_any_order_change_nothing_that_may_be_read(
    stores: list[list[Version]],
    steps: list[tuple[set[int], int, int]],
    least: int,
    most: int,
) -> None:
    versions, retained = joined(stores), 0
    limits = TableSettings(min_data_versions=least, max_data_versions=most)
    for chosen, later, expired in steps:
        retained = max(retained, later)
        stores = compact(stores, chosen, retained, expired, limits)
        for at in range(retained, MOMENTS + 2):
            assert naive_read(joined(stores), at, FULL) == naive_read(versions, at, FULL)


@given(stores_of_a_row(), compactions, limits)
def test_expiry_in_one_store_reveals_no_hidden_version_of_another_store(
    stores: list[list[Version]], steps: list[tuple[set[int], int, int]], most: int
) -> None:
    """A plain column, where even the newest version may expire: it is what it was, or null."""
    versions, retained, oldest = joined(stores), 0, 0
    limits = TableSettings(min_data_versions=0, max_data_versions=most)
    for chosen, later, expired in steps:
        retained = max(retained, later)
        oldest = max(oldest, min(expired, retained))
        stores = compact(stores, chosen, retained, oldest, limits)
        for at in range(retained, MOMENTS + 2):
            before, after = naive_read(versions, at, 1), naive_read(joined(stores), at, 1)
            if before != after:
                seen = [it for it in versions if it[0] <= at]
                newest = [it for it in seen if it[1] & 1][-1:] or seen
                assert all(it[0] < oldest for it in newest)
                assert after in (None, (None,))


@given(stores_of_a_row(), compactions, moments, moments)
def test_in_the_end_no_more_is_kept_than_of_one_store(
    stores: list[list[Version]], steps: list[tuple[set[int], int, int]], retained: int, expired: int
) -> None:
    """Once all stores are compacted together, by the settings that almost all tables have."""
    limits = TableSettings()
    (at_once,) = compact(stores, {*range(len(stores))}, retained, expired, limits)
    for chosen, *_ in steps:
        stores = compact(stores, chosen, retained, expired, limits)
    (in_parts,) = compact(stores, {*range(len(stores))}, retained, expired, limits)
    assert len(in_parts) <= len(at_once)
    for at in range(retained, MOMENTS + 2):
        assert naive_read(in_parts, at, FULL) == naive_read(at_once, at, FULL)


@pytest.mark.parametrize(
    ("major", "left_mask"), [(MAX_TIMESTAMP, DELETE_MASK), (6, 2), (5, 3), (4, 3)]
)
def test_an_expired_version_stays_while_other_versions_depend_on_it(
    major: int, left_mask: int
) -> None:
    """An aggregate may be changed by what is younger, a plain value may hide what is older."""
    versions: list[Version] = [version_of(Timestamp(5), 3, (1, 2))]
    limits = TableSettings(min_data_versions=0)
    retire_all(versions, Terms(Timestamp(9), Timestamp(9), limits, Timestamp(major)), COLUMNS)
    assert [it[1] for it in versions] == ([left_mask] if left_mask else [])
