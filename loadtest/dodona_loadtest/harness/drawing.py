"""Pictures of a run: small multiples of bars and points, one PNG for each row and study.

Owns: the layout, in inches. Texts are measured first, so that everything has the room that it
needs. Dodona has one colour in all pictures, and its peers are muted. Needs no screen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from dodona_loadtest.harness.durability import SYNCED, durability_note
from dodona_loadtest.harness.panels import Panel, panels_of, rounds_of
from dodona_loadtest.harness.plotting import DODONA, FAINT, INK, NAME_POINTS, draw_panel
from dodona_loadtest.harness.recorded import Recorded, RecordedRow, RecordedStudy
from dodona_loadtest.harness.section import summary_of
from dodona_loadtest.harness.text_width import DPI, width_inches, wrap

PEERS: Final = ("#a9b4c2", "#c9bfae", "#b5c0ac", "#c6b1b8", "#aab9bd", "#bdb5cc")
COLOURS_MAX: Final = 48
COLUMNS_MAX: Final = 4
WIDTH_INCHES: Final = 11.0
MARGIN_INCHES: Final = 0.14
GUTTER_INCHES: Final = 0.3
"""Space between panels side by side."""
NAME_GAP_INCHES: Final = 0.1
BAR_INCHES: Final = 0.26
SCALE_INCHES: Final = 0.17
"""Space below a panel, for the numbers of its scale."""
AIR_INCHES: Final = 0.2
"""Space below each line of panels."""
TITLE_POINTS: Final = 12.0
PANEL_POINTS: Final = 9.0
SMALL_POINTS: Final = 7.5
LINE_HEIGHT: Final = 1.35 / 72
"""Inches of a line for each point of the letters' size."""
BETWEEN: Final = "  ·  "
FACTS_SHOWN: Final = {
    "date": "{}",
    "processor": "{}",
    "memory": "{}",
    "pinning": "pinning: {}",
    "rounds": "{} rounds",
}

Item = TypeVar("Item")


def draw_all(recorded: Recorded, folder: Path) -> list[Path]:
    """Draw a PNG for each row and study that has figures, named after it. Return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_save(figure, folder / f"{name}.png") for name, figure in figures_of(recorded)]


def figures_of(recorded: Recorded) -> Iterator[tuple[str, Figure]]:
    """Return names and pictures of the rows and studies that have figures."""
    facts = dict(recorded.facts)
    shown = [text.format(_short(facts[it])) for it, text in FACTS_SHOWN.items() if it in facts]
    for result in recorded.results:
        if panels := panels_of(result):
            yield result.name, _draw(result, panels, BETWEEN.join(shown))


def _short(fact: str) -> str:
    """Return the part of a fact that comes before its explanation."""
    return fact.partition(" (")[0].partition(";")[0].partition(", each")[0]


@dataclass(frozen=True, slots=True)
class _Line:
    """Panels side by side, and the lines of their titles."""

    panels: Sequence[Panel]
    titles: Sequence[Sequence[str]]

    @property
    def head_inches(self) -> float:
        title_lines = max(len(title) for title in self.titles)
        return (title_lines * PANEL_POINTS + SMALL_POINTS) * LINE_HEIGHT + 0.05

    @property
    def body_inches(self) -> float:
        return BAR_INCHES * max(len(panel.bars) for panel in self.panels)

    @property
    def height_inches(self) -> float:
        scale = SCALE_INCHES if any(panel.has_points for panel in self.panels) else 0.0
        return self.head_inches + self.body_inches + scale + AIR_INCHES


@dataclass(frozen=True, slots=True)
class _Grid:
    """The places of panels across the page."""

    columns: int
    names_inches: float
    """Room for the contenders' names, left of a panel that has them."""
    has_shared_names: bool
    """Whether the names of the first column are those of its neighbours, too."""

    @property
    def panel_inches(self) -> float:
        named = 1 if self.has_shared_names else self.columns
        used = 2 * MARGIN_INCHES + (self.columns - 1) * GUTTER_INCHES + named * self.names_inches
        return (WIDTH_INCHES - used) / self.columns

    def has_names(self, column: int) -> bool:
        return column == 0 or not self.has_shared_names

    def left_inches(self, column: int) -> float:
        """Return where the axis of a panel begins."""
        named = 1 if self.has_shared_names else column + 1
        before = column * (self.panel_inches + GUTTER_INCHES)
        return MARGIN_INCHES + named * self.names_inches + before


def _draw(result: RecordedRow | RecordedStudy, panels: Sequence[Panel], foot: str) -> Figure:
    grid = _grid(result, panels)
    lines = [_line(grid, side_by_side) for side_by_side in _in_lines(panels, grid.columns)]
    title = wrap(result.title, WIDTH_INCHES - 2 * MARGIN_INCHES, TITLE_POINTS, is_bold=True)
    foot_lines = [ln for text in (_legend(result, panels), foot) for ln in _wrapped_small(text)]
    head = len(title) * TITLE_POINTS * LINE_HEIGHT + 0.25
    bottom = len(foot_lines) * SMALL_POINTS * LINE_HEIGHT + 0.1
    height = head + sum(line.height_inches for line in lines) + bottom
    figure = Figure(figsize=(WIDTH_INCHES, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _write(figure, MARGIN_INCHES, 0.1, title, TITLE_POINTS, INK, is_bold=True)
    _write(figure, MARGIN_INCHES, height - bottom, foot_lines, SMALL_POINTS, FAINT)
    top, colours = head, _colours(result)
    for line in lines:
        _draw_line(figure, grid, line, top, colours)
        top += line.height_inches
    return figure


def _draw_line(
    figure: Figure, grid: _Grid, line: _Line, top: float, colours: dict[str, str]
) -> None:
    height = figure.get_size_inches()[1]
    for column, (panel, title) in enumerate(zip(line.panels, line.titles, strict=True)):
        left, below = grid.left_inches(column), top + len(title) * PANEL_POINTS * LINE_HEIGHT
        _write(figure, left, top, title, PANEL_POINTS, INK, is_bold=True)
        _write(figure, left, below, [panel.words], SMALL_POINTS, FAINT)
        tall = BAR_INCHES * len(panel.bars)
        up = height - top - line.head_inches - tall
        axis = figure.add_axes(
            (left / WIDTH_INCHES, up / height, grid.panel_inches / WIDTH_INCHES, tall / height)
        )
        has_names = grid.has_names(column)
        draw_panel(axis, panel, colours, grid.panel_inches, has_names=has_names)


def _grid(result: RecordedRow | RecordedStudy, panels: Sequence[Panel]) -> _Grid:
    columns = _columns(result, panels)
    names = [[bar.contender for bar in panel.bars] for panel in panels]
    is_shared = all(
        others == together[0] for together in _in_lines(names, columns) for others in together
    )
    widest = max(width_inches(name, NAME_POINTS, is_bold=True) for all_ in names for name in all_)
    return _Grid(columns, widest + NAME_GAP_INCHES, is_shared)


def _columns(result: RecordedRow | RecordedStudy, panels: Sequence[Panel]) -> int:
    """Return the number of columns. In a row, rates are above latencies, or beside them if there
    are only two panels."""
    if isinstance(result, RecordedStudy):
        return min(result.columns, len(panels))
    return min(COLUMNS_MAX, max(2, len(panels) // 2))


def _in_lines(items: Sequence[Item], columns: int) -> list[Sequence[Item]]:
    return [items[start : start + columns] for start in range(0, len(items), columns)]


def _line(grid: _Grid, panels: Sequence[Panel]) -> _Line:
    titles = [wrap(it.title, grid.panel_inches, PANEL_POINTS, is_bold=True) for it in panels]
    return _Line(panels, titles)


def _colours(result: RecordedRow | RecordedStudy) -> dict[str, str]:
    first, *others = result.durability
    colours = {name: PEERS[place % len(PEERS)] for place, name in enumerate(others)}
    return {first: DODONA} | colours


def _legend(result: RecordedRow | RecordedStudy, panels: Sequence[Panel]) -> str:
    note = durability_note(result.durability.items())
    if set(result.durability.values()) == {SYNCED}:
        note = f"durability: {SYNCED}"
    parts = [note, f"figures: {summary_of(rounds_of(result))}", "lines: least to greatest round"]
    if any(panel.has_points for panel in panels):
        parts.append("points: p50, ticks: p99")
    return BETWEEN.join(parts)


def _wrapped_small(text: str) -> list[str]:
    """Break a text between its parts, and within parts that are too long."""
    inches = WIDTH_INCHES - 2 * MARGIN_INCHES
    lines = wrap(text, inches, SMALL_POINTS, between=BETWEEN)
    return [part for line in lines for part in wrap(line, inches, SMALL_POINTS)]


def _write(
    figure: Figure,
    left: float,
    top: float,
    lines: Sequence[str],
    points: float,
    colour: str,
    *,
    is_bold: bool = False,
) -> None:
    """Write lines from a place on. It is in inches from the figure's left and upper edge."""
    height = figure.get_size_inches()[1]
    weight = "bold" if is_bold else "normal"
    for number, line in enumerate(lines):
        down = top + (number + 0.5) * points * LINE_HEIGHT
        figure.text(
            left / WIDTH_INCHES,
            1 - down / height,
            line,
            fontsize=points,
            color=colour,
            fontweight=weight,
            va="center",
        )


def _save(figure: Figure, path: Path) -> Path:
    canvas: Any = figure.canvas
    canvas.draw()
    # A few colours are enough for bars and letters, and make the file a third as large.
    image = Image.fromarray(numpy.asarray(canvas.buffer_rgba())).convert("RGB")
    image.quantize(COLOURS_MAX, dither=Image.Dither.NONE).save(path, optimize=True)
    return path
