"""What many runs came to, added up and judged.

Owns: the sums, the goals of a batch, and its failures. A batch without violations says little if
its runs met nothing: what they met is counted by kind. Must not import: any core.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, get_args

from dodona_wire.cores.fault_points import FaultPoint
from simulator.faults import FaultKind
from simulator.simulation import Result

CONFLICTS_MIN: Final = 0.05
AMBIGUOUS_MIN: Final = 0.01
COMMITTED_MIN: Final = 0.30
"""Of the commits asked for."""
RATIO_MIN: Final = 30

FAULT_POINTS: Final = tuple(point.name for point in FaultPoint)
"""All fault points, by the names in `Result.fault_point_counts`."""


def _words_of(kinds: object) -> list[str]:
    """Of a Literal, or of several."""
    if isinstance(kinds, str):
        return [kinds]
    return [word for part in get_args(kinds) for word in _words_of(part)]


SCHEDULED_KINDS: Final = _words_of(FaultKind)


class Goal(NamedTuple):
    """What a batch is to reach, and what it reached."""

    name: str
    wanted: str
    reached: str
    is_met: bool


@dataclass(slots=True)
class Summary:
    """All runs so far. `elapsed_seconds` is what passed meanwhile, with all processes together,
    `run_seconds` what each run took by itself."""

    seconds: int
    seed_count: int = 0
    run_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    again_count: int = 0
    again_elsewhere_count: int = 0
    is_interrupted: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    fault_points: Counter[str] = field(default_factory=Counter)
    workloads: Counter[str] = field(default_factory=Counter)
    acknowledgements: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result, real_seconds: float, again: str = "") -> None:
        """One more run; `again` says where it was run a second time, if it was."""
        self.seed_count += 1
        self.run_seconds += real_seconds
        self.again_count += bool(again)
        self.again_elsewhere_count += again == "elsewhere"
        self.counts.update(result.counts)
        self.faults.update(result.fault_counts)
        self.messages.update(result.message_counts)
        self.fault_points.update(result.fault_point_counts)
        self.workloads[result.workload] += 1
        self.acknowledgements[result.acknowledgement] += 1
        if result.violations:
            self.failures.append(result)

    # Sums

    @property
    def virtual_seconds(self) -> int:
        return self.counts["virtual seconds"]

    @property
    def ratio(self) -> float:
        """Virtual seconds in each real one."""
        return self.virtual_seconds / self.elapsed_seconds if self.elapsed_seconds else 0.0

    @property
    def core_ratio(self) -> float:
        """The same of one process."""
        return self.virtual_seconds / self.run_seconds if self.run_seconds else 0.0

    def share(self, name: str) -> float:
        """Of the commits asked for."""
        return self.counts[name] / max(1, self.counts["commits asked for"])

    @property
    def ambiguous_share(self) -> float:
        """Of these no caller knew the outcome, at first: told so, or gone before the answer."""
        return self.share("told unknown") + self.share("gone while committing")

    @property
    def scheduled_faults(self) -> dict[str, int]:
        """Those that happened at an instant of their own."""
        return scheduled_of(self.faults)

    @property
    def other_faults(self) -> dict[str, int]:
        """Those that befell a datagram, a flush or a process in the course of things."""
        scheduled = self.scheduled_faults
        return {kind: count for kind, count in sorted(self.faults.items()) if kind not in scheduled}

    @property
    def points_never_hit(self) -> list[str]:
        return [name for name in FAULT_POINTS if not self.fault_points[name]]

    # The verdict

    @property
    def goals(self) -> list[Goal]:
        """Speed is among them for the reader: nothing fails because of it."""
        never = self.points_never_hit
        points = f"{len(FAULT_POINTS) - len(never)} of {len(FAULT_POINTS)}"
        failed_count, ratio = len(self.failures), self.ratio
        return [
            Goal("seeds with a violation", "none", str(failed_count), failed_count == 0),
            _share_goal("conflicts", self.share("conflicts"), CONFLICTS_MIN),
            _share_goal("ambiguous outcomes", self.ambiguous_share, AMBIGUOUS_MIN),
            _share_goal("committed", self.share("committed"), COMMITTED_MIN),
            Goal("fault points hit", "all", points, not never),
            Goal("virtual time", f"≥ {RATIO_MIN}:1", f"{ratio:.0f}:1", ratio >= RATIO_MIN),
        ]


def _share_goal(name: str, share: float, least: float) -> Goal:
    wanted = f"≥ {least:.0%} of the commits asked for"
    return Goal(name, wanted, f"{share:.1%}", share >= least)


def scheduled_of(fault_counts: Mapping[str, int]) -> dict[str, int]:
    """Those that came from `Options.faults`: of such a kind, and maybe with a word for whom."""
    return {it: fault_counts[it] for it in sorted(fault_counts) if _is_scheduled(it.split())}


def _is_scheduled(words: list[str]) -> bool:
    return words[0] in SCHEDULED_KINDS and len(words) <= 2
