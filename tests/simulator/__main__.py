"""`python -m simulator SEED` runs one seed, `python -m simulator --seeds FIRST:END` many.

One run ends with a short summary, many with what they add up to; a failure with the command that
replays it, and (of many, or with --shrink) the command of the least that still fails. Exit status 1
if there was a violation, 130 if the run was interrupted, 0 otherwise.
"""

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

from rich.console import Console

from dodona_loadtest.harness.document import check_place
from dodona_loadtest.workloads import WORKLOADS
from simulator import report
from simulator.batch import run_batch
from simulator.runner import Work
from simulator.shrinking import shrink_seed
from simulator.simulation import Result, simulate
from simulator.thinning import Thinning, parse_keep

SECONDS = 60
VIOLATIONS_SHOWN_MAX = 10
COLUMNS = 100
"""Where the output is a pipe or a file and so has no width of its own."""


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    given = parser.parse_args(words)
    try:
        _check(given)
        if given.seed is None:
            return _run_many(given, shlex.join(["python", "-m", "simulator", *words]))
        return _run_one(given)
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    text = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m simulator", description=text)
    parser.add_argument("seed", type=int, nargs="?", help="decides everything about the run")
    parser.add_argument(
        "--seconds", type=int, default=SECONDS, help="of virtual time, under faults"
    )
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="default: by the seed")
    many = parser.add_argument_group("many seeds")
    many.add_argument("--seeds", type=_seeds, metavar="FIRST:END", help="END is not run any more")
    many.add_argument("--jobs", type=int, help="processes; default: one for each core")
    many.add_argument("--markdown", type=Path, metavar="FILE", help="put the summary in there too")
    one = parser.add_argument_group("one seed, with less going wrong")
    one.add_argument("--shrink", action="store_true", help="find the least that still fails")
    one.add_argument("--keep", type=parse_keep, help="these scheduled faults, by number, or none")
    one.add_argument("--without", type=_names, default=(), help="these rates, by name")
    one.add_argument("--until", type=int, help="end all faults after so many seconds")
    one.add_argument("--sessions", type=int, help="so many sessions")
    return parser


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _check(given: argparse.Namespace) -> None:
    """Raises ValueError."""
    if (given.seed is None) == (given.seeds is None):
        raise ValueError("either one SEED or --seeds FIRST:END")
    for name in ("seconds", "until", "sessions", "jobs"):
        if (value := getattr(given, name)) is not None and value < 1:
            raise ValueError(f"--{name} must be positive")
    if given.seed is None:
        if not given.seeds:
            raise ValueError("--seeds FIRST:END has no seed: END must be above FIRST")
        if given.shrink or _thinning(given) != Thinning():
            raise ValueError("--shrink, --keep, --without, --until and --sessions are for one SEED")
        if given.markdown:
            check_place(given.markdown, report.SECTION)
    elif given.until is not None and given.until > given.seconds:
        raise ValueError("--until must not be above --seconds")


def _thinning(given: argparse.Namespace) -> Thinning:
    return Thinning(given.keep, given.without, given.until, given.sessions)


def _run_many(given: argparse.Namespace, command: str) -> int:
    console = Console()
    if not console.is_terminal:
        console = Console(width=COLUMNS)
    jobs = given.jobs or os.cpu_count() or 1
    work = Work(given.seconds, given.workload)
    return run_batch(given.seeds, work, jobs, console, given.markdown, command)


def _run_one(given: argparse.Namespace) -> int:
    began = time.perf_counter()
    result = simulate(given.seed, given.seconds, given.workload, thinning=_thinning(given))
    print(summary(result, time.perf_counter() - began))
    if result.violations and given.shrink:
        print("\n".join(shrink_seed(result).lines))
    return 1 if result.violations else 0


def summary(result: Result, real_seconds: float) -> str:
    """What happened, and if it was wrong, what and how to see it again."""
    ratio = result.counts["virtual seconds"] / real_seconds
    lines = [
        f"seed {result.seed}, workload {result.workload}, {result.seconds} s under faults",
        ", ".join(f"{count} {name}" for name, count in result.counts.items()),
        f"{result.scheduled_fault_count} faults were scheduled; all that went wrong: "
        + _listed(result.fault_counts),
        "fault points: "
        + _listed({name: it for name, it in result.fault_point_counts.items() if it}),
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
