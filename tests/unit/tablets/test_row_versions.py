"""A row's chain of versions at its bounds: what a read takes, and after how many steps it stops."""

from itertools import pairwise
from typing import Any

import pytest

from dodona.schema import TableSchema
from dodona.types import Timestamp
from dodona_tablets.core.rows.version import (
    ALL_VERSIONS,
    STEPS_MAX,
    LongHistory,
    Version,
    add,
    bits_of,
    chain_of,
    fold,
    history,
    is_last,
    linked,
    united,
    value_of,
    values_at,
    values_between,
    version_of,
    versions_between,
    versions_until,
)

COLUMNS = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "int64"},
        {"name": "sum", "type": "int64", "aggregate": "sum"},
        {"name": "c", "type": "int64"},
    ]
).value_columns
A, SUM, C, FULL = 1, 2, 4, 7


def write(at: int, mask: int, *values: Any, deltas: int = 0, shared: int = 0) -> Version:
    return version_of(Timestamp(at), mask, values, None, deltas, shared)


def deletion(at: int) -> Version:
    return write(at, 0)


def chain(*newest_first: Version) -> Version:
    made = chain_of(newest_first)
    assert made is not None
    return made


def plain(newest: Version | None) -> list[Version]:
    return [linked(it, None) for it in history(newest)]


def long_chain(count: int, mask: int = A) -> Version:
    """Versions at count, …, 2, 1."""
    return chain(*(write(at, mask, at) for at in range(count, 0, -1)))


def read(newest: Version | None, at: int, wanted: int = FULL) -> Any:
    return values_at(newest, Timestamp(at), wanted, FULL)


def read_between(newest: Version, oldest: int, at: int, wanted: int = FULL, **how: Any) -> Any:
    return values_between(newest, Timestamp(oldest), Timestamp(at), wanted, COLUMNS, **how)


def test_a_version_has_marks_only_if_it_needs_them() -> None:
    assert version_of(Timestamp(5), A, (7,)) == (5, A, (7,), None)
    assert version_of(Timestamp(5), A, (7,), None, 0, 1) == (5, A, (7,), None, 0, 1)
    assert version_of(Timestamp(5), SUM, (7,), None, SUM) == (5, SUM, (7,), None, SUM, 0)
    older = write(4, A, 1)
    assert linked(write(5, A, 7), older) == (5, A, (7,), older)
    assert linked(write(5, SUM, 7, deltas=SUM, shared=3), older) == (5, SUM, (7,), older, SUM, 3)


def test_a_version_takes_its_place_in_the_order_of_time() -> None:
    versions = [write(at, A, at) for at in (2, 4, 6)]
    for at in (1, 3, 5, 7):
        found = plain(add(chain(*reversed(versions)), write(at, C, 0)))
        assert [it[0] for it in found] == sorted([2, 4, 6, at], reverse=True)
        assert {*versions} < {*found}
    assert plain(add(None, versions[0])) == [versions[0]]


def test_two_changes_at_one_time_are_united() -> None:
    first = write(5, A | SUM, 1, 2, deltas=SUM, shared=1)
    second = write(5, SUM | C, 3, 4, shared=2)
    below, above = write(4, A, 0), write(6, A, 9)
    found = plain(add(chain(above, first, below), second))
    assert found == [above, write(5, FULL, 1, 3, 4, shared=3), below]
    found = plain(add(chain(second), first))
    assert found == [write(5, FULL, 1, 2, 4, deltas=SUM, shared=3)]
    assert plain(add(chain(deletion(5)), second)) == [second]
    assert plain(add(chain(second), deletion(5))) == [second]


def test_two_chains_are_joined_with_all_of_their_versions() -> None:
    one = chain(write(6, A, 6), write(2, A, 2))
    other = chain(write(8, A, 8), write(4, A, 4), write(1, A, 1))
    joined = united(one, other)
    assert [it[0] for it in history(joined)] == [8, 6, 4, 2, 1]


@pytest.mark.parametrize(
    ("since", "at", "most", "found"),
    [
        (0, 9, 9, [6, 4, 2]),
        (2, 6, 9, [6, 4]),
        (1, 5, 9, [4, 2]),
        (6, 9, 9, []),
        (0, 9, 2, [6, 4]),
        (0, 5, 1, [4]),
        (0, 9, 0, []),
    ],
)
def test_versions_between_two_times(since: int, at: int, most: int, found: list[int]) -> None:
    newest = chain(write(6, A, 6), write(4, A, 4), write(2, A, 2))
    times = [it[0] for it in versions_between(newest, Timestamp(since), Timestamp(at), most)]
    assert times == found


def test_older_versions_matter_until_all_wanted_columns_have_a_value() -> None:
    assert is_last(deletion(5), FULL)
    assert is_last(write(5, A | C, 1, 1), A)
    assert is_last(write(5, A, 1), A)
    assert not is_last(write(5, A, 1), A | C)
    assert not is_last(write(5, SUM, 1, deltas=SUM), SUM)
    assert is_last(write(5, A | SUM, 1, 1, deltas=SUM), A)
    newest = chain(write(8, C, 1), write(6, A, 1), write(4, C, 1), write(2, A, 1))
    for at, wanted, times in (
        (9, A | C, [8, 6, 4, 2]),
        (9, C, [8]),
        (6, A, [6]),
        (5, A, [4, 2]),
        (1, A, []),
    ):
        assert [it[0] for it in versions_until(newest, Timestamp(at), wanted)] == times


def test_versions_until_stop_at_a_number_of_them() -> None:
    newest = chain(write(3, C, 1), write(2, C, 1), write(1, C, 1))
    assert len(versions_until(newest, Timestamp(9), A, 3)) == 3
    assert len(versions_until(newest, Timestamp(2), A, 2)) == 2
    with pytest.raises(LongHistory):
        versions_until(newest, Timestamp(9), A, 2)
    assert len(versions_until(newest, Timestamp(9), A, ALL_VERSIONS)) == 3
    assert len(versions_until(long_chain(STEPS_MAX), Timestamp(999), C)) == STEPS_MAX
    with pytest.raises(LongHistory):
        versions_until(long_chain(STEPS_MAX + 1), Timestamp(999), C)


def test_a_read_takes_the_newest_value_of_each_column() -> None:
    newest = chain(
        write(9, C, 90),
        deletion(8),
        write(6, A, 60),
        write(4, A | C, 40, 41),
        write(2, SUM, 20),
    )
    for at, values in (
        (9, (None, None, 90)),
        (8, None),
        (7, (60, 20, 41)),
        (6, (60, 20, 41)),
        (5, (40, 20, 41)),
        (3, (None, 20, None)),
        (1, None),
    ):
        assert read(newest, at) == values
    assert read(None, 5) is None
    assert read(newest, 7, C) == (41,)
    assert read(newest, 7, A | SUM) == (60, 20)
    assert read(newest, 4, A | C) == (40, 41)
    assert read(newest, 6, 0) == ()
    assert read(chain(write(FULL, A, 1)), 99) == (1, None, None), "whatever its time"
    assert values_at(newest, Timestamp(7), FULL, A | C) == (60, 41), "it has no more columns"


def test_a_read_stops_after_so_many_steps() -> None:
    assert read(long_chain(STEPS_MAX), 1, A) == (1,)
    with pytest.raises(LongHistory):
        read(long_chain(STEPS_MAX + 1), 1, A)
    assert read(long_chain(STEPS_MAX - 1), 999, A | C) == (STEPS_MAX - 1, None)
    with pytest.raises(LongHistory):
        read(long_chain(STEPS_MAX), 999, A | C)


def test_changes_are_folded_from_the_value_below_them() -> None:
    newest = chain(
        write(9, SUM, 5, deltas=SUM),
        write(7, A | SUM, 70, 3, deltas=SUM),
        write(5, SUM, 100),
        write(3, A | C, 30, 31),
        deletion(2),
        write(1, FULL, 1, 1, 1),
    )
    for oldest, at, values in (
        (0, 9, (70, 108, 31)),
        (0, 8, (70, 103, 31)),
        (5, 9, (70, 108, None)),
        (6, 9, (70, 8, None)),
        (7, 9, (70, 8, None)),
        (8, 9, (None, 5, None)),
        (0, 4, (30, None, 31)),
        (0, 2, None),
        (2, 2, None),
        (0, 1, (1, 1, 1)),
        (1, 1, (1, 1, 1)),
        (10, 99, None),
    ):
        assert read_between(newest, oldest, at) == values, (oldest, at)
    assert read_between(newest, 0, 9, SUM) == (108,)
    assert read_between(newest, 0, 9, A | C) == (70, 31)
    assert fold(COLUMNS[1], [5, 3, 100]) == 108
    assert fold(COLUMNS[1], []) is None


def test_a_folded_read_stops_after_so_many_steps_and_not_behind_its_last_version() -> None:
    assert read_between(long_chain(STEPS_MAX), 0, 999, C) == (None,)
    with pytest.raises(LongHistory):
        read_between(long_chain(STEPS_MAX + 1), 0, 999, C)
    assert read_between(long_chain(3), 0, 9, C, steps_max=3) == (None,)
    with pytest.raises(LongHistory):
        read_between(long_chain(4), 0, 9, C, steps_max=3)
    assert read_between(long_chain(999), 0, 999, A) == (999,)
    assert read_between(long_chain(999), 998, 999, C) == (None,)


def test_bits_are_counted_from_the_lowest() -> None:
    assert [*bits_of(0)] == []
    assert [*bits_of(0b1011)] == [0, 1, 3]
    version = write(5, A | C, "a", "c")
    assert [value_of(version, it) for it in (0, 2)] == ["a", "c"]
    assert all(newer[0] > older[0] for newer, older in pairwise(history(long_chain(5))))
