"""Show the progress of long work: a bar on a terminal, nothing in a pipe."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import (
    Progress as Bars,
)
from rich.table import Table
from rich.text import Text

from dodona_local.progress import Progress

PIPE_WIDTH: Final = 120
"""The width in columns if the output is no terminal."""


class _Count(ProgressColumn):
    """The amount that is done: numbers of rows, or sizes in bytes."""

    _bytes = DownloadColumn()

    def render(self, task: Task) -> Text:
        if task.fields["unit"] == "bytes":
            return self._bytes.render(task)
        total = "" if task.total is None else f"/{task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{total} {task.fields['unit']}")


class Screen(Progress):
    """One bar for each step. Use it in a `with` block."""

    def __init__(self, console: Console | None = None) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), _Count(), TimeElapsedColumn())
        self._bars = Bars(*columns, console=console or Console(stderr=True), transient=True)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._bars.console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars.console.is_terminal:
            self._bars.stop()

    def begin(self, name: str, total: int | None, unit: str) -> None:
        self._task = self._bars.add_task(name, total=total, unit=unit)

    def advance(self, count: int) -> None:
        assert self._task is not None, "a step has begun"
        self._bars.advance(self._task, count)


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table to standard output. Long texts continue in the next line, except in the first
    column, which has names."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, no_wrap=not place, overflow="fold")
    for row in rows:
        table.add_row(*(Text(it) for it in row))
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(table)
