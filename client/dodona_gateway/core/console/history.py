"""Keep a bounded history of rates: how fast counters grew lately. Pure.

Owns: the samples, and how counters that restart are treated. Time is an argument. A rate covers the
time between two samples of one counter. If a counter is lower than before, it has begun again from
zero, so all of its value was counted since the last sample. If no counter of a measure is in both
samples, the measure has a gap.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dodona_gateway.core.console.server_pages import Totals

SAMPLES_MAX: Final = 600


class Sample(NamedTuple):
    """The rates from the sample before up to an instant."""

    instant_us: int
    rates: dict[str, float | None]
    """By measure, in events per second. None if the rate is not known."""
    seconds: float
    """The time since the sample before."""


class Point(NamedTuple):
    """One rate. It held for `seconds`, up to `age_s` seconds before now."""

    age_s: float
    rate: float | None
    seconds: float = 1.0


class History:
    """The history that one gateway keeps of the cluster."""

    def __init__(self, measures: Iterable[str], samples_max: int = SAMPLES_MAX) -> None:
        self._measures = tuple(measures)
        self._samples: deque[Sample] = deque(maxlen=samples_max)
        self._last: tuple[int, Totals] | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, instant_us: int, totals: Totals) -> None:
        """Add the values of counters at an instant. An instant that is not later than the last one
        is ignored."""
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
        """Return the rates of the last `window_s` seconds, oldest first."""
        points = [
            Point((now_us - it.instant_us) / 1e6, it.rates[measure], it.seconds)
            for it in self._samples
        ]
        return [it for it in points if it.age_s <= window_s]

    def last(self, measure: str) -> float | None:
        """Return the newest rate, or None if it is not known."""
        return self._samples[-1].rates[measure] if self._samples else None


def _rate(before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> float | None:
    both = [name for name in now if name in before]
    if not both:
        return None
    counted = [
        now[name] - before[name] if now[name] >= before[name] else now[name] for name in both
    ]
    return float(sum(counted)) / seconds
