"""A campaign of failovers: rounds on one cluster with log replicas and nodes that stand by.

Owns: the layout of its cluster, its load, and its summary. The cluster has two cells, two nodes
that stand by, four log replicas and three members of etcd, all on one machine. The load is light:
the processes share the machine's cores, and an owner that gets none of them loses its cell.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from dodona_loadtest.chaos.campaign import CampaignPlan, Say, Summary, run_campaign
from dodona_loadtest.chaos.failover_round import FailoverRound
from dodona_loadtest.chaos.failovers import FailoverTable
from dodona_loadtest.live.verdict import share_of
from dodona_local.launcher import Arrange
from dodona_local.replicas import Replicas
from dodona_local.replicated_folder import MEMBERS

CELLS: Final = 2
REPLICAS: Final = Replicas(4, standby_count=2)
SESSIONS: Final = 2
THINK_MS_MEAN: Final = 50.0


def run_failovers(
    plan: CampaignPlan, folder: Path, say: Say, *, arrange: Arrange = list
) -> Summary:
    """Run all rounds. `kills` of the plan is the number of failovers. Raises LaunchFailed."""
    light = replace(plan, session_count=SESSIONS, think_ms_mean=THINK_MS_MEAN)
    return run_campaign(
        light,
        folder,
        say,
        arrange=arrange,
        replicas=REPLICAS,
        node_count=CELLS,
        round_class=FailoverRound,
    )


def table_of(summary: Summary) -> FailoverTable:
    """Return the failovers of all rounds."""
    return FailoverTable([it for each in summary.rounds for it in each.failovers])


def is_broken(summary: Summary) -> bool:
    """Return whether any promise was broken."""
    return bool(summary.violations) or any(
        it.lost_count or it.stale_count for it in table_of(summary).results
    )


def failover_lines(summary: Summary) -> list[str]:
    """Return the summary for a reader, in lines."""
    table = table_of(summary)
    return [
        f"seed {summary.plan.seed}: {len(summary.rounds)} rounds",
        *table.lines(),
        *table.goals(),
        *summary.counts.lines(summary.seconds),
        *summary.violation_lines(),
    ]


def failover_markdown(summary: Summary) -> str:
    """Return the summary as a section of a document."""
    table, counts = table_of(summary), summary.counts
    command = f"python -m dodona_loadtest.kills --failovers {summary.plan.kills}"
    unsure = share_of(counts.unsure, counts.commits_asked)
    lines = [
        f"`{command} --seed {summary.plan.seed}`: {CELLS} cells, {REPLICAS.standby_count} nodes",
        f"that stand by, {REPLICAS.replica_count} log replicas, {MEMBERS} members of etcd,",
        f"{len(table.results)} failovers in {len(summary.rounds)} rounds, {summary.seconds:.0f} s.",
        "",
        *table.lines(),
        "",
        *(f"- {goal}" for goal in table.goals()),
        f"- {counts.transactions:,} transactions besides, {counts.committed:,} committed",
        f"- {counts.unsure:,} ambiguous commits ({unsure})",
        f"- {len(summary.violations)} violations",
    ]
    return "\n".join(lines) + "\n"
