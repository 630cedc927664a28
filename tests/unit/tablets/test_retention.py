"""The rules of retention, one by one: which versions of a row stay, and as what."""

import pytest

from dodona.schema import TableSchema
from dodona.types import MAX_TIMESTAMP, TableSettings, Timestamp
from dodona_tablets.core.rows.retention import Terms, retire, retire_all
from dodona_tablets.core.rows.version import Version, chain_of, history, version_of

COLUMNS = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "plain", "type": "int64"},
        {"name": "sum", "type": "int64", "aggregate": "sum"},
        {"name": "other", "type": "int64"},
        {"name": "last", "type": "int64"},
    ]
).value_columns
PLAIN, SUM, OTHER, ALL = 1, 2, 4, 15


def write(at: int, mask: int = PLAIN, value: int = 0, deltas: int = 0, shared: int = 0) -> Version:
    values = (value or at,) * mask.bit_count()
    return version_of(Timestamp(at), mask, values, None, deltas, shared)


def deletion(at: int) -> Version:
    return version_of(Timestamp(at), 0, ())


def terms(
    retained: int = 9, expired: int = 0, least: int = 1, most: int = 1, major: int = MAX_TIMESTAMP
) -> Terms:
    settings = TableSettings(min_data_versions=least, max_data_versions=most)
    return Terms(Timestamp(retained), Timestamp(expired), settings, Timestamp(major))


def left_of(versions: list[Version], given: Terms) -> list[Version]:
    """What stays, and a check that `retire` says whether anything changed."""
    left = list(versions)
    assert retire_all(left, given, COLUMNS) is (left != versions)
    in_steps = list(versions)
    assert retire(in_steps, given, COLUMNS) is (left != versions)
    assert in_steps == left
    assert not retire_all(left, given, COLUMNS)
    return left


def times_of(versions: list[Version], given: Terms) -> list[int]:
    return [it[0] for it in left_of(versions, given)]


def test_a_deletion_that_hides_nothing_goes() -> None:
    assert left_of([deletion(5)], terms()) == []
    assert left_of([deletion(9)], terms()) == [deletion(9)], "a reader at 9 may see it"
    assert left_of([write(4), deletion(5)], terms(least=2)) == [write(4), deletion(5)]


def test_a_deletion_stays_while_other_stores_may_have_what_it_deletes() -> None:
    assert left_of([deletion(5)], terms(major=5)) == [deletion(5)]
    assert left_of([deletion(5)], terms(major=6)) == []
    assert times_of([deletion(4), deletion(5)], terms(major=3)) == [5]


def test_a_change_with_nothing_below_becomes_a_value() -> None:
    change = write(5, SUM, 7, deltas=SUM)
    assert left_of([change], terms()) == [write(5, SUM, 7)]
    assert left_of([change], terms(major=6)) == [write(5, SUM, 7)]
    assert left_of([change], terms(major=5)) == [change], "the value may be in another store"


def test_a_lock_that_no_transaction_can_meet_is_forgotten() -> None:
    assert left_of([write(5, SUM, 7, shared=1)], terms()) == [write(5, SUM, 7)]


def test_changes_are_folded_but_not_over_a_deletion() -> None:
    change = write(3, SUM, 7, deltas=SUM)
    assert left_of([write(1, SUM, 5), change], terms()) == [write(3, SUM, 12)]
    assert left_of([write(1, SUM, 5), deletion(2), change], terms()) == [write(3, SUM, 7)]


def test_the_value_of_a_change_stays_with_it() -> None:
    versions = [write(4, SUM, 5), write(5, SUM, 7, deltas=SUM)]
    assert left_of(versions, terms(major=5)) == versions
    assert left_of(versions, terms(major=6)) == [write(5, SUM, 12)]


@pytest.mark.parametrize(("least", "left"), [(0, []), (1, [8]), (2, [6, 8]), (3, [4, 6, 8])])
def test_the_newest_versions_stay_also_expired(least: int, left: list[int]) -> None:
    versions = [write(2), write(4), write(6), write(8)]
    assert times_of(versions, terms(expired=9, least=least, most=least)) == left


def test_a_single_version_goes_only_if_it_may_expire() -> None:
    for mask in (PLAIN, ALL):
        version = write(5, mask)
        assert left_of([version], terms(expired=9)) == [version]
        assert left_of([version], terms(expired=9, least=0, most=0)) == []
        assert left_of([version], terms(expired=5, least=0, most=0)) == [version]


@pytest.mark.parametrize(
    ("young", "most", "left"),
    [
        ([], 1, [8]),
        ([], 3, [4, 6, 8]),
        ([write(10)], 3, [6, 8, 10]),
        ([write(10), write(11)], 3, [8, 10, 11]),
        ([write(10, OTHER), write(12, OTHER)], 3, [4, 6, 8, 10, 12]),
        ([deletion(12)], 2, [8, 12]),
        ([deletion(12)], 3, [6, 8, 12]),
    ],
)
def test_younger_versions_and_deletions_count_towards_the_most(
    young: list[Version], most: int, left: list[int]
) -> None:
    versions = [write(2), write(4), write(6), write(8), *young]
    assert times_of(versions, terms(most=most)) == left


def test_each_column_counts_for_itself() -> None:
    versions = [write(2, PLAIN | OTHER), write(4, PLAIN), write(6, PLAIN)]
    assert left_of(versions, terms()) == [write(2, OTHER, 2), write(6, PLAIN)]


def test_a_row_where_nothing_goes_is_not_made_again() -> None:
    """Versions in a store are linked: equal ones that are not linked would look new each time."""
    chain = chain_of([write(8), write(6), write(4)])
    versions = list(history(chain))[::-1]
    assert left_of(versions, terms(least=3, most=3)) == versions


def test_readers_below_keep_what_they_may_see_even_if_it_expired() -> None:
    given = terms(retained=9, expired=8, least=0, most=0, major=20)
    assert given.kept_for(None) is given
    kept = given.kept_for(Timestamp(6))
    assert (kept.retained, kept.expired, kept.settings, kept.major) == (
        6,
        0,
        given.settings,
        20,
    )
    assert given.kept_for(Timestamp(12)).retained == 9
