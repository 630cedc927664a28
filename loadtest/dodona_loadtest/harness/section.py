"""A part of the report: a title, a table and notes, as a rich table and as Markdown.

Owns: how parts look. What they say is `report`'s and `study_report`'s.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Section:
    """`groups` are the table's lines, those that belong together in one."""

    title: str
    preface: str
    columns: Sequence[str]
    text_columns: frozenset[str]
    """Those set to the left."""
    groups: Sequence[Sequence[Sequence[str]]]
    notes: Sequence[str]

    def print(self, console: Console) -> None:
        """To a terminal."""
        console.print(f"\n[bold]{self.title}[/bold]")
        console.print(self.preface, style="dim", highlight=False)
        console.print(self._table())
        for note in self.notes:
            console.print(note, highlight=False, markup=False)

    def markdown(self) -> list[str]:
        """To a file: its lines."""
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
    """Half the distance between the least and the greatest, as a share of the middle."""
    return f"±{(max(values) - min(values)) / 2 / middle:.0%}" if middle else "±0%"


def summary_of(count: int) -> str:
    """What a figure is of so many rounds: of two the median is their mean."""
    return {1: "of one round", 2: "means of two rounds"}.get(count, "medians over the rounds")


def ratio(ours: float, theirs: float) -> str:
    """Ours in terms of theirs."""
    if not theirs or math.isnan(theirs) or math.isnan(ours):
        return "unknown"
    return f"{ours / theirs:.2f}×"
