"""Know which rows of a tablet were changed lately, in the order of their commits.

Owns: the keys of recent commits. With them a range of a million rows is validated without a walk
over its rows. A tablet has this from the first range that it validates. It ends when no range was
validated for as long as it takes to fill it.

Invariant: every version above `complete_after` that this tablet got is of a key in here. So a
caller that asks for changes after an earlier timestamp must look at the rows themselves.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from dodona_wire.types import Key, Timestamp, Write

RECENT_KEYS_MAX: Final = 20_000
"""The most keys in here. At 5,000 changed rows in a second they are those of 4 seconds, and a
transaction lasts milliseconds. They take about 3 MB."""


class RecentKeys:
    """The keys of recent commits of one tablet."""

    __slots__ = ("_commits", "_count", "_was_used", "complete_after")

    def __init__(self, complete_after: Timestamp) -> None:
        """Begin. `complete_after` is the largest timestamp in the stores of the tablet."""
        self.complete_after = complete_after
        self._commits: list[tuple[Timestamp, tuple[Key, ...]]] = []
        self._count = 0
        self._was_used = True

    def add(self, writes: Sequence[Write], timestamp: Timestamp) -> bool:
        """Note a commit. Return False if this may be forgotten, because it was not used lately."""
        if not writes:
            return True
        if self._count + len(writes) > RECENT_KEYS_MAX:
            self._forget(len(writes), timestamp)
            was_used, self._was_used = self._was_used, False
            if not was_used:
                return False
        if timestamp > self.complete_after:
            insort(self._commits, (timestamp, tuple([it[0] for it in writes])))
            self._count += len(writes)
        return True

    def _forget(self, count: int, timestamp: Timestamp) -> None:
        """Make room for so many keys of a commit: forget half of all, or everything."""
        kept = self._commits[len(self._commits) // 2 :]
        kept_count = sum([len(keys) for _, keys in kept])
        if kept_count + count > RECENT_KEYS_MAX:
            kept, kept_count = [], 0
            forgotten = max([timestamp, *[at for at, _ in self._commits]])
        else:
            forgotten = self._commits[len(self._commits) // 2 - 1][0]
        self.complete_after = max(self.complete_after, forgotten)
        self._commits, self._count = kept, kept_count

    def changed_after(self, since: Timestamp, lower: Key, upper: Key) -> list[Key] | None:
        """Return the keys of `lower ≤ key < upper` with a version above a timestamp. A key may come
        twice. Return None if this is not known any more."""
        self._was_used = True
        if since < self.complete_after:
            return None
        first = bisect_right(self._commits, since, key=itemgetter(0))
        return [key for _, keys in self._commits[first:] for key in keys if lower <= key < upper]
