"""What a run came to: read from pytest's reports, told at the end of the output, kept in one file.

Owns: `Case`, the summary with the slowest tests and the minutes of each kind of test, and the JUnit
file of a whole run. A test that failed once and passed by itself has a `flakyFailure` there, which
is what Maven's reports call it.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from typing import Final
from xml.etree import ElementTree

SLOWEST_COUNT: Final = 20
ERROR_CHARACTERS_MAX: Final = 300
"""Of an error, in the summary."""
WHOLE_MODULE: Final = "collection skipped"
"""pytest's message about a module that skips itself. Its reason is in the text."""


class BrokenReport(Exception):
    """What pytest wrote can't be read."""


@dataclass(slots=True)
class Case:
    """One test of a run. `error` is the first line of why it failed, if it did; `is_unsteady` if it
    passed when it was run again."""

    name: str
    phase: str
    seconds: float
    error: str | None
    is_real: bool
    """Whether it has real processes."""
    element: ElementTree.Element
    is_unsteady: bool = False

    @property
    def has_passed(self) -> bool:
        return self.error is None and self.element.find("skipped") is None

    @property
    def skip_reason(self) -> str | None:
        """Why it was skipped, if it was."""
        skipped = self.element.find("skipped")
        if skipped is None or skipped.get("type") == "pytest.xfail":
            return None
        message = skipped.get("message") or "no reason"
        if message == WHOLE_MODULE:
            message = _reason_of_module(skipped.text or "") or message
        return message[:ERROR_CHARACTERS_MAX]

    @property
    def kind(self) -> str:
        """The folder below `tests`; for files there, their name. What failed before the first test
        has no file."""
        return self.name.partition("::")[0].split("/")[:2][-1]


def read_cases(report: Path, phase: str) -> list[Case]:
    """What pytest wrote of its tests, if it came to that. (A test that was interrupted has no
    name.)

    Raises:
        BrokenReport: it is cut off, as on a full disk.
    """
    if not report.exists():
        return []
    try:
        elements = ElementTree.parse(report).iter("testcase")
    except ElementTree.ParseError as error:
        free = shown_gib(disk_usage(report.parent).free)
        raise BrokenReport(
            f"the report of the phase {phase} is cut off ({error}): {free} are free on the disk of"
            f" {report.parent}"
        ) from error
    return [_case(it, phase) for it in elements if it.get("file")]


def _case(element: ElementTree.Element, phase: str) -> Case:
    failure = element.find("failure")
    if failure is None:
        failure = element.find("error")
    error = None
    if failure is not None:
        lines = (failure.get("message") or failure.text or "").strip().splitlines()
        error = (lines[0] if lines else "no message")[:ERROR_CHARACTERS_MAX]
    properties = {it.get("name"): it.get("value") for it in element.iter("property")}
    seconds = float(element.get("time", 0))
    return Case(_name_of(element), phase, seconds, error, "is_real" in properties, element)


def _reason_of_module(text: str) -> str | None:
    """From a tuple as Python writes it: the file, the line and the reason."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    if not isinstance(found, tuple) or not found or not isinstance(found[-1], str):
        return None
    return found[-1].removeprefix("Skipped: ")


def _name_of(element: ElementTree.Element) -> str:
    """As one gives it to pytest: of a file, the classes in it and a function."""
    names = element.get("classname", "")
    file = _file_of(names) or element.get("file", "")
    module = file.removesuffix(".py").replace("/", ".")
    classes = names.removeprefix(module).strip(".")
    return "::".join(it for it in (file, *classes.split("."), element.get("name", "")) if it)


def _file_of(names: str) -> str:
    """The module among these dotted names. (pytest names the file where a test's code is: of a
    state machine's test, one of Hypothesis.)"""
    parts = names.split(".")
    files = ("/".join(parts[:end]) + ".py" for end in range(len(parts), 0, -1))
    return next((it for it in files if Path(it).is_file()), "")


def shown_gib(count: int) -> str:
    """Bytes, for people."""
    return f"{count / 2**30:.1f} GiB"


def slowest(cases: Iterable[Case]) -> list[str]:
    """Lines about the tests that took longest."""
    found = sorted(cases, key=lambda it: -it.seconds)[:SLOWEST_COUNT]
    return ["", "slowest tests:", *(f"  {it.seconds:6.1f} s  {it.name}" for it in found)]


def minutes_by_kind(cases: Iterable[Case]) -> list[str]:
    """Lines about how much time tests of each folder took; side by side, so more than went by."""
    seconds: defaultdict[str, float] = defaultdict(float)
    counts: defaultdict[str, int] = defaultdict(int)
    for case in cases:
        seconds[case.kind] += case.seconds
        counts[case.kind] += 1
    kinds = sorted(seconds, key=lambda it: -seconds[it])
    lines = [f"  {seconds[it] / 60:6.1f} min  {counts[it]:6} tests  {it}" for it in kinds]
    return ["", "time of the tests of each kind:", *lines]


def skips(cases: Iterable[Case]) -> list[str]:
    """Lines about what was left out, and why."""
    counts = Counter(it.skip_reason for it in cases if it.skip_reason is not None)
    return [
        f"SKIPPED {count} {'test' if count == 1 else 'tests'}: {reason}"
        for reason, count in counts.most_common()
    ]


def shown_count(cases: Sequence[Case]) -> str:
    """How many tests there were, and how many of them did not run."""
    skipped_count = sum(it.skip_reason is not None for it in cases)
    return f"{len(cases)} tests" + (f", {skipped_count} of them SKIPPED," if skipped_count else "")


def failures(cases: Sequence[Case]) -> list[str]:
    """Lines about what failed, and what passed by itself afterwards."""
    unsteady = [it for it in cases if it.is_unsteady]
    failed = [it for it in cases if it.error is not None and not it.is_unsteady]
    return [
        *(f"UNSTEADY {it.name} ({it.phase}): {it.error}" for it in unsteady),
        *(f"FAILED {it.name} ({it.phase})" for it in failed),
    ]


def write_report(file: Path, cases: Sequence[Case]) -> None:
    """One JUnit file of all phases."""
    root = ElementTree.Element("testsuites")
    phases: dict[str, ElementTree.Element] = {}
    for case in cases:
        suite = phases.get(case.phase)
        if suite is None:
            suite = ElementTree.SubElement(root, "testsuite", name=case.phase)
            phases[case.phase] = suite
        if case.is_unsteady:
            for it in (*case.element.iter("failure"), *case.element.iter("error")):
                it.tag = "flakyFailure"
        suite.append(case.element)
    for suite in phases.values():
        suite.set("tests", str(len(suite)))
        for counted, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(counted, str(sum(it.find(tag) is not None for it in suite)))
    file.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(file, "utf-8", xml_declaration=True)
