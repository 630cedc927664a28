"""What became of the mutants, as a table for the page and a list for who works them off.

Owns: the columns and the section's name. Must not import: any core.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mutation.equivalent import is_equivalent
from mutation.mutant import Mutant

SECTION = "mutants"
"""Of the page: see `dodona_loadtest.harness.document`."""
HEADER = ("module", "mutants", "killed", "equivalent", "survived", "not run")


@dataclass(frozen=True, slots=True)
class Line:
    """One module's mutants. `left_count` were not judged yet."""

    module: str
    mutants: Sequence[Mutant]
    left_count: int

    @property
    def survivors(self) -> list[Mutant]:
        """Those that are still to be worked off, by line."""
        alive = [it for it in self.mutants if it.fate == "survived" and not is_equivalent(it)]
        return sorted(alive, key=lambda it: (it.line, it.diff))

    @property
    def cells(self) -> tuple[str, int, int, int, int, int]:
        killed_count = sum(it.fate == "killed" for it in self.mutants)
        survivor_count = len(self.survivors)
        equivalent_count = len(self.mutants) - killed_count - survivor_count
        total_count = len(self.mutants) + self.left_count
        counts = (total_count, killed_count, equivalent_count, survivor_count, self.left_count)
        return self.module, *counts


def table(lines: Iterable[Line]) -> str:
    """In Markdown, which a terminal shows as well. A module of which no mutant was run is there
    too: a gap must be visible."""
    rows: list[tuple[str, ...]] = [HEADER, ("---", *["---:"] * (len(HEADER) - 1))]
    cells = [line.cells for line in lines]
    rows += [(f"`{first}`", *map(str, rest)) for first, *rest in cells]
    if cells:
        totals = [sum(column) for column in list(zip(*cells, strict=True))[1:]]
        rows.append(("together", *map(str, totals)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def survivors(lines: Iterable[Line]) -> str:
    """Each with its place and what it changes."""
    return "\n".join(
        f"{it.module}:{it.line} {it.operator.removeprefix('core/')}\n  "
        + "\n  ".join(it.diff or ("(nothing but layout)",))
        for line in lines
        for it in line.survivors
    )
