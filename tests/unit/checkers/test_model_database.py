"""The checkers against a database with switchable bugs: each is flagged, and nothing else is."""

import pytest

from dodona_loadtest.checkers.sweep import check
from unit.checkers.model_database import BUGS, Run

SEEDS_CLEAN = 120
SEEDS_PER_BUG_MAX = 12

EXPECTED = {
    "stale_read": "EXT",
    "dirty_read": "EXT",
    "no_wait_on_prepared": "EXT",
    "no_write_check": "NOCONFLICT",
    "weak_lock_ignored": "NOCONFLICT",
    "strong_lock_forgotten": "RWLOCK",
    "main_ignores_groups": "NOCONFLICT",
    "half_commit": "ATOMICITY",
    "split_timestamps": "ATOMICITY",
    "early_timestamp": "EXT",
    "lost_commit": "DURABILITY",
    "ghost_of_refused": "GHOST",
    "applied_twice": "GHOST",
    "duplicate_timestamp": "UNIQUE",
    "leftover_timestamp": "MONOTONIC",
    "scan_misses_row": "EXT",
    "scan_shows_deleted": "EXT",
    "update_clobbers": "EXT",
    "undead_columns": "EXT",
    "false_conflict": "FALSE-CONFLICT",
    "stale_latest": "LATEST",
    "wrong_commit_told": "DURABILITY",
    "commit_told_as_failure": "GHOST",
    "blind_does_not_wait": "NOCONFLICT",
    "blind_not_checked": "NOCONFLICT",
    "blind_conflict": "FALSE-CONFLICT",
    "blind_at_its_name": "ORDER",
    "name_given_twice": "UNIQUE",
}


@pytest.mark.parametrize("first", range(0, SEEDS_CLEAN, 30))
def test_a_correct_database_raises_no_alarm(first: int) -> None:
    for seed in range(first, first + 30):
        assert check(*Run(seed).execute()) == [], f"seed {seed}"


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_is_flagged(bug: str) -> None:
    for seed in range(SEEDS_PER_BUG_MAX):
        promises = {violation.promise for violation in check(*Run(seed, bug).execute())}
        if EXPECTED[bug] in promises:
            return
    pytest.fail(f"{bug} was not flagged as {EXPECTED[bug]} within {SEEDS_PER_BUG_MAX} seeds")


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
