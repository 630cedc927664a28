"""The command that runs many seeds: how far it is, what failed and how little of it still fails.

Owns: what is printed meanwhile and at the end, and the exit status. Must not import: any core.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dodona_loadtest.harness.document import write_section
from simulator import report
from simulator.runner import Outcome, Work, run_seeds
from simulator.shrinking import shrink_seed
from simulator.simulation import Result
from simulator.summary import Summary

LINE_SECONDS: Final = 30
"""How often something is said where no bar can move."""
SHRUNK_MAX: Final = 3
"""So many failures are shrunk: the others are probably of the same kind."""

Watch = Callable[[Summary, Outcome], None]


def run_batch(
    seeds: Sequence[int],
    work: Work,
    worker_count: int,
    console: Console,
    document: Path | None,
    command: str,
) -> int:
    """Returns the exit status."""
    with _watching(len(seeds), console) as watch:
        summary = run_seeds(seeds, work, worker_count, watch)
    report.show(summary, console)
    if document is not None:
        write_section(document, report.SECTION, report.markdown(summary, command))
        _say(console, f"written to {document}")
    for result in [it for it in summary.failures if _can_be_shrunk(it)][:SHRUNK_MAX]:
        _say(console, f"\nshrinking {result.command}")
        _say(console, "\n".join(shrink_seed(result).lines))
    if summary.failures:
        return 1
    if summary.is_interrupted:
        return 130
    _say(console, "no violation")
    return 0


def _can_be_shrunk(result: Result) -> bool:
    """A run that differs from itself, or did not come to its end, can't be judged by its end."""
    return bool(result.digest) and any(it.promise != "DETERMINISM" for it in result.violations)


def _say(console: Console, text: str) -> None:
    """As it is: the commands are to be copied."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _watching(seed_count: int, console: Console) -> Iterator[Watch]:
    """A bar on a terminal, a line now and then elsewhere, and each failure when it happens."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("seeds"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=seed_count)
        said_at = float("-inf")

        def watch(summary: Summary, outcome: Outcome) -> None:
            nonlocal said_at
            progress.update(task, completed=summary.seed_count)
            if outcome.result.violations:
                _say(console, f"{outcome.result.violations[0]}\nreplay: {outcome.result.command}")
            if not console.is_terminal and time.monotonic() - said_at > LINE_SECONDS:
                said_at = time.monotonic()
                _say(console, f"{summary.seed_count} of {seed_count} seeds, {summary.ratio:.0f}:1")

        yield watch
