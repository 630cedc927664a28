"""What the hunts came to, as a table: for a terminal, and for the page of the documents.

Owns: the columns. Must not import: the chapters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from negative.bug import CheckedBug, Excuse, PlantedBug
from negative.hunt import Catch

SECTION = "planted bugs"
"""Of the page: see `dodona_loadtest.harness.document`."""
TEXT_LENGTH_MAX = 110


@dataclass(frozen=True, slots=True)
class Line:
    """One bug: what caught it, and what caught it where all commits are acknowledged when
    prepared (None: not asked, or not caught)."""

    bug: PlantedBug | CheckedBug
    drawn: Catch | None
    prepared: Catch | None = None
    is_prepared_asked: bool = False

    @property
    def is_caught(self) -> bool:
        return self.drawn is not None and not (self.is_prepared_asked and self.prepared is None)

    @property
    def cells(self) -> tuple[str, str, str, str, str, str]:
        """Item, title, seeds, seeds with `prepared`, what it broke, and how that reads."""
        item = "" if self.bug.item is None else str(self.bug.item)
        prepared = _seeds(self.prepared) if self.is_prepared_asked else ""
        by = "" if self.drawn is None else self.drawn.by
        text = "" if self.drawn is None else _short(self.drawn.text)
        return item, self.bug.title, self._drawn_seeds, prepared, by, text

    @property
    def _drawn_seeds(self) -> str:
        return "a test" if isinstance(self.bug, CheckedBug) and self.drawn else _seeds(self.drawn)


def _seeds(catch: Catch | None) -> str:
    return "not caught" if catch is None else str(catch.seed_count)


def _short(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"


HEADER = ("item", "planted bug", "seeds", "seeds, prepared", "broken", "the first violation")


def show(lines: Sequence[Line]) -> str:
    """For a terminal."""
    rows = [HEADER, *(line.cells for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def markdown(lines: Sequence[Line], excuses: Sequence[Excuse]) -> str:
    """For the page of the documents."""
    return f"{_table(lines)}\n\n{_list(excuses)}"


def _table(lines: Sequence[Line]) -> str:
    rows = [HEADER, ("---",) * len(HEADER)]
    for line in lines:
        *cells, text = (cell.replace("|", "\\|") for cell in line.cells)
        rows.append((*cells, f"`{text}`" if text else ""))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _list(excuses: Sequence[Excuse]) -> str:
    entries = [f"- {it.item}, {it.title}: {it.reason}." for it in excuses]
    return "\n".join(["What can't be planted, or not all of it:", "", *entries])
