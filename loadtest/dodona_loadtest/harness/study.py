"""What a study consists of, and its results. This module measures nothing.

A study is a benchmark row that does not depend on callers. Each contender runs the same story in
every round (load, flush, kill, read...), and gives the requested figures each time.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

from dodona_loadtest.harness.durability import SYNCED

Figures = Mapping[str, float]
"""Figures by the measure's name. A contender leaves out a measure for which it has none."""

Unit = Literal["rows/s", "µs", "ms", "s", "bytes", "rows", "MB", "MB/s", "% of a core"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One requested figure. Of the longest pause the worst round counts, else the median one."""

    name: str
    unit: Unit
    is_worst_told: bool = False
    is_description: bool = False
    """It describes the work: neither more nor less is better."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a story does, and where its client processes run."""

    scale: float
    """All counts of rows and sizes of data are this share of the full ones."""
    measure_s: float
    client_cores: frozenset[int]
    embedded_cores: frozenset[int]
    """For an engine in the client's process."""

    def share(self, count: int) -> int:
        """Return the wanted share of that many rows or bytes at full scale; at least one."""
        return max(1, round(count * self.scale))


@dataclass(frozen=True, slots=True)
class Performance:
    """A contender that is up. `perform` runs one round, and gets its number."""

    version: str
    perform: Callable[[int], Figures]
    failures: Counter[str] = field(default_factory=Counter)
    """Failed operations, by the name of the work: errors that a caller must expect, in all
    rounds so far."""


Story = Callable[[Path, Effort], AbstractContextManager[Performance]]
"""Gets an empty folder. May raise ContenderError, at the start and in any round."""


@dataclass(frozen=True, slots=True)
class Performer:
    """A system in a study."""

    name: str
    start: Story


@dataclass(frozen=True, slots=True)
class Bound:
    """A goal of Dodona: on a 2-core machine, or in terms of another line."""

    measure: str
    at_least: float | None = None
    at_most: float | None = None
    times: tuple[str, str] | None = None
    """Contender and measure whose figure the bound is a multiple of; None for an absolute one."""


@dataclass(frozen=True, slots=True)
class Study:
    """One thing to study. The first contender is Dodona, the others are its peers."""

    name: str
    title: str
    fairness: str
    """A few sentences on why the peers are comparable, printed under the title."""
    performers: tuple[Performer, ...]
    measures: tuple[Measure, ...]
    bounds: tuple[Bound, ...] = ()
    rounds_max: int = 3
    """The most rounds: a long story has fewer than the command asks for."""
    warms_up: bool = False
    """Whether a first round does not count, for work that is done again and again. A long course of
    events begins in the same way in each round."""
    durability: str = SYNCED
    """The durability of acknowledged writes, of all contenders."""
    columns: int = 2
    """This many measures in a row belong together: a line of the study's picture."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The figures of all rounds of one contender for one measure."""

    measure: Measure
    contender: str
    values: tuple[float, ...]

    @property
    def value(self) -> float:
        """The figure that the study shows."""
        return max(self.values) if self.measure.is_worst_told else median(self.values)


@dataclass(slots=True)
class StudyResult:
    """All results of a study: findings in the order of measures, then contenders."""

    study: Study
    findings: list[Finding] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    """Contenders that have no figures, and why."""
    failed: set[str] = field(default_factory=set)
    """Dropped contenders that this machine has, and that failed."""
    failures: dict[str, dict[str, int]] = field(default_factory=dict)
    """Failed operations by contender, then by the name of the work."""

    def find(self, contender: str, measure: str) -> Finding | None:
        """Return the finding of a contender for a measure, None if there is none."""
        found = [
            it for it in self.findings if (it.contender, it.measure.name) == (contender, measure)
        ]
        return found[0] if found else None
