"""The content of a picture, before it is drawn: panels of bars. Pure.

Owns: which figures share a panel, and their order. For each number of callers, a row has a panel of
rates and one of latencies. A study has a panel for each measure, and a p99 is in the panel of its
p50.
"""

from dataclasses import dataclass
from statistics import median
from typing import Final

from dodona_loadtest.harness.recorded import RecordedFinding, RecordedRow, RecordedStudy

P99: Final = ": p99"
P50: Final = ": p50"


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar of one contender. `low` and `high` are the least and the greatest round."""

    contender: str
    value: float
    low: float
    high: float
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars of one unit, or points if they have a p99."""

    title: str
    unit: str
    is_more_better: bool | None
    """None: it only describes the work that was done."""
    bars: tuple[Bar, ...]
    is_worst_told: bool = False

    @property
    def has_points(self) -> bool:
        """Whether bars are drawn as points, on a logarithmic scale."""
        has_p99 = any(bar.p99 is not None for bar in self.bars)
        return has_p99 and all(min(bar.low, bar.value) > 0 for bar in self.bars)

    @property
    def words(self) -> str:
        """The text below the title: how to read the panel."""
        parts = [self.unit]
        if self.has_points:
            parts.append("logarithmic")
        if self.is_worst_told:
            parts.append("the worst round")
        if self.is_more_better is not None:
            parts.append("more is better" if self.is_more_better else "less is better")
        return ", ".join(parts)


def rounds_of(result: RecordedRow | RecordedStudy) -> int:
    """Return the number of rounds, at most."""
    if isinstance(result, RecordedStudy):
        return max(len(finding.values) for finding in result.findings)
    return max(len(line.rates) for line in result.lines)


def panels_of(result: RecordedRow | RecordedStudy) -> list[Panel]:
    """Return the panels. Those of a row have two equal parts: rates, then latencies."""
    return _of_study(result) if isinstance(result, RecordedStudy) else _of_row(result)


def _of_row(row: RecordedRow) -> list[Panel]:
    rates, latencies = [], []
    for callers in dict.fromkeys(line.callers for line in row.lines):
        lines = [line for line in row.lines if line.callers == callers]
        title = "1 caller" if callers == 1 else f"{callers:,} callers"
        bars = tuple(_bar(line.contender, line.rates) for line in lines)
        rates.append(Panel(title, "a second", True, bars))
        bars = tuple(_bar(line.contender, line.p50_ms, line.p99_ms) for line in lines)
        latencies.append(Panel(title, "ms", False, bars))
    return rates + latencies


def _of_study(study: RecordedStudy) -> list[Panel]:
    names = dict.fromkeys(finding.measure for finding in study.findings)
    panels = []
    for name in names:
        if name.endswith(P99) and _p50_of(name, names):
            continue
        found = [finding for finding in study.findings if finding.measure == name]
        first = found[0]
        title = name.removesuffix(P50)
        is_more_better = None if first.is_description else first.unit.endswith("/s")
        bars = tuple(_study_bar(study, finding) for finding in found)
        panels.append(Panel(title, first.unit, is_more_better, bars, first.is_worst_told))
    return panels


def _p50_of(name: str, names: dict[str, None]) -> str | None:
    """Return the measure whose p99 this is, if it is there."""
    stem = name.removesuffix(P99)
    return next((it for it in (f"{stem}{P50}", stem) if it in names), None)


def _study_bar(study: RecordedStudy, finding: RecordedFinding) -> Bar:
    """Return the bar. Of the longest pause the worst round counts, as in the report."""
    p99_name = finding.measure.removesuffix(P50) + P99
    names = dict.fromkeys(it.measure for it in study.findings)
    p99 = [
        it.values
        for it in study.findings
        if it.measure == p99_name
        and it.contender == finding.contender
        and _p50_of(p99_name, names) == finding.measure
    ]
    bar = _bar(finding.contender, finding.values, p99[0] if p99 else None)
    if finding.is_worst_told:
        return Bar(bar.contender, bar.high, bar.low, bar.high, bar.p99)
    return bar


def _bar(contender: str, values: tuple[float, ...], p99: tuple[float, ...] | None = None) -> Bar:
    tail = None if p99 is None else median(p99)
    return Bar(contender, median(values), min(values), max(values), tail)
