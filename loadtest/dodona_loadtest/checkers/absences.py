"""Which rows were not there when the transactions began that locked or wrote them.

Owns: that, and what it means for locks. Whether a row is there belongs to all of its lock groups: a
lock of an absent row is one of the whole row, since whoever writes any group creates it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from dodona_loadtest.checkers.timestamps import Committed
from dodona_loadtest.histories.history import Lock, RowKey, Transaction

Absences = Mapping[str, frozenset[RowKey]]
"""By the name of a transaction."""
WHOLE_ROW: Final = (0,)
"""The main group stands against all others."""


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
    """The groups that a lock takes, if these are the rows that were not there."""
    return WHOLE_ROW if any(lock.row in it for it in absent) else lock.groups
