"""What searches and walks came to, as tables: for a terminal, and for the page.

Owns: the columns, and how rows of the page are replaced. Must not import: configurations, planted
bugs.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from documents.tables import table
from dodona_loadtest.harness.document import write_section
from replication_model.explorer import Found

CONFIGURATIONS_SECTION: Final = "model configurations"
PLANTED_SECTION: Final = "model planted bugs"
"""Of the page: see `dodona_loadtest.harness.document`."""
CONFIGURATIONS_HEADER: Final = ("configuration", "states", "steps", "depth", "seconds")
PLANTED_HEADER: Final = ("rule", "planted bug", "trace", "states", "what it breaks")

Row = tuple[str, ...]


def configuration_row(found: Found, title: str) -> Row:
    """Title, states, steps, longest shortest path, processor seconds."""
    seconds = f"{found.seconds:.0f}" if found.seconds >= 1 else f"{found.seconds:.1f}"
    counts = (found.state_count, found.step_count, found.depth)
    return (title, *(f"{it:,}" for it in counts), seconds)


def planted_row(rule: str, title: str, found: Found) -> Row:
    """Rule, title, steps of the shortest trace, states until then, the violation."""
    count = str(len(found.trace)) if found.violation else "not found"
    return (rule, title, count, f"{found.state_count:,}", f"`{found.violation}`")


def show_rows(header: Row, rows: Sequence[Row]) -> str:
    """For a terminal."""
    widths = [max(len(row[at]) for row in (header, *rows)) for at in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    )


def show_trace(found: Found) -> str:
    """Return the steps, one on a line, and what they break."""
    lines = [f"{number:3}  {text}" for number, text in enumerate(found.trace, 1)]
    return "\n".join([*lines, f"     {found.violation}"])


def write_rows(
    page: Path, section: str, header: Row, rows: Iterable[Row], order: Sequence[str]
) -> None:
    """Write rows into a table of the page, in this order of titles. Rows of other runs stay."""
    title = header.index("planted bug") if "planted bug" in header else 0
    rows_by_title = {row[title]: row for row in (*rows_on(page, section), *rows)}
    kept = [rows_by_title[it] for it in order if it in rows_by_title]
    write_section(page, section, table(header, kept))


def rows_on(page: Path, section: str) -> list[Row]:
    """Return the rows of a table that a page has, without its header."""
    text = page.read_text("utf-8")
    found = re.search(rf"<!-- {section}: begin -->\n(.*?)<!-- {section}: end -->", text, re.DOTALL)
    lines = [it for it in (found[1] if found else "").splitlines() if it.startswith("|")]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines[2:]]
