"""What a benchmark row is made of, and what comes out of it. No measuring here."""

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
    """Their descendants are theirs too. Empty for an engine in the client's process."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A system in a row. `start` gets an empty folder; it may raise ContenderError."""

    name: str
    start: Callable[[Path], AbstractContextManager[Running]]
    durability: str = SYNCED
    """Of what it acknowledges: the same for all of a row, or the report says whose is not."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What Dodona means to reach with that many callers, on a 2-core machine."""

    callers: int
    rate_min: float | None = None
    latency_ms_p50_max: float | None = None
    not_below: str | None = None
    """The contender whose rate is to be reached."""
    times: float = 1
    """So many times over."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing to measure. The first contender is Dodona, the others are its peers."""

    name: str
    title: str
    fairness: str
    """A sentence or two on what makes the peers comparable, printed under the title."""
    contenders: tuple[Contender, ...]
    callers: tuple[int, ...]
    callers_quick: tuple[int, ...]
    goals: tuple[Goal, ...] = ()
    pinning: PinningName | None = None
    """Where the command leaves the placement to the kernel, this row's own; named in its title."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One round: the sample, and what the servers used meanwhile."""

    sample: Sample
    servers_cpu_us: float
    """Processor time of all servers for each operation, warm-up included in neither."""


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
    """All that a row gave: lines in the order of callers, then contenders."""

    row: Row
    lines: list[Line] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    """Contenders that have no figures, and why."""
    failed: set[str] = field(default_factory=set)
    """Those of them that were there."""
