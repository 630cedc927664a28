"""The failovers of a campaign: what fails, drawn from a seed, and what each one cost.

Owns: the kinds of failures, their draws, and the figures of many failovers. A pause is the longest
time in which a cell acknowledged nothing, as one writer of single rows saw it.
Must not import: anything that has processes or clocks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, NamedTuple, get_args

from dodona_loadtest.live.verdict import percentile

Kind = Literal[
    "owner killed",
    "owner stands still",
    "owner loses its folder",
    "replica killed",
    "etcd leader killed",
    "two together",
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Other = Literal["owner", "replica", "etcd leader", "standby"]
OTHERS: Final[tuple[Other, ...]] = get_args(Other)
"""What fails together with the owner of a cell. The owner in this list is that of another cell."""
STILL_MS: Final = (1_500, 4_000)
"""The shortest and the longest time for which an owner stands still: its cell moves meanwhile."""
PAUSE_P50_S: Final = 2.0
PAUSE_P99_S: Final = 3.0
"""The goals of a pause."""


class Failover(NamedTuple):
    """One failure. `dice` chooses among processes of a kind."""

    kind: Kind
    cell: int
    after_ms: int
    """The time before it, in which nothing fails."""
    still_ms: int
    """For how long the owner stands still, if it does."""
    other: Other
    """What else fails, if two fail together."""
    dice: float


@dataclass(frozen=True, slots=True)
class FailoverResult:
    """What a failure cost."""

    failover: Failover
    pause_us: int
    moved_count: int = 0
    """The cells that another process owned afterwards."""
    lost_count: int = 0
    """Acknowledged rows of the writers that were not there afterwards."""
    stale_count: int = 0
    """Reads that did not find a row which was acknowledged before they were asked for."""


def draw_failovers(seed: float, cells: Sequence[int], after_ms_mean: float) -> Iterator[Failover]:
    """Draw one failure after another, without end. Each kind comes once before any comes again."""
    random = Random(seed)
    while True:
        for kind in random.sample(KINDS, len(KINDS)):
            yield Failover(
                kind,
                random.choice(cells),
                int(random.expovariate(1 / after_ms_mean)),
                random.randint(*STILL_MS),
                random.choice(OTHERS),
                random.random(),
            )


def longest_pause_us(acknowledged_us: Iterable[int], began_us: int, ended_us: int) -> int:
    """Return the longest time between two acknowledgements that follow each other, as far as it
    ends after `began_us`. The end counts as one."""
    longest_us, before_us = 0, began_us
    for acknowledged in (*acknowledged_us, ended_us):
        at_us = min(acknowledged, ended_us)
        if at_us > began_us:
            longest_us = max(longest_us, at_us - before_us)
        before_us = at_us
    return longest_us


@dataclass(slots=True)
class FailoverTable:
    """The results of a campaign, by kind."""

    results: list[FailoverResult] = field(default_factory=list)

    def of(self, kind: Kind) -> list[FailoverResult]:
        return [it for it in self.results if it.failover.kind == kind]

    def lines(self) -> list[str]:
        """Return the table in Markdown: a line for each kind, and one for all."""
        return [
            "| what failed | times | cells moved | p50 s | p99 s | longest s | lost | stale |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            *(_line(kind, found) for kind in KINDS if (found := self.of(kind))),
            _line("all", self.results),
        ]

    def goals(self) -> list[str]:
        """Return how the pauses of all failures compare with their goals."""
        pauses_us = [it.pause_us for it in self.results]
        goals = ((0.5, PAUSE_P50_S), (0.99, PAUSE_P99_S))
        return [
            f"longest time without an acknowledgement, p{100 * share:.0f}: "
            f"{(found_s := percentile(pauses_us, share) / 1e6):.2f} s "
            f"(≤ {goal_s:g} s: {'met' if found_s <= goal_s else 'missed'})"
            for share, goal_s in goals
        ]


def _line(name: str, found: Sequence[FailoverResult]) -> str:
    pauses_s = [it.pause_us / 1e6 for it in found]
    p50, p99, longest = (f"{percentile(pauses_s, share):.2f}" for share in (0.5, 0.99, 1.0))
    moved, lost, stale = (
        sum(getattr(it, name) for it in found)
        for name in ("moved_count", "lost_count", "stale_count")
    )
    return f"| {name} | {len(found)} | {moved} | {p50} | {p99} | {longest} | {lost} | {stale} |"
