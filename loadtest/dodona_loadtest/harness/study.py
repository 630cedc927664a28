"""What a study is made of, and what comes out of it. No measuring here.

A study is a benchmark row that is no matter of callers: each contender lives through the same
story in every round (load, flush, kill, read...), and each time gives the figures asked for.
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
"""By the measure's name. A contender leaves out what it has none for."""

Unit = Literal["rows/s", "µs", "ms", "s", "bytes", "rows", "MB", "MB/s", "% of a core"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure asked for. Of the longest pause the worst round counts, else the median one."""

    name: str
    unit: Unit
    is_worst_told: bool = False
    is_description: bool = False
    """It says what was done: neither more nor less is better."""


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
        """That many rows or bytes at full scale, as many as are wanted now; at least one."""
        return max(1, round(count * self.scale))


@dataclass(frozen=True, slots=True)
class Performance:
    """A contender that is up. `perform` is one round, which is given the round's number."""

    version: str
    perform: Callable[[int], Figures]
    failures: Counter[str] = field(default_factory=Counter)
    """Of operations, by what was done: errors that a caller must expect, in all rounds so far."""


Story = Callable[[Path, Effort], AbstractContextManager[Performance]]
"""Gets an empty folder; may raise ContenderError, then and in any round."""


@dataclass(frozen=True, slots=True)
class Performer:
    """A system in a study."""

    name: str
    start: Story


@dataclass(frozen=True, slots=True)
class Bound:
    """What Dodona means to reach: on a 2-core machine, or in terms of another line."""

    measure: str
    at_least: float | None = None
    at_most: float | None = None
    times: tuple[str, str] | None = None
    """Contender and measure whose figure the bound is a multiple of; None for an absolute one."""


@dataclass(frozen=True, slots=True)
class Study:
    """One thing to look into. The first contender is Dodona, the others are its peers."""

    name: str
    title: str
    fairness: str
    """A few sentences on what makes the peers comparable, printed under the title."""
    performers: tuple[Performer, ...]
    measures: tuple[Measure, ...]
    bounds: tuple[Bound, ...] = ()
    rounds_max: int = 3
    """Of a long story fewer rounds than asked for."""
    warms_up: bool = False
    """Whether there is a round before that does not count: of what is done again and again. A long
    course of events begins alike in each round."""
    durability: str = SYNCED
    """Of what is acknowledged, by all."""
    columns: int = 2
    """So many measures that follow upon one another belong together: a line of its picture."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The figures of all rounds of one contender for one measure."""

    measure: Measure
    contender: str
    values: tuple[float, ...]

    @property
    def value(self) -> float:
        """What the study says."""
        return max(self.values) if self.measure.is_worst_told else median(self.values)


@dataclass(slots=True)
class StudyResult:
    """All that a study gave: findings in the order of measures, then contenders."""

    study: Study
    findings: list[Finding] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    """Contenders that have no figures, and why."""
    failed: set[str] = field(default_factory=set)
    """Those of them that were there."""
    failures: dict[str, dict[str, int]] = field(default_factory=dict)
    """By contender, then by what was done."""

    def find(self, contender: str, measure: str) -> Finding | None:
        """What was found of that, if anything was."""
        found = [
            it for it in self.findings if (it.contender, it.measure.name) == (contender, measure)
        ]
        return found[0] if found else None
