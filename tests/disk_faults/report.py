"""What came of a campaign, for the screen and for a document.

Owns: what is shown in which order.
"""

from collections.abc import Sequence
from typing import Final, get_args

from disk_faults.campaign import Tally
from disk_faults.cuts import Kind
from disk_faults.damage import DAMAGES
from disk_faults.verdict import Outcome
from disk_faults.workloads import WORKLOADS

SECTION: Final = "crash images"
"""Of the document: see `dodona_loadtest.harness.document`."""

Row = list[str | int]

_KINDS: Final = (*get_args(Kind), "after an error", "damaged")


def markdown(tally: Tally, command: str, seed_count: int, seconds: float) -> str:
    """The section's text."""
    count = tally.image_count
    names = [workload.name for workload in WORKLOADS]
    images: list[Row] = [[it, *(tally.images[it, kind] for kind in _KINDS)] for it in names]
    total: Row = ["all", *(sum(tally.images[it, kind] for it in names) for kind in _KINDS)]
    outcomes = get_args(Outcome)
    damage: list[Row] = [[it, *(tally.damage[it, each] for each in outcomes)] for it in DAMAGES]
    rate = f"{count:,} images in {seconds:.0f} s, {count / seconds:.0f} a second"
    lines = [
        f"`{command}`: {rate}, of {seed_count} seeds.",
        "",
        *_table(["found by a restart", *_KINDS], [*images, total]),
        "",
        *_table(["damage", *outcomes], damage),
        "",
        *(f"- {number:,} {name}" for name, number in sorted(tally.counts.items())),
        f"- {len(tally.problems)} broken promises",
    ]
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[Row]) -> list[str]:
    lines = [" | ".join(head), " | ".join(["---", *["---:"] * (len(head) - 1)])]
    lines += [" | ".join(f"{it:,}" if isinstance(it, int) else it for it in row) for row in rows]
    return [f"| {line} |" for line in lines]
