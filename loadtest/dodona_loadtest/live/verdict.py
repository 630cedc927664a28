"""The verdict on a run, and its results in numbers, from its history alone.

Owns: which judges are asked, and the counts. Must not import: anything that talks to a cluster.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dodona_loadtest.checkers.sweep import check
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import History, Transaction, Version
from dodona_loadtest.workloads import Workload

CONFLICT: Final = "transaction_conflict"
UNSURE: Final = ("info", "open")


def judge(history: History, dump: Iterable[Version], workload: Workload) -> list[Violation]:
    """Return all broken promises: those of the checkers, those that the workload saw on the way,
    and those that it finds in the whole history."""
    versions = list(dump)
    workload.resolve(history)
    return [
        *check(history, versions),
        *workload.violations,
        *workload.check(history),
        *workload.check_versions(history, versions),
    ]


def is_unsure(t: Transaction) -> bool:
    """Return whether its caller asked for a commit and got no sure answer, or vanished."""
    return t.commit_us is not None and t.status in UNSURE


def is_conflict(t: Transaction) -> bool:
    return t.commit_us is not None and t.error.startswith(CONFLICT)


@dataclass(frozen=True, slots=True)
class Counts:
    """What the sessions did. Latencies are of acknowledged commits, from `begin` to the answer. A
    call that writes without atomicity counts as a transaction, by the answer for its first row."""

    transactions: int
    commits_asked: int
    committed: int
    conflicts: int
    unsure: int
    snapshots: int
    latencies_ms: tuple[float, ...]

    @classmethod
    def of(cls, history: History) -> "Counts":
        asked = [t for t in history.transactions if t.commit_us is not None]
        done = [t for t in asked if t.status == "ok" and t.end_us is not None]
        calls = {write.name: write for write in reversed(history.stamped_writes)}.values()
        answered = [it for it in calls if it.status == "ok" and it.answered_us is not None]
        latencies_us = [(t.end_us or 0) - t.begin_us for t in done]
        latencies_us += [(it.answered_us or 0) - it.asked_us for it in answered]
        return cls(
            transactions=len(history.transactions) + len(calls),
            commits_asked=len(asked) + len(calls),
            committed=len(done) + len(answered),
            conflicts=sum(map(is_conflict, asked)),
            unsure=sum(map(is_unsure, asked)) + sum(it.status in UNSURE for it in calls),
            snapshots=sum(bool(t.scans) for t in history.transactions),
            latencies_ms=tuple(latency_us / 1000 for latency_us in latencies_us),
        )

    def lines(self, seconds: float) -> list[str]:
        """Return lines for a reader."""
        rate = self.committed / seconds if seconds else 0.0
        p50, p99 = (percentile(self.latencies_ms, share) for share in (0.5, 0.99))
        conflicts, unsure = (
            share_of(it, self.commits_asked) for it in (self.conflicts, self.unsure)
        )
        return [
            f"{self.transactions} transactions and {self.snapshots} snapshots in {seconds:.0f} s",
            f"{self.committed} committed: {rate:.0f} a second, p50 {p50:.1f} ms, p99 {p99:.1f} ms",
            f"{self.conflicts} conflicts ({conflicts}), {self.unsure} unsure ({unsure})",
        ]

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.transactions + other.transactions,
            self.commits_asked + other.commits_asked,
            self.committed + other.committed,
            self.conflicts + other.conflicts,
            self.unsure + other.unsure,
            self.snapshots + other.snapshots,
            self.latencies_ms + other.latencies_ms,
        )


NO_COUNTS: Final = Counts(0, 0, 0, 0, 0, 0, ())


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that `share` of them do not exceed; not a number if there is none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def share_of(part: int, whole: int) -> str:
    """Return a share as a percentage."""
    return f"{part / whole:.1%}" if whole else "none"
