"""The report: rows, by number of callers, and the studies (see `study_report`).

Each peer's line shows Dodona in terms of this peer. A rate above 1× and a p50 below 1× are in
Dodona's favour.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from dodona_loadtest.harness.durability import durability_note
from dodona_loadtest.harness.row import Goal, Line, RowResult
from dodona_loadtest.harness.section import Section, ratio, spread
from dodona_loadtest.harness.study import StudyResult
from dodona_loadtest.harness.study_report import study_section

COLUMNS: Final = (
    "callers",
    "system",
    "per second",
    "p50 ms",
    "p99 ms",
    "client µs",
    "servers µs",
    "Dodona rate",
    "Dodona p50",
)
EXPLANATION: Final = (
    "± is half the distance between the least and the greatest round. The µs of clients and "
    "servers are processor time for each operation (none: what runs in the client has no server). "
    "The last columns say what Dodona has, in terms of each peer."
)


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report of a run of the benchmark."""

    facts: Sequence[tuple[str, str]]
    results: Sequence[RowResult | StudyResult]
    pictures: Path | None = None
    """The folder with a picture of each row and study, if they were drawn."""

    def print(self, console: Console) -> None:
        """Print to a terminal."""
        for name, value in self.facts:
            console.print(f"[bold]{name}[/bold]  {escape(value)}", highlight=False)
        for result in self.results:
            _section(result).print(console)
        console.print(f"\n{EXPLANATION}", style="dim")

    def markdown(self, folder: Path | None = None) -> str:
        """Return the report as Markdown for a file in that folder."""
        parts = ["# Results", "", *self._facts(), "", EXPLANATION]
        for result in self.results:
            parts += ["", *self._part(result, folder)]
        return "\n".join(parts).rstrip() + "\n"

    def section(self, folder: Path | None = None) -> str:
        """Return a part of a document in that folder. The document begins with facts of another
        run."""
        parts = []
        for result in self.results:
            parts += [*self._part(result, folder), ""]
        return "\n".join([*parts, "Of this run:", "", *self._facts()]) + "\n"

    def _part(self, result: RowResult | StudyResult, folder: Path | None) -> list[str]:
        """Return the part of one result, with its picture after the preface."""
        title, blank, preface, *rest = _section(result).markdown()
        if self.pictures is None or folder is None or not has_figures(result):
            return [title, blank, preface, *rest]
        item = result.study if isinstance(result, StudyResult) else result.row
        place = Path(os.path.relpath(self.pictures / f"{item.name}.png", folder)).as_posix()
        return [title, blank, preface, "", f"![{item.title}]({place})", *rest]

    def _facts(self) -> list[str]:
        return [f"- {name}: {value}" for name, value in self.facts]


def has_figures(result: RowResult | StudyResult) -> bool:
    """Return whether the result has any figures."""
    return bool(result.findings if isinstance(result, StudyResult) else result.lines)


def _section(result: RowResult | StudyResult) -> Section:
    if isinstance(result, StudyResult):
        return study_section(result)
    row = result.row
    groups = [list(lines) for _, lines in groupby(result.lines, lambda line: line.callers)]
    cells = [[_cells(result, line) for line in group] for group in groups]
    return Section(row.title, row.fairness, COLUMNS, frozenset({"system"}), cells, _notes(result))


def _cells(result: RowResult, line: Line) -> list[str]:
    return [
        f"{line.callers:,}",
        line.contender,
        f"{line.rate:,.0f} {spread(line.rates, line.rate)}",
        f"{line.latency_ms_p50:.3f}",
        f"{line.latency_ms_p99:.3f}",
        f"{line.client_cpu_us:.1f}",
        f"{line.servers_cpu_us:.1f}" if line.servers_cpu_us else "none",
        *_comparison(result, line),
    ]


def _dodona_line(result: RowResult, callers: int) -> Line | None:
    return _line(result, result.row.contenders[0].name, callers)


def _line(result: RowResult, name: str, callers: int) -> Line | None:
    found = [ln for ln in result.lines if ln.callers == callers and ln.contender == name]
    return found[0] if found else None


def _comparison(result: RowResult, line: Line) -> tuple[str, str]:
    """Return Dodona's rate and p50 in terms of this line's."""
    dodona = _dodona_line(result, line.callers)
    if dodona is None or dodona is line:
        return "", ""
    return ratio(dodona.rate, line.rate), ratio(dodona.latency_ms_p50, line.latency_ms_p50)


def _goal_notes(result: RowResult, goal: Goal) -> list[str]:
    line = _dodona_line(result, goal.callers)
    if line is None:
        return []
    caller = "1 caller" if goal.callers == 1 else f"{goal.callers:,} callers"
    notes = []
    if goal.rate_min is not None:
        outcome = "met" if line.rate >= goal.rate_min else "missed"
        notes.append(f"goal, {caller}: at least {goal.rate_min:,.0f} per second: {outcome}")
    if goal.latency_ms_p50_max is not None:
        outcome = "met" if line.latency_ms_p50 <= goal.latency_ms_p50_max else "missed"
        notes.append(f"goal, {caller}: p50 at most {goal.latency_ms_p50_max:g} ms: {outcome}")
    peer = _line(result, goal.not_below, goal.callers) if goal.not_below else None
    if peer is not None:
        outcome = "met" if line.rate >= goal.times * peer.rate else "missed"
        wanted = "not below" if goal.times == 1 else f"{goal.times:g} times"
        notes.append(f"goal, {caller}: {wanted} {peer.contender}: {outcome}")
    return notes


def _notes(result: RowResult) -> list[str]:
    """Return goals, versions, contenders that left the row, and failed operations."""
    notes = [note for goal in result.row.goals for note in _goal_notes(result, goal)]
    measured = [it for it in result.row.contenders if it.name in result.versions]
    if measured:
        notes.append(durability_note((it.name, it.durability) for it in measured))
    notes += [f"{name}: {version}" for name, version in result.versions.items()]
    notes += [f"{name} was not measured: {reason}" for name, reason in result.dropped.items()]
    notes += [
        f"{line.contender}, {line.callers:,} callers: {line.failures:,} operations failed "
        "and were not counted"
        for line in result.lines
        if line.failures
    ]
    return notes
