"""`python -m simulator.logs FIRST:END`: many seeds of a replicated log, and what they add up to.

Owns: which kind of run a seed is, and the section of the document. A run is that of
`simulator.replicated_log`: owners and replicas without a cluster around them. Exit status 1 if a
promise was broken. Must not import: any core but those of `dodona_replication`.
"""

import argparse
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from dodona_loadtest.harness.document import check_place, write_section
from dodona_replication.core.owner_effects import OwnerLimits
from simulator.pool import Failed, work_off
from simulator.replica_host import LOG
from simulator.replicated_log import ReplicatedLogRun
from simulator.standby import standby_run

SECTION: Final = "logs"
KINDS: Final[dict[str, Callable[[int], ReplicatedLogRun]]] = {
    "take-overs at any time": ReplicatedLogRun,
    "the same without leases": lambda seed: ReplicatedLogRun(seed, limits=OwnerLimits(lease_ms=0)),
    "processes that stand by": standby_run,
}
"""By the seed, one after the other."""


class Outcome(NamedTuple):
    """What one seed came to."""

    kind: str
    counts: Counter[str]
    faults: list[str]
    virtual_us: int


def run_seed(seed: int) -> Outcome:
    """Run one seed."""
    kind = [*KINDS][seed % len(KINDS)]
    run = KINDS[kind](seed)
    truth = run.run()
    return Outcome(kind, truth.counts + changes(run), truth.faults, run.world.now_us)


def changes(run: ReplicatedLogRun) -> Counter[str]:
    """Count how the documents of a run changed."""
    history = [it.document for it in run.etcd.history[LOG]]
    counts: Counter[str] = Counter()
    for old, new in pairwise(history):
        counts["take-over"] += new.epoch > old.epoch
        counts["release"] += new.released and not old.released
        counts["member dropped"] += bool({*old.members} - {*new.members})
        counts["member added"] += bool({*new.members} - {*old.members})
    return counts


def markdown(outcomes: Iterable[Outcome], faults: list[str], command: str, seconds: float) -> str:
    """The section's text."""
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    virtual_us = 0
    for it in outcomes:
        counts += it.counts
        kinds[it.kind] += 1
        virtual_us += it.virtual_us
    lines = [f"{name} | {kinds[name]:,}" for name in KINDS]
    lines += [f"simulated hours | {virtual_us / 3.6e9:.1f}", f"real time | {seconds / 60:.1f} min"]
    lines += [f"{name} | {counts[name]:,}" for name in sorted(counts)]
    lines += [f"broken promises | {len(faults):,}"]
    return "\n".join([f"`{command}`", "", "| | |", "|---|---:|", *(f"| {it} |" for it in lines)])


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m simulator.logs", description=__doc__)
    parser.add_argument("seeds", type=_seeds, metavar="FIRST:END", help="END is not run any more")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the summary in there")
    given = parser.parse_args(words)
    if given.markdown is not None:
        check_place(given.markdown, SECTION)
    if not given.seeds or given.jobs < 1:
        parser.error("END must be above FIRST, and --jobs must be positive")
    outcomes, faults, began = list[Outcome](), list[str](), time.perf_counter()
    for seed, answer in work_off(run_seed, given.seeds, given.jobs):
        if isinstance(answer, Failed):
            faults.append(f"seed {seed}: {answer.text}")
        else:
            outcomes.append(answer)
            faults += [f"seed {seed}, {answer.kind}: {it}" for it in answer.faults]
    command = shlex.join(["python", "-m", "simulator.logs", *words])
    text = markdown(outcomes, faults, command, time.perf_counter() - began)
    print("\n".join([text, *faults]))
    if given.markdown is not None:
        write_section(given.markdown, SECTION, text)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
