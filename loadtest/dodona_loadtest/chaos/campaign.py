"""A campaign of kills: rounds on one cluster, which lasts for all rounds, and a summary.

Owns: the plan of the rounds, drawn from one seed, and the sums. A round with a violation is the
last one. Its data stay as they are.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from dodona_loadtest.chaos.faults import ROLES, Role, role_of
from dodona_loadtest.chaos.round import Round, RoundPlan, RoundResult
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import Acquisition
from dodona_loadtest.live.session_group import now_us
from dodona_loadtest.live.verdict import NO_COUNTS, Counts, percentile, share_of
from dodona_loadtest.workloads import WORKLOADS
from dodona_local.launcher import Arrange, LocalCluster
from dodona_local.replicas import Replicas

NODES: Final = 3
PROXIES: Final = 2
BACK_OFF_S_MAX: Final = 0.2
"""A killed process restarts quickly, so that it can be killed again more often."""
VIOLATIONS_SHOWN_MAX: Final = 20

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """The plan of a campaign."""

    kills: int
    seed: int
    kills_per_round: int = 20
    after_ms_mean: float = 1_000.0
    session_count: int = 6
    """Sessions in each of the client processes."""
    think_ms_mean: float = 10.0

    def rounds(self) -> list[RoundPlan]:
        """Return the plans of the rounds. The workloads take turns, from any first one."""
        random = Random(self.seed)
        names = sorted(WORKLOADS)
        first = random.randrange(len(names))
        shares = [self.kills_per_round] * (self.kills // self.kills_per_round)
        if self.kills % self.kills_per_round:
            shares.append(self.kills % self.kills_per_round)
        return [
            RoundPlan(
                number=number,
                workload=names[(first + number) % len(names)],
                seed=random.random(),
                kills=share,
                session_count=self.session_count,
                think_ms_mean=self.think_ms_mean,
                after_ms_mean=self.after_ms_mean,
            )
            for number, share in enumerate(shares, 1)
        ]


@dataclass(slots=True)
class Summary:
    """The results of all rounds."""

    plan: CampaignPlan
    rounds: list[RoundResult] = field(default_factory=list)

    @property
    def violations(self) -> list[Violation]:
        return [violation for it in self.rounds for violation in it.violations]

    @property
    def counts(self) -> Counts:
        return sum((it.counts for it in self.rounds), NO_COUNTS)

    @property
    def seconds(self) -> float:
        return sum(it.seconds for it in self.rounds)

    @property
    def kill_count(self) -> int:
        return sum(len(it.kills) for it in self.rounds)

    @property
    def death_count(self) -> int:
        return sum(it.death_count for it in self.rounds)

    def kills_by_role(self) -> dict[Role, int]:
        counted = Counter(role_of(name) for it in self.rounds for _, name in it.kills)
        return {role: counted[role] for role in ROLES}

    def recoveries_ms(self, role: Role) -> list[float]:
        return [ms for it in self.rounds for its_role, ms in it.recoveries if its_role == role]

    def lines(self) -> list[str]:
        """Return the summary for a reader, in lines."""
        pauses = sum(len(it.pauses) for it in self.rounds)
        by_role = ", ".join(f"{count} {role}" for role, count in self.kills_by_role().items())
        return [
            f"seed {self.plan.seed}: {len(self.rounds)} rounds, {pauses} pauses",
            f"{self.kill_count} kills: {by_role}",
            f"{self.death_count} clients died in the middle of a commit besides",
            *self.counts.lines(self.seconds),
            f"{sum(it.outcomes_asked for it in self.rounds)} unsure outcomes asked for again",
            *(self._recovery_line(role) for role in ROLES),
            *self.violation_lines(),
        ]

    def violation_lines(self) -> list[str]:
        """Return the number of violations, and the first ones."""
        shown = [str(violation) for violation in self.violations[:VIOLATIONS_SHOWN_MAX]]
        return [f"{len(self.violations)} violations", *shown]

    def _recovery_line(self, role: Role) -> str:
        p50, p99, count = self.recovery(role)
        return f"first success after the kill of a {role}: p50 {p50} s, p99 {p99} s ({count} times)"

    def recovery(self, role: Role) -> tuple[str, str, int]:
        """Return p50 and p99 in seconds, and the number of kills."""
        values = self.recoveries_ms(role)
        if not values:
            return "unknown", "unknown", 0
        p50, p99 = (f"{percentile(values, share) / 1000:.2f}" for share in (0.5, 0.99))
        return p50, p99, len(values)


def markdown(summary: Summary) -> str:
    """Return the summary as a section of a document."""
    counts = summary.counts
    unsure, conflicts = (
        share_of(it, counts.commits_asked) for it in (counts.unsure, counts.conflicts)
    )
    command = f"python -m dodona_loadtest.kills --kills {summary.plan.kills}"
    pauses = sum(len(it.pauses) for it in summary.rounds)
    lines = [
        f"`{command} --seed {summary.plan.seed}`: {NODES} nodes and {PROXIES} proxies,",
        f"{len(summary.rounds)} rounds in {summary.seconds:.0f} s.",
        "",
        "| killed | times | first success, p50 s | p99 s |",
        "| --- | ---: | ---: | ---: |",
    ]
    for role, count in summary.kills_by_role().items():
        p50, p99, _ = summary.recovery(role)
        lines.append(f"| {role} | {count} | {p50} | {p99} |")
    lines += [
        "",
        "The times are of those kills after which nothing else was hit before the first success.",
        "",
        f"- {summary.death_count} clients died in the middle of a commit besides, {pauses} pauses",
        f"- {counts.transactions:,} transactions, {counts.committed:,} committed",
        f"- {counts.unsure:,} ambiguous commits ({unsure})",
        f"- {counts.conflicts:,} conflicts ({conflicts})",
        f"- {len(summary.violations)} violations",
    ]
    return "\n".join(lines) + "\n"


def run_campaign(
    plan: CampaignPlan,
    folder: Path,
    say: Say,
    *,
    arrange: Arrange = list,
    replicas: Replicas | None = None,
    node_count: int = NODES,
    round_class: type[Round] = Round,
) -> Summary:
    """Run all rounds. `folder` is for the data of the cluster and the journals. `arrange` may
    replace some servers. Raises LaunchFailed."""
    summary = Summary(plan)
    before: list[Acquisition] = []
    (folder / "journals").mkdir()
    with LocalCluster(
        folder / "data",
        node_count=node_count,
        proxy_count=PROXIES,
        back_off_s_max=BACK_OFF_S_MAX,
        replicas=replicas,
        arrange=arrange,
    ) as cluster:
        for its_plan in plan.rounds():
            result = round_class(its_plan, cluster, folder / "journals", before).run()
            summary.rounds.append(result)
            say(_progress(summary, result))
            if result.violations:
                break
            at_us = now_us()
            before = [Acquisition("earlier rounds", at_us, at_us, result.newest, result.newest)]
    return summary


def _progress(summary: Summary, result: RoundResult) -> str:
    counts = result.counts
    pauses_s = [it.pause_us / 1e6 for it in result.failovers]
    pauses = f"; pauses of up to {max(pauses_s):.2f} s" if pauses_s else ""
    return (
        f"round {result.plan.number}, {result.plan.workload}: {len(result.kills)} kills, "
        f"{len(result.pauses)} pauses in {result.seconds:.0f} s; {counts.committed} committed, "
        f"{counts.conflicts} conflicts, {counts.unsure} unsure, {result.version_count} versions; "
        f"{len(result.violations)} violations; {summary.kill_count} kills so far{pauses}"
    )
