"""Count values in fixed buckets, and note how far two clocks are apart. Pure.

Owns: the counting. A value costs one binary search. So values are counted once a batch or a flush,
never once a row. The bounds are fixed when a tally is made, so two readings can be compared.
"""

from bisect import bisect_left
from typing import Final

import msgspec

DURATIONS_US: Final = (
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    10_000_000,
)
"""Microseconds, from a tenth of a millisecond to ten seconds."""
COUNTS: Final = tuple([1 << power for power in range(0, 21, 2)])
"""From one to a million, each four times the one before."""


class Histogram(msgspec.Struct, frozen=True):
    """A reading of a tally. `counts` has the number of values up to each bound and above the one
    before, and last the number above all bounds. `total` is the sum of all values."""

    bounds: tuple[int, ...]
    counts: tuple[int, ...]
    total: int

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)


class Tally:
    """Counts values from the time it was made."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        assert list(bounds) == sorted(bounds)
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0

    def add(self, value: int) -> None:
        """Count one more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def read(self) -> Histogram:
        """Return the counts so far."""
        return Histogram(self._bounds, tuple(self._counts), self._total)


class ClockDifference(msgspec.Struct, frozen=True):
    """The difference of two clocks, in µs: the last one, and the largest in either direction. None
    before the first one."""

    last_us: int | None
    max_us: int | None


class ClockWatch:
    """Remembers how far two clocks were apart, in any unit."""

    __slots__ = ("last", "max")

    def __init__(self) -> None:
        self.last: int | None = None
        self.max = 0

    def note(self, difference: int) -> None:
        """Note how far one clock is ahead of the other."""
        self.last = difference
        if difference > self.max or -difference > self.max:
            self.max = abs(difference)

    def read(self, multiplier: int = 1, shift: int = 0) -> ClockDifference:
        """Return the differences in µs: a noted unit is `multiplier` / 2^`shift` of them."""
        if self.last is None:
            return ClockDifference(None, None)
        return ClockDifference(self.last * multiplier >> shift, self.max * multiplier >> shift)
