"""The keys of recent commits: what they know is complete, and they stay few."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.types import Key, Timestamp, Write
from dodona_tablets.core.rows import recent_keys
from dodona_tablets.core.rows.recent_keys import RecentKeys

COMMITS = st.lists(
    st.tuples(st.integers(1, 60), st.lists(st.integers(0, 9), max_size=4, unique=True)),
    max_size=40,
    unique_by=lambda it: it[0],
)


def key(number: int) -> Key:
    return Key(bytes([number]))


def writes(numbers: list[int]) -> list[Write]:
    return [(key(number), 1, (0,)) for number in numbers]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_keys, "RECENT_KEYS_MAX", 12)


@given(COMMITS, st.integers(0, 60), st.integers(0, 5), st.integers(5, 10))
def test_it_knows_all_changes_of_a_range_or_says_that_it_does_not(
    commits: list[tuple[int, list[int]]], since: int, lower: int, upper: int
) -> None:
    recent = RecentKeys(Timestamp(0))
    kept = [recent.add(writes(numbers), Timestamp(at)) for at, numbers in commits]
    assert recent._count == sum([len(keys) for _, keys in recent._commits]) <= 12
    if not all(kept):
        return  # the tablet has dropped it
    found = recent.changed_after(Timestamp(since), key(lower), key(upper))
    if found is None:
        assert since < recent.complete_after
        return
    newer = [number for at, numbers in commits if at > since for number in numbers]
    assert sorted(found) == sorted([key(it) for it in newer if lower <= it < upper])


def test_it_goes_on_while_ranges_are_validated_and_ends_after_that() -> None:
    recent = RecentKeys(Timestamp(0))
    for at in range(1, 100):
        assert recent.add(writes([1, 2, 3]), Timestamp(at))
        assert recent.changed_after(Timestamp(at - 1), key(0), key(9)) == [key(1), key(2), key(3)]
    kept = [recent.add(writes([1, 2, 3]), Timestamp(at)) for at in range(100, 120)]
    assert not all(kept)
    assert kept[:3] == [True] * 3


def test_a_commit_of_more_rows_than_fit_is_not_known() -> None:
    recent = RecentKeys(Timestamp(0))
    recent.add(writes([1]), Timestamp(1))
    recent.add(writes([*range(13)]), Timestamp(9))
    recent.add(writes([1]), Timestamp(5))  # its timestamp came before the other one's
    assert recent.changed_after(Timestamp(8), key(0), key(20)) is None
    assert recent.changed_after(Timestamp(9), key(0), key(20)) == []
