"""Print the demonstration: headings, live bars and tables, or plain lines in a pipe.

Owns: the form of every text that the demonstration prints. On a terminal a bar moves. In a pipe or
a log the same step is one line at its end, so that nothing is repeated.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

PIPE_WIDTH: Final = 100
"""The width in columns if the output is no terminal."""


class Bar:
    """A step under way: `count` of `total`, the rate so far, and a note. Usable by any thread."""

    def __init__(self, total: int, unit: str, progress: Progress | None, task: TaskID) -> None:
        self.total = total
        self.count = 0
        self._unit = unit
        self._progress = progress
        self._task = task
        self._began = time.monotonic()
        self._ended: float | None = None
        self._lock = threading.Lock()

    def advance(self, count: int = 1) -> None:
        with self._lock:
            self.count += count
            self._show()

    def set_count(self, count: int) -> None:
        with self._lock:
            self.count = count
            self._show()

    def restart_clock(self) -> None:
        """Measure the rate from now on: the time before was preparation."""
        self._began = time.monotonic()

    def stop_clock(self) -> None:
        self._ended = time.monotonic()

    @property
    def seconds(self) -> float:
        return max((self._ended or time.monotonic()) - self._began, 1e-6)

    @property
    def rate(self) -> str:
        return f"{self.count / self.seconds:,.0f} {self._unit}/s"

    def _show(self) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=self.count, rate=self.rate)


class Screen:
    """The output of the demonstration."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(highlight=False)
        if not console.is_terminal:
            console = Console(file=console.file, width=PIPE_WIDTH, highlight=False)
        self._console = console
        self._began = time.monotonic()

    def title(self, text: str) -> None:
        self._console.print(Text(text, style="bold"))

    def step(self, number: int, name: str) -> None:
        """Begin a step: all lines until the next step belong to it."""
        self._console.print()
        seconds = time.monotonic() - self._began
        heading = Text.assemble((f"{number}  {name}", "bold cyan"), (f"   {seconds:.1f} s", "dim"))
        self._console.print(heading)

    def line(self, text: str) -> None:
        self._console.print(Text(f"   {text}"), soft_wrap=True)

    def good(self, text: str) -> None:
        self._console.print(Text.assemble(("   ✓ ", "green"), text), soft_wrap=True)

    def bad(self, text: str) -> None:
        self._console.print(Text.assemble(("   ✗ ", "bold red"), text), soft_wrap=True)

    def verdict(self, text: str, is_right: bool) -> None:
        self._console.print()
        seconds = time.monotonic() - self._began
        style = "bold green" if is_right else "bold red"
        self._console.print(Text.assemble((text, style), (f"   {seconds:.1f} s", "dim")))

    @contextmanager
    def bar(self, name: str, total: int, unit: str) -> Iterator[Bar]:
        """Show a bar for the length of a `with` block. Lines may be printed meanwhile."""
        if not self._console.is_terminal:
            yield Bar(total, unit, None, TaskID(0))
            return
        columns = (
            TextColumn("   {task.description}"),
            BarColumn(bar_width=40),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("[cyan]{task.fields[rate]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(name, total=total, rate="")
            yield Bar(total, unit, progress, task)

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> None:
        """Print a table whose first `texts` columns are words, and whose other columns are
        numbers."""
        table = Table(box=None, padding=(0, 2, 0, 1), header_style="bold")
        for index, heading in enumerate(headings):
            table.add_column(heading, justify="left" if index < texts else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)
