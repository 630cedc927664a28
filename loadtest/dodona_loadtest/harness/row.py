"""What a benchmark row consists of, and its results. This module measures nothing."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from dodona_loadtest.harness.durability import SYNCED
from dodona_loadtest.harness.load import Load
from dodona_loadtest.harness.measure import Sample
from dodona_loadtest.harness.pinning import PinningName


@dataclass(frozen=True, slots=True)
class Running:
    """A contender whose servers are up."""

    load: Load
    version: str
    server_pids: tuple[int, ...] = ()
    """The servers include their descendants. Empty for an engine in the client's process."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A system in a row. `start` gets an empty folder; it may raise ContenderError."""

    name: str
    start: Callable[[Path], AbstractContextManager[Running]]
    durability: str = SYNCED
    """The durability of acknowledged writes: one for the row, or the report names others."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Dodona's goal with that many callers, on a 2-core machine."""

    callers: int
    rate_min: float | None = None
    latency_ms_p50_max: float | None = None
    not_below: str | None = None
    """The contender whose rate is the goal."""
    times: float = 1
    """The goal is this many times that rate."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing to measure. The first contender is Dodona, the others are its peers."""

    name: str
    title: str
    fairness: str
    """A sentence or two on why the peers are comparable, printed under the title."""
    contenders: tuple[Contender, ...]
    callers: tuple[int, ...]
    callers_quick: tuple[int, ...]
    goals: tuple[Goal, ...] = ()
    pinning: PinningName | None = None
    """This row's placement, if the command leaves it to the kernel. The title names it."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One round: the sample, and the servers' use meanwhile."""

    sample: Sample
    servers_cpu_us: float
    """Processor time of all servers for each operation, without the warm-up."""


@dataclass(frozen=True, slots=True)
class Line:
    """The medians over all rounds of one contender with one number of callers."""

    callers: int
    contender: str
    observations: tuple[Observation, ...]

    @property
    def rates(self) -> list[float]:
        return [observation.sample.rate for observation in self.observations]

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def latency_ms_p50(self) -> float:
        return median(o.sample.latency_us_p50 for o in self.observations) / 1e3

    @property
    def latency_ms_p99(self) -> float:
        return median(o.sample.latency_us_p99 for o in self.observations) / 1e3

    @property
    def client_cpu_us(self) -> float:
        return median(o.sample.client_cpu_us for o in self.observations)

    @property
    def servers_cpu_us(self) -> float:
        return median(o.servers_cpu_us for o in self.observations)

    @property
    def failures(self) -> int:
        return sum(o.sample.failures for o in self.observations)


@dataclass(slots=True)
class RowResult:
    """All results of a row: lines in the order of callers, then contenders."""

    row: Row
    lines: list[Line] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    """Contenders that have no figures, and why."""
    failed: set[str] = field(default_factory=set)
    """Dropped contenders that this machine has, and that failed."""
