"""Find the rows that were absent when the transactions began that locked or wrote them.

Owns: this search, and what it means for locks. The presence of a row belongs to all of its lock
groups. So a lock of an absent row locks the whole row, because a writer of any group creates it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from dodona_loadtest.checkers.timestamps import Committed
from dodona_loadtest.histories.history import Lock, RowKey, Transaction

Absences = Mapping[str, frozenset[RowKey]]
"""By the name of a transaction: the rows that were absent."""
WHOLE_ROW: Final = (0,)
"""The main group conflicts with all others."""


def absences(transactions: Iterable[Transaction], committed: Committed) -> Absences:
    # At one timestamp the commit comes first: a read at T sees what committed at T.
    commits = [(commit, 0, t) for t, commit in committed]
    starts = [(t.start, 1, t) for t in transactions if t.begun_us is not None]
    there: set[RowKey] = set()
    found: dict[str, frozenset[RowKey]] = {}
    for _, kind, t in sorted(commits + starts, key=lambda event: event[:2]):
        if kind == 1:
            rows = {it.row for it in t.writes} | {it.row for it in t.locks}
            found[t.name] = frozenset(rows - there)
            continue
        for write in t.writes:
            if write.columns is None:
                there.discard(write.row)
            else:
                there.add(write.row)
    return found


def groups_of(lock: Lock, *absent: frozenset[RowKey]) -> tuple[int, ...]:
    """Return the groups that a lock takes, if these rows were absent."""
    return WHOLE_ROW if any(lock.row in it for it in absent) else lock.groups
