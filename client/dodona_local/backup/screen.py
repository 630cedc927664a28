"""How a backup or a restore shows its progress: a bar on a terminal, nothing in a pipe."""

from types import TracebackType
from typing import Self

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
from rich.text import Text

from dodona_local.backup.streams import Progress


class _Count(ProgressColumn):
    """How much is done: rows by their number, bytes as such."""

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
