"""`python -m simulator SEED`: one run, a short summary, and its verdict as exit status.

Exit status 1 and the first violation on the last line if there is one, 0 otherwise.
"""

import argparse
import sys
import time

from dodona_loadtest.workloads import WORKLOADS
from simulator.simulation import Result, simulate

VIOLATIONS_SHOWN_MAX = 10


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    parser.add_argument("seed", type=int, help="decides everything about the run")
    parser.add_argument("--seconds", type=int, default=20, help="of virtual time, under faults")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="default: by the seed")
    given = parser.parse_args(arguments)
    if given.seconds < 1:
        parser.error("--seconds must be positive")
    began = time.perf_counter()
    result = simulate(given.seed, given.seconds, given.workload)
    print(summary(result, time.perf_counter() - began))
    return 1 if result.violations else 0


def summary(result: Result, real_seconds: float) -> str:
    """What happened, and if it was wrong, what and how to see it again."""
    ratio = result.counts["virtual seconds"] / real_seconds
    lines = [
        f"seed {result.seed}, workload {result.workload}, {result.seconds} s under faults",
        ", ".join(f"{count} {name}" for name, count in result.counts.items()),
        "faults: " + _listed(result.fault_counts),
        "mischief: " + _listed({name: it for name, it in result.mischief_counts.items() if it}),
        "requests: " + _listed(result.message_counts),
        f"{real_seconds:.2f} s of real time, {ratio:.0f} virtual seconds each",
        f"history {result.digest}",
    ]
    if result.violations:
        lines.append(f"{len(result.violations)} violations; replay: {result.command}")
        shown = result.violations[:VIOLATIONS_SHOWN_MAX]
        lines += [str(violation) for violation in reversed(shown)]
    else:
        lines.append("no violation")
    return "\n".join(lines)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


if __name__ == "__main__":
    sys.exit(main())
