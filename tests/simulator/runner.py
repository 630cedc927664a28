"""Many seeds in several processes: each run once, some of them twice, all of them counted.

Owns: which seeds are run again to compare histories, and when a batch is given up. Chosen by the
seeds alone: the same seeds are run again on every machine.
Must not import: any core.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Literal

from dodona_loadtest.checkers.violation import Violation
from simulator.pool import Failed, work_off
from simulator.simulation import Result, simulate
from simulator.summary import Summary

AGAIN_RATE: Final = 0.05
ELSEWHERE_COUNT: Final = 5
"""How many of those are run again in a process that hashes otherwise."""
FAILED_SEEDS_MAX: Final = 20
"""So many failures say it all: the rest of the batch is not run."""

Again = Literal["", "here", "elsewhere"]


@dataclass(frozen=True, slots=True)
class Job:
    """One seed, and where it is to be run a second time."""

    seed: int
    again: Again


@dataclass(frozen=True, slots=True)
class Outcome:
    """`real_seconds` are those of the first run."""

    result: Result
    real_seconds: float
    again: Again


@dataclass(frozen=True, slots=True)
class Work:
    """What is done to each seed. Runs in a worker."""

    seconds: int
    workload: str | None = None

    def __call__(self, job: Job) -> Outcome:
        began = time.perf_counter()
        result = simulate(job.seed, self.seconds, self.workload)
        real_seconds = time.perf_counter() - began
        if job.again == "here":
            compare(result, simulate(job.seed, self.seconds, self.workload).digest)
        elif job.again == "elsewhere":
            compare(result, digest_elsewhere(result))
        return Outcome(result, real_seconds, job.again)

    def lost(self, job: Job, reason: str) -> Outcome:
        """What stands for a run that did not come to its end."""
        result = Result(job.seed, self.workload or "", self.seconds)
        result.violations.append(Violation("CRASH", f"the run itself: {reason}"))
        return Outcome(result, 0.0, "")


def compare(result: Result, digest: str) -> None:
    """The second history has to be the first."""
    if digest != result.digest:
        text = f"the first run's history is {result.digest}, the second's {digest}"
        result.violations.append(Violation("DETERMINISM", text))


def digest_elsewhere(result: Result) -> str:
    """The digest of the same run in a process of its own, which hashes otherwise."""
    environment = os.environ | {
        "PYTHONHASHSEED": str(1 + result.seed % 4_294_967_295),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    _, *words = result.command.split()
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("history ")]
    return found[0].removeprefix("history ") if found else f"missing: {done.stderr[-500:]}"


def plan(seeds: Sequence[int]) -> list[Job]:
    """One in twenty is run twice, and at least one."""
    shuffled = sorted(seeds, key=lambda seed: hashlib.sha256(b"%d" % seed).digest())
    again: dict[int, Again] = dict.fromkeys(shuffled[: -int(-len(seeds) * AGAIN_RATE // 1)], "here")
    again |= dict.fromkeys(list(again)[:ELSEWHERE_COUNT], "elsewhere")
    return [Job(seed, again.get(seed, "")) for seed in seeds]


def run_seeds(
    seeds: Sequence[int],
    work: Work,
    worker_count: int,
    watch: Callable[[Summary, Outcome], None] = lambda *_: None,
) -> Summary:
    """`watch` is told of every run that ends. An interruption ends the batch, not the summary."""
    summary = Summary(work.seconds)
    began = time.monotonic()
    try:
        with closing(work_off(work, plan(seeds), worker_count)) as answers:
            for job, answer in answers:
                outcome = work.lost(job, answer.text) if isinstance(answer, Failed) else answer
                summary.add(outcome.result, outcome.real_seconds, outcome.again)
                summary.elapsed_seconds = time.monotonic() - began
                watch(summary, outcome)
                if len(summary.failures) >= FAILED_SEEDS_MAX:
                    break
    except KeyboardInterrupt:
        summary.is_interrupted = True
    return summary
