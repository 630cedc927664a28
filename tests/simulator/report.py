"""A batch's summary on the screen and in a document, from one set of lines.

Owns: what is shown in which order. Must not import: any core.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from simulator.summary import Summary

SECTION: Final = "simulation"
"""Of the document: see `dodona_loadtest.harness.document`."""

Line = tuple[str, str]
Section = tuple[str, list[Line]]


def sections(summary: Summary) -> Iterator[Section]:
    """Everything there is to say."""
    yield "Runs", _runs(summary)
    yield "Goals", [(goal.name, _verdict(goal.wanted, goal.reached, goal.is_met))
                    for goal in summary.goals]  # fmt: skip
    yield "What callers did", _callers(summary)
    yield _counted("Scheduled faults", summary.scheduled_faults)
    yield _counted("Other faults", summary.other_faults)
    yield _counted("Fault points", dict(sorted((+summary.fault_points).items())))
    if summary.points_never_hit:
        yield "Points never hit", [(name, "0") for name in summary.points_never_hit]
    yield _counted("Workloads", dict(sorted(summary.workloads.items())))
    yield _counted("Acknowledgements", dict(sorted(summary.acknowledgements.items())))
    yield _counted("Requests and messages", dict(sorted(summary.messages.items())))
    if summary.failures:
        yield "Failures", [(it.command, str(it.violations[0])) for it in summary.failures]


def show(summary: Summary, console: Console) -> None:
    for title, lines in sections(summary):
        table = Table(box=SIMPLE, title=title, title_justify="left", show_header=False)
        table.add_column()
        table.add_column(justify="right" if title != "Failures" else "left")
        for line in lines:
            table.add_row(*line)
        if lines:
            console.print(table, markup=False)


def markdown(summary: Summary, command: str) -> str:
    """The section's text."""
    parts = [f"`{command}`"]
    for title, lines in sections(summary):
        if lines:
            parts += ["", f"**{title}**", "", "| | |", "|---|---:|"]
            parts += [f"| {name} | {value} |" for name, value in lines]
    return "\n".join(parts)


def _runs(summary: Summary) -> list[Line]:
    again = f"{summary.again_count}, {summary.again_elsewhere_count} of them in another process"
    lines = [
        ("seeds", f"{summary.seed_count:,} of {summary.seconds} s under faults"),
        ("simulated hours", f"{summary.virtual_seconds / 3600:.1f}"),
        ("real time", f"{summary.elapsed_seconds / 60:.1f} min"),
        ("virtual seconds each real one", f"{summary.ratio:.0f}, {summary.core_ratio:.0f} a core"),
        ("seeds run twice", again),
        ("scheduled faults", f"{sum(summary.scheduled_faults.values()):,}"),
        ("crashes", f"{summary.counts['crashes']:,}"),
    ]
    if summary.is_interrupted:
        lines.append(("ended early", "it was interrupted"))
    return lines


def _callers(summary: Summary) -> list[Line]:
    counts = summary.counts
    names = ("transactions", "commits asked for", "snapshots", "sessions killed")
    rated = {
        "committed": "committed",
        "conflicts": "conflicts",
        "ambiguous: told that the outcome is unknown": "told unknown",
        "ambiguous: gone before the answer": "gone while committing",
        "still unknown when the run ended": "unsure",
    }
    lines = [(name, f"{counts[name]:,}") for name in names]
    lines += [(name, f"{counts[key]:,} ({summary.share(key):.1%})") for name, key in rated.items()]
    return lines


def _counted(title: str, counts: Mapping[str, int]) -> Section:
    return title, [(name, f"{count:,}") for name, count in counts.items()]


def _verdict(wanted: str, reached: str, is_met: bool) -> str:
    return f"{reached} ({wanted}: {'met' if is_met else 'missed'})"
