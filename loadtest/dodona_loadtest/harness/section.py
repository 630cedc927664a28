"""A part of the report: a title, a table and notes, as a rich table and as Markdown.

Owns: how parts look. `report` and `study_report` own their contents.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report. Each of `groups` has lines of the table that belong together."""

    title: str
    preface: str
    columns: Sequence[str]
    text_columns: frozenset[str]
    """The columns that are set to the left."""
    groups: Sequence[Sequence[Sequence[str]]]
    notes: Sequence[str]

    def print(self, console: Console) -> None:
        """Print to a terminal."""
        console.print(f"\n[bold]{self.title}[/bold]")
        console.print(self.preface, style="dim", highlight=False)
        console.print(self._table())
        for note in self.notes:
            console.print(note, highlight=False, markup=False)

    def markdown(self) -> list[str]:
        """Return the lines for a file."""
        rule = ["---" if column in self.text_columns else "---:" for column in self.columns]
        rows = [self.columns, rule, *(row for group in self.groups for row in group)]
        table = [f"| {' | '.join(cells)} |" for cells in rows]
        notes = [f"- {note}" for note in self.notes]
        return [f"## {self.title}", "", self.preface, "", *table, "", *notes]

    def _table(self) -> Table:
        table = Table(box=SIMPLE)
        for column in self.columns:
            side = "left" if column in self.text_columns else "right"
            table.add_column(column, justify=side, no_wrap=True)  # type: ignore[arg-type]
        for group in self.groups:
            for row in group:
                table.add_row(*row)
            table.add_section()
        return table


def spread(values: Sequence[float], middle: float) -> str:
    """Return half the distance between the least and the greatest, as a share of the middle."""
    return f"±{(max(values) - min(values)) / 2 / middle:.0%}" if middle else "±0%"


def summary_of(count: int) -> str:
    """Return what a figure of so many rounds is: of two rounds, the median is the mean."""
    return {1: "of one round", 2: "means of two rounds"}.get(count, "medians over the rounds")


def ratio(ours: float, theirs: float) -> str:
    """Return our figure in terms of theirs."""
    if not theirs or math.isnan(theirs) or math.isnan(ours):
        return "unknown"
    return f"{ours / theirs:.2f}×"
