"""Check that transactions which locked the same row before they began exclude each other.

Owns: the check EXCLUSION. It also counts rows that were locked and not written: two owners of one
row may write other rows only. Must not import: any core.
"""

from dodona_loadtest.checkers.timestamps import Committed
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import RowKey, Transaction


def check_exclusion(committed: Committed) -> list[Violation]:
    """Check that of two such transactions, one starts above the commit of the other. Commits come
    in order here, so each start lies above the commit before it."""
    violations = []
    last: dict[RowKey, tuple[int, Transaction]] = {}
    for t, commit in sorted(committed, key=lambda pair: pair[1]):
        for row in t.locked_early:
            before, other = last.get(row, (0, t))
            if t.start <= before:
                text = (
                    f"{t.name} (start {t.start}, commit {commit}) and {other.name} (start "
                    f"{other.start}, commit {before}) overlap, and both locked {row} early"
                )
                violations.append(Violation("EXCLUSION", text))
            last[row] = (commit, t)
    return violations
