"""Pictures of a run: small multiples of horizontal bars, one PNG for each row and study.

Owns: how they look. Dodona has one colour in all of them, and its peers are muted. The thin line is
the least to the greatest round, the tick behind a bar its p99. Drawn without a screen.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from dodona_loadtest.harness.durability import SYNCED, durability_note
from dodona_loadtest.harness.panels import Bar, Panel, panels_of
from dodona_loadtest.harness.recorded import Recorded, RecordedRow, RecordedStudy

DODONA: Final = "#0b6e6e"
PEERS: Final = ("#a9b4c2", "#c9bfae", "#b5c0ac", "#c6b1b8", "#aab9bd", "#bdb5cc")
INK: Final = "#2b2f36"
FAINT: Final = "#7b828c"
COLOURS_MAX: Final = 48
COLUMNS_MAX: Final = 4
STUDY_COLUMNS: Final = 3
WIDTH_INCHES: Final = 11.0
BAR_INCHES: Final = 0.27
PANEL_INCHES: Final = 0.95
"""Besides its bars."""
HEAD_INCHES: Final = 0.75
FOOT_INCHES: Final = 0.5
PIXELS_PER_INCH: Final = 140
TAIL_MAX: Final = 3.0
"""A p99 beyond so many times the largest bar is drawn at the edge."""
FACTS_SHOWN: Final = {
    "date": "{}",
    "processor": "{}",
    "memory": "{}",
    "pinning": "pinning: {}",
    "rounds": "{} rounds",
}


def draw_all(recorded: Recorded, folder: Path) -> list[Path]:
    """A PNG for each row and study that has figures, named after it. → the files."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = dict(recorded.facts)
    shown = [text.format(_short(facts[it])) for it, text in FACTS_SHOWN.items() if it in facts]
    foot = " · ".join(shown)
    return [
        _draw(result, foot, folder / f"{result.name}.png")
        for result in recorded.results
        if panels_of(result)
    ]


def _short(fact: str) -> str:
    """Of a fact what stands before its explanation."""
    return fact.partition(" (")[0].partition(";")[0].partition(", each")[0]


def _draw(result: RecordedRow | RecordedStudy, foot: str, path: Path) -> Path:
    panels = panels_of(result)
    columns = _columns(result, panels)
    lines = -(-len(panels) // columns)
    bars_max = max(len(panel.bars) for panel in panels)
    height = HEAD_INCHES + FOOT_INCHES + lines * (PANEL_INCHES + BAR_INCHES * bars_max)
    figure = Figure(figsize=(WIDTH_INCHES, height), dpi=PIXELS_PER_INCH, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(lines, columns, squeeze=False)
    colours = _colours(result)
    for place, axis in enumerate(axes.flat):
        if place < len(panels):
            _draw_panel(axis, panels[place], colours, bars_max, is_first=place % columns == 0)
        else:
            axis.set_visible(False)
    _write_round_it(figure, result, foot, height)
    canvas.draw()  # type: ignore[no-untyped-call]
    # A few colours do for bars and letters, and make the file a third as large.
    pixels = numpy.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    image = Image.fromarray(pixels).convert("RGB")
    image.quantize(COLOURS_MAX, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


def _columns(result: RecordedRow | RecordedStudy, panels: Sequence[Panel]) -> int:
    """Of a row rates stand above latencies."""
    if isinstance(result, RecordedRow):
        return min(COLUMNS_MAX, len(panels) // 2)
    return 2 if len(panels) in (2, 4) else min(STUDY_COLUMNS, len(panels))


def _colours(result: RecordedRow | RecordedStudy) -> dict[str, str]:
    first, *others = result.durability
    colours = {name: PEERS[place % len(PEERS)] for place, name in enumerate(others)}
    return {first: DODONA} | colours


def _draw_panel(
    axis: Any, panel: Panel, colours: dict[str, str], bars_max: int, *, is_first: bool
) -> None:
    largest = max(bar.high for bar in panel.bars) or 1.0
    reach = max(largest, min(TAIL_MAX * largest, max(bar.p99 or 0.0 for bar in panel.bars)))
    for place, bar in enumerate(panel.bars):
        _draw_bar(axis, place, bar, colours[bar.contender], reach)
    axis.set_xlim(0, reach * 1.42)
    axis.set_ylim(bars_max - 0.4, -0.6)
    names = [bar.contender for bar in panel.bars]
    axis.set_yticks(range(len(names)), names, fontsize=8, color=INK)
    for name, label in zip(names, axis.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if colours[name] == DODONA else "normal")
    axis.set_xticks([])
    axis.tick_params(length=0)
    for side in ("top", "right", "bottom"):
        axis.spines[side].set_visible(False)
    axis.spines["left"].set_color("#d5d9de")
    axis.spines["left"].set_bounds(-0.5, len(names) - 0.5)
    arrow = "more is better" if panel.is_more_better else "less is better"
    axis.set_title(panel.title, loc="left", fontsize=9, color=INK, fontweight="bold", pad=14)
    unit = f"{panel.unit}, {arrow}" if is_first else panel.unit
    axis.text(0, 1.02, unit, transform=axis.transAxes, fontsize=7.5, color=FAINT, va="bottom")


def _draw_bar(axis: Any, place: int, bar: Bar, colour: str, reach: float) -> None:
    axis.barh(place, bar.value, height=0.62, color=colour, linewidth=0)
    axis.plot([bar.low, bar.high], [place, place], color=INK, linewidth=0.9, alpha=0.7)
    end = bar.high
    if bar.p99 is not None:
        tail = min(bar.p99, reach)
        height = 0.3 if tail == bar.p99 else 0.12  # it goes on beyond the edge
        axis.plot([tail, tail], [place - height, place + height], color=colour, linewidth=2.2)
        axis.plot([bar.value, tail], [place, place], color=colour, linewidth=0.8)
        end = max(end, tail)
    text = short_number(bar.value)
    if bar.p99 is not None:
        text += f"  (p99 {short_number(bar.p99)})"
    axis.text(end + reach * 0.02, place, text, va="center", fontsize=7.5, color=INK)


def _write_round_it(
    figure: Any, result: RecordedRow | RecordedStudy, foot: str, height: float
) -> None:
    left = 0.012
    head = {"fontsize": 12, "color": INK, "fontweight": "bold", "va": "center"}
    figure.text(left, 1 - 0.24 / height, result.title, **head)
    note = durability_note(result.durability.items())
    if set(result.durability.values()) == {SYNCED}:
        note = f"durability: {SYNCED}"
    how = "bars: medians of the rounds; lines: least to greatest round; ticks: p99"
    figure.text(left, 0.30 / height, f"{note}  ·  {how}", fontsize=7.5, color=FAINT, va="center")
    figure.text(left, 0.13 / height, foot, fontsize=7.5, color=FAINT, va="center")
    figure.tight_layout(
        rect=(0, FOOT_INCHES / height, 1, 1 - HEAD_INCHES * 0.6 / height), h_pad=1.6, w_pad=2.0
    )


def short_number(value: float) -> str:
    """Three digits that count, with a letter for the thousands."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g} {letter}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
