"""Hold rows of one tablet in memory: a store finds a row by its key and walks rows in key order.

Owns: the version chains of the rows, the order of the keys, and the counts. A store takes writes
while it is the active store of its tablet. After that it is passive and never changes again.
Another thread flushes it, and the cell drops it when no transaction could need it (see `flushing`).

Keys are in sorted runs of bounded length and an unsorted tail. So a write pays only its share of
sorting a few thousand keys at a time. No caller ever waits for more than one run.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import Final

from dodona_tablets.core.rows.version import Version, add, history, united, version_of
from dodona_wire.rows.sizes import write_bytes
from dodona_wire.types import MAX_TIMESTAMP, NULL_TIMESTAMP, Key, Timestamp, Write

RUNG_STEP: Final = 64
"""The number of versions of a row between two rungs, which are versions at which a walk may
begin."""
TAIL_KEYS_MAX: Final = 8_192
RUN_KEYS_MAX: Final = 65_536
"""The most keys of a run. To compare random keys takes as long as to read uncached memory: about 20
ms for this many."""
WINDOW_KEYS_FIRST: Final = 64
WINDOW_KEYS: Final = 4_096
"""About the numbers of keys that a walk merges at a time: at first, and later."""
ROW_BYTES: Final = 170
"""The bytes that a key takes, with its places in the dictionary and in a run, without its text."""
WALK_COST: Final = 4
"""How many times longer a row takes in a walk in order than in a look at all rows."""
VERSION_BYTES: Final = 150
"""The bytes that a version and its values take, without their text."""

Marks = dict[Key, tuple[int, int]]
"""Two masks for each of some keys of a batch. The first has the columns whose value is a change of
an aggregate. The second has the lock groups that `shared_write` took."""


class DynamicStore:
    """Rows by key. Code of the core may read `rows`, but only the methods here add to it. `number`
    is unique in its tablet and rises. In replay a store may be a ghost: it ignores writes, since a
    chunk has its rows by the end of the log."""

    def __init__(self, number: int, *, is_ghost: bool = False) -> None:
        self.number = number
        self._is_ghost = is_ghost
        self.rows: dict[Key, Version] = {}
        self.version_count = 0
        self.min_timestamp: Timestamp = MAX_TIMESTAMP
        self.max_timestamp: Timestamp = NULL_TIMESTAMP
        """The bounds of the versions' timestamps. Without versions, the lower bound is above the
        upper one."""
        self.born_us: int | None = None
        """When a tick first found rows here: soon after the first write or after a restart. None
        before."""
        self.is_flushed = False
        """Whether a chunk has all rows. The store then stays for conflict checks only."""
        self.is_retired = False
        """Whether that chunk was made by retention, and may have fewer versions."""
        self.pin_count = 0
        """The number of long jobs that read the store from another thread. Until they end, it stays
        as it is."""
        self._rungs: dict[Key, list[Version]] = {}
        """The rungs of rows that were read far down, oldest first: one version of every
        `RUNG_STEP`. A walk may begin at a rung. Reads make them, so that writes pay nothing for
        them."""
        self.has_marks = False
        """Whether any version has changes of aggregates or shared locks."""
        self._dying: Version | None = None
        """The rest of the row that `shrink` frees now."""
        self._text_bytes = 0
        self._tail: list[Key] = []
        self._runs: list[list[Key]] = []

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size_bytes(self) -> int:
        """The memory that the store takes, in bytes. This is an estimate."""
        return ROW_BYTES * len(self.rows) + VERSION_BYTES * self.version_count + self._text_bytes

    # Writes

    def apply(
        self,
        writes: Sequence[Write],
        timestamp: Timestamp,
        size_bytes: int,
        marks: Marks | None = None,
    ) -> None:
        """Add versions at one timestamp. `size_bytes` is their length on the wire. `writes` may be
        empty: a transaction may only take locks, or publish a load. Then its timestamp does not
        count here, since retention asks whether the store may have older versions of a row."""
        if self._is_ghost or not writes:
            return
        rows, tail = self.rows, self._tail
        self.has_marks = self.has_marks or bool(marks)
        for key, mask, values in writes:
            older = rows.get(key)
            if marks is not None and key in marks:
                version = version_of(timestamp, mask, values, older, *marks[key])
            else:
                version = (timestamp, mask, values, older)
            if older is None:
                tail.append(key)
            elif older[0] >= timestamp:
                version = add(older, version)
                self._rungs.pop(key, None)
            rows[key] = version
        self._count(len(writes), size_bytes, timestamp, timestamp)

    def put(self, key: Key, newest: Version | None) -> None:
        """Add versions from elsewhere to a row, besides those that it may have here."""
        if newest is None or self._is_ghost:
            return
        known = self.rows.get(key)
        if known is None:
            self._tail.append(key)
        else:
            self._rungs.pop(key, None)
        self.rows[key] = newest if known is None else united(known, newest)
        versions = [*history(newest)]
        self.has_marks = self.has_marks or any(len(it) == 6 for it in versions)
        size_bytes = sum([write_bytes((key, it[1], it[2])) for it in versions])
        self._count(len(versions), size_bytes, versions[-1][0], newest[0])

    def _count(self, count: int, text_bytes: int, lowest: Timestamp, highest: Timestamp) -> None:
        self.version_count += count
        self._text_bytes += text_bytes
        if lowest < self.min_timestamp:
            self.min_timestamp = lowest
        if highest > self.max_timestamp:
            self.max_timestamp = highest
        if len(self._tail) >= TAIL_KEYS_MAX:
            self.sort()

    # Reads

    def newest_at(self, key: Key, at: Timestamp) -> Version | None:
        """Return the newest version of a row at or below a timestamp, at the head of the older
        ones."""
        newest, steps_left = self.rows.get(key), RUNG_STEP
        while newest is not None and newest[0] > at:
            newest = newest[3]
            steps_left -= 1
            if not steps_left:
                return self._far_down(key, at)
        return newest

    def _far_down(self, key: Key, at: Timestamp) -> Version | None:
        rungs = self._rungs.setdefault(key, [])
        if not rungs or rungs[-1][0] <= at:
            self._climb(key, rungs)
        # The last rung is above: it is one of the RUNG_STEP newest versions, which all are.
        newest: Version | None = rungs[bisect_right(rungs, at, key=itemgetter(0))]
        while newest is not None and newest[0] > at:
            newest = newest[3]
        return newest

    def _climb(self, key: Key, rungs: list[Version]) -> None:
        """Add rungs for the versions that came since the last call."""
        above: list[Version] = []
        top = rungs[-1] if rungs else None
        newest: Version | None = self.rows[key]
        while newest is not None and newest is not top:
            above.append(newest)
            newest = newest[3]
        above.reverse()
        rungs += above[RUNG_STEP - 1 :: RUNG_STEP]

    def walk(self, lower: Key, upper: Key) -> Iterator[tuple[Key, Version]]:
        """Yield the rows of `lower ≤ key < upper` in key order. No write may run before the walk
        ends."""
        rows = self.rows
        for key in self._keys(lower, upper):
            yield key, rows[key]

    def newer(
        self, lower: Key, upper: Key, since: Timestamp, key_count_max: int
    ) -> tuple[list[tuple[Key, Version]], Key]:
        """Look at the first `key_count_max` rows of a range. Return those that have a version above
        a timestamp, in key order, and the key below which all rows were looked at."""
        rows = self.rows
        keys = list(islice(self._keys(lower, upper), key_count_max + 1))
        end = keys.pop() if len(keys) > key_count_max else upper
        return [(key, rows[key]) for key in keys if rows[key][0] > since], end

    def changed_after(self, since: Timestamp, lower: Key, upper: Key) -> list[Key]:
        """Return the keys of a range that have a version above a timestamp. This looks at each row
        of the range. To walk over keys in order takes longer than to look at all rows, unless the
        range is a small part of them."""
        if self.count(lower, upper) * WALK_COST < len(self.rows):
            return [key for key, newest in self.walk(lower, upper) if newest[0] > since]
        return [
            key for key, newest in self.rows.items() if newest[0] > since and lower <= key < upper
        ]

    def count(self, lower: Key, upper: Key) -> int:
        """Return how many keys of `lower ≤ key < upper` are here. No write may run meanwhile."""
        self.sort()
        return sum([bisect_left(it, upper) - bisect_left(it, lower) for it in self._runs])

    def sample(self, lower: Key, upper: Key, step: int) -> Iterator[tuple[Key, int]]:
        """Yield some keys of `lower ≤ key < upper`, in no order, each with a number of keys. The
        number counts the key itself and the keys behind it in its sorted run, up to the next sample
        of that run. No write may run meanwhile."""
        self.sort()
        for run in self._runs:
            end = bisect_left(run, upper)
            for at in range(bisect_left(run, lower), end, step):
                yield run[at], min(step, end - at)

    @property
    def bounds(self) -> tuple[Key, Key] | None:
        """The first and the last key, or None if there is no row."""
        self.sort()
        if not self._runs:
            return None
        return min([run[0] for run in self._runs]), max([run[-1] for run in self._runs])

    def _keys(self, lower: Key, upper: Key) -> Iterator[Key]:
        self.sort()
        parts = [(it, bisect_left(it, lower), bisect_left(it, upper)) for it in self._runs]
        return _merged([part for part in parts if part[1] < part[2]])

    def sort(self) -> None:
        """Sort the keys that came since the last call. From then on, walks change nothing until the
        next write."""
        if not self._tail:
            return
        run = sorted(self._tail)
        self._tail = []
        runs = self._runs
        while runs and len(runs[-1]) < 2 * len(run) and len(runs[-1]) + len(run) <= RUN_KEYS_MAX:
            run = sorted([*runs.pop(), *run])
        runs.append(run)

    def shrink(self, rows_max: int) -> bool:
        """Free at most `rows_max` versions of a store that is not used any more. Return whether the
        store is empty. To free a large store in one step would block all other work, and so would
        one row of very many versions."""
        self._runs, self._tail = [], []
        self._rungs.clear()
        rows, newest = self.rows, self._dying
        for _ in range(rows_max):
            if newest is not None:
                newest = newest[3]
            elif rows:
                newest = rows.popitem()[1][3]
            else:
                break
        self._dying = newest
        return not rows and newest is None

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert sorted([*self._tail, *chain(*self._runs)]) == sorted(self.rows)
        assert all(run == sorted(run) for run in self._runs)
        assert all(len(run) <= max(RUN_KEYS_MAX, TAIL_KEYS_MAX) for run in self._runs)
        for newest in self.rows.values():
            assert all(a[0] > b[0] for a, b in pairwise(history(newest)))


def _merged(parts: list[tuple[list[Key], int, int]]) -> Iterator[Key]:
    """Yield the keys of sorted runs, each from one place to another, in order. This works a window
    at a time: the sort of a list merges runs that lie one behind the other. The first windows are
    short, since a walk may end soon."""
    window_keys = WINDOW_KEYS_FIRST
    while len(parts) > 1:
        share = max(window_keys // len(parts), 1)
        window_keys = min(2 * window_keys, WINDOW_KEYS)
        bound = min([run[min(at + share, end) - 1] for run, at, end in parts])
        window: list[Key] = []
        left: list[tuple[list[Key], int, int]] = []
        for run, at, end in parts:
            until = bisect_right(run, bound, at, end)
            window += run[at:until]
            if until < end:
                left.append((run, until, end))
        window.sort()
        yield from window
        parts = left
    for run, at, end in parts:
        yield from run[at:end]
