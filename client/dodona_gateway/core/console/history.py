"""How fast things were counted, lately: a bounded memory of rates. Pure.

Owns: the samples, and what becomes of counters that begin anew. Time is an argument. A rate is
known for the time between two samples of one counter; a counter that is less than it was has begun
anew meanwhile, and what it says was counted since. Where no counter of a measure was heard twice
there is a gap.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dodona_gateway.core.console.server_pages import Totals

SAMPLES_MAX: Final = 600


class Sample(NamedTuple):
    """What happened up to an instant, since the sample before."""

    instant_us: int
    rates: dict[str, float | None]
    """By measure, a second."""
    seconds: float
    """Since the sample before."""


class Point(NamedTuple):
    """One rate. `age_s` is before now; it was so for `seconds`."""

    age_s: float
    rate: float | None
    seconds: float = 1.0


class History:
    """Of one gateway's looks at the cluster."""

    def __init__(self, measures: Iterable[str], samples_max: int = SAMPLES_MAX) -> None:
        self._measures = tuple(measures)
        self._samples: deque[Sample] = deque(maxlen=samples_max)
        self._last: tuple[int, Totals] | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, instant_us: int, totals: Totals) -> None:
        """What counters said at that instant. One that is no later than the last says nothing."""
        before = self._last
        if before is not None and instant_us <= before[0]:
            return
        self._last = (instant_us, {name: dict(totals.get(name, {})) for name in self._measures})
        if before is None:
            return
        seconds = (instant_us - before[0]) / 1e6
        rates = {
            name: _rate(before[1].get(name, {}), totals.get(name, {}), seconds)
            for name in self._measures
        }
        self._samples.append(Sample(instant_us, rates, seconds))

    def points(self, measure: str, now_us: int, window_s: float) -> list[Point]:
        """The rates of the last so many seconds, oldest first."""
        points = [
            Point((now_us - it.instant_us) / 1e6, it.rates[measure], it.seconds)
            for it in self._samples
        ]
        return [it for it in points if it.age_s <= window_s]

    def last(self, measure: str) -> float | None:
        """The newest rate, if it is known."""
        return self._samples[-1].rates[measure] if self._samples else None


def _rate(before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> float | None:
    both = [name for name in now if name in before]
    if not both:
        return None
    counted = [
        now[name] - before[name] if now[name] >= before[name] else now[name] for name in both
    ]
    return float(sum(counted)) / seconds
