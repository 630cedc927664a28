"""The checkers against a database with switchable bugs: each is flagged, and nothing else is.

For each bug it is written down which checker sees it, and as what. The sweep believes timestamps
and sees nearly all; the lists see what clients can tell by themselves, and one bug that leaves
every timestamp in order.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from dodona_loadtest.checkers.list_append import check_appends
from dodona_loadtest.checkers.sweep import check
from dodona_loadtest.checkers.violation import Promise
from unit.checkers.model_database import BUGS, Run, appends

SEEDS_CLEAN: Final = 1_000
SEEDS_A_TEST: Final = 100
SEEDS_PER_BUG_MAX: Final = 40
SEEDS_UNSEEN: Final = 12


class Seen(NamedTuple):
    """What each checker flags a bug as; None: it can't see it, and must not flag anything."""

    sweep: Promise | None
    lists: Promise | None


# Bugs of blind writes, lock groups, deletions, scans and of what a refusal says are not of lists,
# and a lie about a timestamp is none to a checker that does not listen.
EXPECTED: Final = {
    "stale_read": Seen("EXT", "INTERNAL"),
    "dirty_read": Seen("EXT", "INTERNAL"),
    "no_wait_on_prepared": Seen("EXT", "LOST-APPEND"),
    "no_write_check": Seen("NOCONFLICT", "LOST-APPEND"),
    "weak_lock_ignored": Seen("NOCONFLICT", None),
    "read_locks_not_checked": Seen("NOCONFLICT", "G2"),
    "strong_lock_forgotten": Seen("RWLOCK", None),
    "main_ignores_groups": Seen("NOCONFLICT", None),
    "half_commit": Seen("ATOMICITY", "LOST-APPEND"),
    "split_timestamps": Seen("ATOMICITY", "G-SINGLE"),
    "early_timestamp": Seen("EXT", "INCOMPATIBLE-ORDER"),
    "lost_commit": Seen("DURABILITY", "LOST-APPEND"),
    "ghost_of_refused": Seen("GHOST", "G1A"),
    "applied_twice": Seen("GHOST", None),
    "scan_misses_row": Seen("EXT", None),
    "scan_shows_deleted": Seen("EXT", None),
    "update_clobbers": Seen("EXT", None),
    "undead_columns": Seen("EXT", None),
    "false_conflict": Seen("FALSE-CONFLICT", None),
    "stale_latest": Seen("LATEST", None),
    "wrong_commit_told": Seen("DURABILITY", None),
    "commit_told_as_failure": Seen("GHOST", "G1A"),
    "blind_does_not_wait": Seen("NOCONFLICT", None),
    "blind_not_checked": Seen("NOCONFLICT", None),
    "blind_conflict": Seen("FALSE-CONFLICT", None),
    "blind_at_its_name": Seen("ORDER", None),
    "name_given_twice": Seen("UNIQUE", None),
    "snapshot_per_cell": Seen("EXT", "G-SINGLE"),
    "lagging_cell": Seen("EXT", "REAL-TIME"),
    "unrepeatable_read": Seen("EXT", "INTERNAL"),
    "retried_as_it_was": Seen(None, "INCOMPATIBLE-ORDER"),
    "element_doubled": Seen("EXT", "DUPLICATE"),
    "element_garbled": Seen("EXT", "GARBAGE"),
    "elements_swapped": Seen("EXT", "INCOMPATIBLE-ORDER"),
}
SELDOM_SEEN_IN_LISTS: Final[dict[str, Promise]] = {
    "duplicate_timestamp": "UNIQUE",
    "leftover_timestamp": "MONOTONIC",
}
"""What the sweep flags at once is, in lists, the matter of rare coincidences."""


def swept(seed: int, bug: str) -> set[Promise]:
    return {violation.promise for violation in check(*Run(seed, bug).execute())}


def listed(seed: int, bug: str) -> set[Promise]:
    run = Run(seed, bug)
    history, _ = run.execute()
    found = check_appends(appends(history), is_serializable=run.is_serializable)
    return {violation.promise for violation in found}


def demand(expected: Promise | None, promises_of: Callable[[int], set[Promise]]) -> None:
    if expected is None:
        assert [promises_of(seed) for seed in range(SEEDS_UNSEEN)] == [set()] * SEEDS_UNSEEN
    else:
        assert any(expected in promises_of(seed) for seed in range(SEEDS_PER_BUG_MAX)), expected


@pytest.mark.slow("many histories")
@pytest.mark.parametrize("first", range(0, SEEDS_CLEAN, SEEDS_A_TEST))
def test_a_correct_database_raises_no_alarm(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run = Run(seed)
        history, dump = run.execute()
        assert check(history, dump) == [], f"seed {seed}"
        found = check_appends(appends(history), is_serializable=run.is_serializable)
        assert found == [], f"seed {seed}"


def test_every_bug_has_an_expected_result() -> None:
    assert sorted(BUGS) == sorted([*EXPECTED, *SELDOM_SEEN_IN_LISTS])


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_is_flagged_by_the_sweep_or_is_not_to_be_seen_there(bug: str) -> None:
    expected = EXPECTED[bug].sweep if bug in EXPECTED else SELDOM_SEEN_IN_LISTS[bug]
    demand(expected, lambda seed: swept(seed, bug))


@pytest.mark.parametrize("bug", EXPECTED)
def test_every_bug_is_flagged_in_lists_or_is_not_to_be_seen_there(bug: str) -> None:
    expected = EXPECTED[bug].lists
    demand(expected, lambda seed: listed(seed, bug))


def test_the_model_produces_the_cases_that_matter() -> None:
    """A generator without conflicts, unsure outcomes, locks and deletions would prove nothing."""
    history, dump = Run(1).execute()
    statuses = [t.status for t in history.transactions]
    assert {"ok", "fail", "info"} <= set(statuses)
    assert statuses.count("fail") * 20 > len(statuses)
    assert any(version.columns is None for version in dump)
    assert any(lock.is_strong for t in history.transactions for lock in t.locks)
    assert any(t.scans for t in history.transactions)
    assert history.latest_reads
    blind = [t for t in history.transactions if t.is_blind and t.writes]
    assert {"ok", "info"} <= {t.status for t in blind}
    assert any(write.columns is None for t in blind for write in t.writes)


def test_the_model_s_lists_produce_the_cases_that_matter() -> None:
    counts: Counter[str] = Counter()
    for seed in range(20):
        history, dump = Run(seed).execute()
        stored = {text for version in dump for _, text in version.columns or ()}
        for t in history.transactions:
            texts = [dict(it.columns or ())["list"] for it in t.writes if it.row.table == "//lists"]
            if t.status == "info" and texts:
                counts["unsure, done" if texts[0] in stored else "unsure, not done"] += 1
        for at in appends(history):
            kinds = [type(operation).__name__ for operation in at.operations]
            counts[at.status] += 1
            counts["writers"] += "Append" in kinds
            counts["of several keys"] += kinds.count("Append") > 1
            counts["readers"] += "Append" not in kinds
            counts["empty reads"] += any(getattr(it, "elements", 1) == () for it in at.operations)
        if not check_appends(appends(history), is_serializable=True):
            counts["serializable"] += 1
    assert counts["fail"] * 10 > counts["writers"], counts
    assert counts["unsure, done"] * 50 > counts["writers"], counts
    assert counts["unsure, not done"] * 200 > counts["writers"], counts
    for kind in ("of several keys", "readers", "empty reads"):
        assert counts[kind] > 100, counts
    assert 10 <= counts["serializable"] < 20, (
        "write skew comes in runs without locks, and only there"
    )
