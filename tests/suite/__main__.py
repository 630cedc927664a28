"""`python -m suite`: the tests of a level, and what is to be checked beside them.

Words that are not known here go to pytest, in every phase. Exits with 0 if all passed. A test that
is unsteady (see `again`) fails the level `all` only.
"""

import shlex
import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from suite import reports
from suite.again import run_again
from suite.levels import LEVELS
from suite.phases import FAILED, OK, Phase, Running, run_phases, shown_s, verdict
from suite.reports import Case

REPORT: Final = Path("test-results") / "junit.xml"


def main(words: Sequence[str]) -> int:
    """Returns the exit status: that of the first phase that failed."""
    parser = ArgumentParser(prog="suite", description=__doc__, allow_abbrev=False)
    parser.add_argument("--level", choices=LEVELS, default="test", help="which tests (test)")
    parser.add_argument("--beside", metavar="COMMAND", help="what else is to be checked meanwhile")
    chosen, others = parser.parse_known_args(words)
    began = time.monotonic()
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        beside = None
        if chosen.beside is not None:
            beside = Running(shlex.split(chosen.beside), folder / "beside.txt")
            stack.enter_context(beside)
        phases = run_phases(chosen.level, others, folder)
        run_again(phases, folder)
        is_beside_right = beside is None or ended(chosen.beside, beside)
    cases = [case for phase in phases for case in phase.cases]
    print("\n".join(summary(phases, cases)), flush=True)
    reports.write_report(REPORT, cases)
    if not is_beside_right:
        print(f"FAILED {chosen.beside}")
    elapsed = shown_s(time.monotonic() - began)
    print(f"{reports.shown_count(cases)} in {elapsed}; report: {REPORT}", flush=True)
    are_unsteady = any(it.is_unsteady for it in cases)
    status = verdict([phase.status for phase in phases])
    if status == OK and (not is_beside_right or (chosen.level == "all" and are_unsteady)):
        return FAILED
    return status


def ended(command: str, beside: Running) -> bool:
    """Wait for what ran beside the tests. → whether it has passed."""
    print(f"\nbeside the tests: {command}", flush=True)
    beside.hurry()
    return beside.end() == OK


def summary(phases: Sequence[Phase], cases: Sequence[Case]) -> list[str]:
    """Lines for the end of a long output."""
    lines = [*reports.minutes_by_kind(cases), *reports.slowest(cases), ""]
    outcome = [*reports.skips(cases), *reports.failures(cases)]
    return [*lines, *(phase.line for phase in phases), *outcome]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
