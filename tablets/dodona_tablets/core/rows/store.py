"""A dynamic store: rows of one tablet in memory, found by key at once, walked in order on demand.

Owns: the rows' chains and their order, and what is counted of them. A store takes writes while it
is the tablet's active one. Then it is passive and never changes again: it is flushed from another
thread, and dropped when nobody could need it (see `flushing`).

Keys lie in sorted runs of bounded length and an unsorted tail: what a write pays for order is its
share of sorting a few thousand keys at a time, and nobody ever waits for more than one run.
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
"""Versions between two of a row at which a walk may begin."""
TAIL_KEYS_MAX: Final = 8_192
RUN_KEYS_MAX: Final = 65_536
"""Random keys are compared at the speed of memory that is not cached: so many in 20 ms."""
WINDOW_KEYS: Final = 4_096
"""A walk merges about so many keys at a time."""
ROW_BYTES: Final = 170
"""What a key, its places in the dictionary and in a run take, besides its text."""
VERSION_BYTES: Final = 150
"""What a version and its values take, besides their text."""

Marks = dict[Key, tuple[int, int]]
"""Of some keys of a batch: the mask of columns whose value is a change of an aggregate, and the
mask of lock groups taken by shared_write."""


class DynamicStore:
    """Rows by key. `rows` is open to readers of the core; only the methods here add to it.
    `number` is unique in its tablet and rises. In replay a store may be a ghost: what is written to
    it is in a chunk by the end of the log, and need not be made again."""

    def __init__(self, number: int, *, is_ghost: bool = False) -> None:
        self.number = number
        self._is_ghost = is_ghost
        self.rows: dict[Key, Version] = {}
        self.version_count = 0
        self.min_timestamp: Timestamp = MAX_TIMESTAMP
        self.max_timestamp: Timestamp = NULL_TIMESTAMP
        """Of the versions: above the other where there are none."""
        self.born_us: int | None = None
        """When the first write came, or when a restart had found them all."""
        self.is_flushed = False
        """Whether a chunk has all of it: it is kept for those who look for conflicts only."""
        self.is_retired = False
        """Whether that chunk was made by retention, and may have less."""
        self.pin_count = 0
        """Who reads it from another thread for long: it stays as it is until they are done."""
        self._rungs: dict[Key, list[Version]] = {}
        """Of rows that were read far down: every so many versions one, oldest first, to begin the
        walk at. Made by reads, so that writes pay nothing for them."""
        self.has_marks = False
        """Whether any version has changes of aggregates or shared locks."""
        self._dying: Version | None = None
        """What is left of a row that goes."""
        self._text_bytes = 0
        self._tail: list[Key] = []
        self._runs: list[list[Key]] = []

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size_bytes(self) -> int:
        """About what it takes of the process's memory."""
        return ROW_BYTES * len(self.rows) + VERSION_BYTES * self.version_count + self._text_bytes

    # Writes

    def apply(
        self,
        writes: Sequence[Write],
        timestamp: Timestamp,
        size_bytes: int,
        marks: Marks | None = None,
    ) -> None:
        """Add versions at one timestamp; they are so long on the wire. There may be none: of a
        transaction that only locks, or publishes a load. A store has no timestamp from it then,
        since retention asks whether a row may have older versions here."""
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
        """Give a row versions that came from elsewhere, besides those it may have here."""
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
        """The newest version of a row at or below a timestamp, at the head of the older ones."""
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
        place = bisect_right(rungs, at, key=itemgetter(0))
        newest: Version | None = rungs[place] if place < len(rungs) else self.rows[key]
        while newest is not None and newest[0] > at:
            newest = newest[3]
        return newest

    def _climb(self, key: Key, rungs: list[Version]) -> None:
        """Add what came since the last time."""
        above: list[Version] = []
        top = rungs[-1] if rungs else None
        newest: Version | None = self.rows[key]
        while newest is not None and newest is not top:
            above.append(newest)
            newest = newest[3]
        above.reverse()
        rungs += above[RUNG_STEP - 1 :: RUNG_STEP]

    def walk(self, lower: Key, upper: Key) -> Iterator[tuple[Key, Version]]:
        """Rows of lower ≤ key < upper in key order. Must not run across a write."""
        rows = self.rows
        for key in self._keys(lower, upper):
            yield key, rows[key]

    def newer(
        self, lower: Key, upper: Key, since: Timestamp, key_count_max: int
    ) -> tuple[list[tuple[Key, Version]], Key]:
        """Of the first so many rows of a range those with a version above a timestamp, in key
        order. → them, and the key below which those rows end."""
        rows = self.rows
        keys = list(islice(self._keys(lower, upper), key_count_max + 1))
        end = keys.pop() if len(keys) > key_count_max else upper
        return [(key, rows[key]) for key in keys if rows[key][0] > since], end

    def count(self, lower: Key, upper: Key) -> int:
        """How many keys of lower ≤ key < upper are here. Must not run across a write."""
        self.sort()
        return sum([bisect_left(it, upper) - bisect_left(it, lower) for it in self._runs])

    def sample(self, lower: Key, upper: Key, step: int) -> Iterator[tuple[Key, int]]:
        """Some keys of lower ≤ key < upper, in no order, each with how many it stands for: itself
        and those behind it. Must not run across a write."""
        self.sort()
        for run in self._runs:
            end = bisect_left(run, upper)
            for at in range(bisect_left(run, lower), end, step):
                yield run[at], min(step, end - at)

    @property
    def bounds(self) -> tuple[Key, Key] | None:
        """The first and the last key; None if there is no row."""
        self.sort()
        if not self._runs:
            return None
        return min([run[0] for run in self._runs]), max([run[-1] for run in self._runs])

    def _keys(self, lower: Key, upper: Key) -> Iterator[Key]:
        self.sort()
        parts = [(it, bisect_left(it, lower), bisect_left(it, upper)) for it in self._runs]
        return _merged([part for part in parts if part[1] < part[2]])

    def sort(self) -> None:
        """Put the keys that came since the last time into their order. From then on walks change
        nothing, until the next write."""
        if not self._tail:
            return
        run = sorted(self._tail)
        self._tail = []
        runs = self._runs
        while runs and len(runs[-1]) < 2 * len(run) and len(runs[-1]) + len(run) <= RUN_KEYS_MAX:
            run = sorted([*runs.pop(), *run])
        runs.append(run)

    def shrink(self, rows_max: int) -> bool:
        """Let go of so many versions of a store that nobody uses any more: to free a large one at
        once would stop everything else, and so would one row of very many. → whether it is
        empty."""
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
    """The keys of sorted runs, of each from one place to another, in order. A window at a time: the
    list's own sort merges runs that lie one behind the other."""
    while len(parts) > 1:
        share = max(WINDOW_KEYS // len(parts), 1)
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
