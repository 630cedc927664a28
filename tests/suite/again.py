"""Unsteady tests: those that fail beside others and pass by themselves.

Owns: which failed tests get a second run, and what it says of them. Only tests with real processes
do (see `real`): what else fails has no excuse, since nothing there depends on what the machine
does. If many fail, the machine is not the reason, and none is run again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from suite.phases import COMPLETE, OK, Phase, Running, pytest_command
from suite.reports import BrokenReport, read_cases

AGAIN_MAX: Final = 20


def run_again(phases: Sequence[Phase], folder: Path) -> None:
    """Marks those that pass as unsteady, and gives phases that had no other failures the status of
    success."""
    if any(it.status not in COMPLETE for it in phases):
        return
    failed = [case for phase in phases for case in phase.failures if case.is_real]
    if not 0 < len(failed) <= AGAIN_MAX:
        return
    passed = _passed(sorted({it.name for it in failed}), folder)
    for case in failed:
        case.is_unsteady = case.name in passed
    for phase in phases:
        if phase.failures and all(it.is_unsteady for it in phase.failures):
            phase.status = OK


def _passed(names: list[str], folder: Path) -> set[str]:
    """Of these tests, those that pass one by one with the machine for themselves."""
    print("\nonce more, by themselves: tests with real processes that failed", flush=True)
    report = folder / "again.xml"
    words = ("-p", "no:xdist", "-o", "junit_family=xunit1", f"--junitxml={report}")
    Running(pytest_command(*words, *names)).end()
    try:
        cases = read_cases(report, "again")
    except BrokenReport as error:
        print(f"\n{error}", flush=True)
        return set()
    return {it.name for it in cases} - {it.name for it in cases if not it.has_passed}
