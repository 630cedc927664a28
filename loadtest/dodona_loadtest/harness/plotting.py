"""One panel of a picture: bars that begin at zero, or points on a logarithmic scale.

Owns: how a panel's figures become lengths. Nothing is cut off at an edge: an axis is long enough
for its largest figure and the text behind it. A p50 and its p99 are often tens of times apart. So
both are points on a scale of their own, and all else are bars.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from dodona_loadtest.harness.panels import Bar, Panel
from dodona_loadtest.harness.text_width import width_inches

DODONA: Final = "#0b6e6e"
INK: Final = "#2b2f36"
FAINT: Final = "#7b828c"
GRID: Final = "#e6e9ed"
AXIS: Final = "#d5d9de"
NAME_POINTS: Final = 8.0
VALUE_POINTS: Final = 7.5
SCALE_POINTS: Final = 6.5
GAP_INCHES: Final = 0.07
"""Space between a figure and the text behind it."""
DECADES_MIN: Final = 1.0


def draw_panel(
    axis: Any, panel: Panel, colours: dict[str, str], inches: float, *, has_names: bool
) -> None:
    """Draw a panel into an axis of that width."""
    draw, set_scale = (_draw_points, _set_log) if panel.has_points else (_draw_bar, _set_linear)
    set_scale(axis, panel, inches)
    for place, bar in enumerate(panel.bars):
        colour = colours[bar.contender]
        draw(axis, place, bar, colour)
        axis.annotate(
            value_text(bar),
            (_end(bar), place),
            xytext=(GAP_INCHES * 72, 0),
            textcoords="offset points",
            va="center",
            fontsize=VALUE_POINTS,
            color=INK,
            fontweight=_weight(colour),
        )
    _dress(axis, panel, colours, has_names=has_names)


def value_text(bar: Bar) -> str:
    """Return the text behind a bar."""
    text = short_number(bar.value)
    return text if bar.p99 is None else f"{text}  (p99 {short_number(bar.p99)})"


def short_number(value: float) -> str:
    """Return a number with three digits that count, and a letter for the thousands."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g} {letter}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _end(bar: Bar) -> float:
    """Return the largest value that is drawn of a bar."""
    return max(bar.high, bar.value, bar.p99 or 0.0)


def _weight(colour: str) -> str:
    return "bold" if colour == DODONA else "normal"


def _reach(panel: Panel, inches: float, length_of: Callable[[Bar], float]) -> float:
    """Return how long the axis must be for each bar and the text behind it."""
    reach = 0.0
    for bar in panel.bars:
        text_inches = width_inches(value_text(bar), VALUE_POINTS, is_bold=True) + 2 * GAP_INCHES
        reach = max(reach, length_of(bar) * inches / max(inches - text_inches, 0.1))
    return reach or 1.0


def _set_linear(axis: Any, panel: Panel, inches: float) -> None:
    axis.set_xlim(0, _reach(panel, inches, _end))
    axis.set_xticks([])


def _set_log(axis: Any, panel: Panel, inches: float) -> None:
    ends = [_end(bar) for bar in panel.bars]
    least = min(min(bar.low, bar.value) for bar in panel.bars)
    first = math.log10(least) - 0.15
    first = min(first, math.log10(max(ends)) - DECADES_MIN)
    decades = _reach(panel, inches, lambda bar: math.log10(_end(bar)) - first)
    axis.set_xscale("log")
    axis.set_xlim(10**first, 10 ** (first + decades))
    ticks = _ticks(first, math.log10(max(ends)))
    axis.minorticks_off()
    axis.set_xticks(ticks, [f"{tick:,.10g}" for tick in ticks], fontsize=SCALE_POINTS, color=FAINT)
    axis.grid(axis="x", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)


def _ticks(first: float, last: float) -> Sequence[float]:
    """Return powers of ten, and the steps between if there are few of them."""
    powers = range(math.floor(first), math.ceil(last) + 1)
    steps = (1,) if last - first > 2 else (1, 3)
    found = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in found if first <= math.log10(tick) <= last]


def _draw_bar(axis: Any, place: int, bar: Bar, colour: str) -> None:
    axis.barh(place, bar.value, height=0.62, color=colour, linewidth=0)
    axis.plot([bar.low, bar.high], [place, place], color=INK, linewidth=0.9, alpha=0.7)


def _draw_points(axis: Any, place: int, bar: Bar, colour: str) -> None:
    axis.plot([bar.low, bar.high], [place, place], color=INK, linewidth=0.9, alpha=0.7, zorder=4)
    axis.plot([bar.value], [place], "o", color=colour, markersize=6.5, zorder=3)
    if bar.p99 is not None:
        axis.plot([bar.value, bar.p99], [place, place], color=colour, linewidth=1.4)
        ends = [place - 0.28, place + 0.28]
        axis.plot([bar.p99, bar.p99], ends, color=colour, linewidth=2.2, gid="p99")


def _dress(axis: Any, panel: Panel, colours: dict[str, str], *, has_names: bool) -> None:
    names = [bar.contender for bar in panel.bars]
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_yticks(
        range(len(names)),
        names if has_names else [""] * len(names),
        fontsize=NAME_POINTS,
        color=INK,
    )
    for name, label in zip(names, axis.get_yticklabels(), strict=True):
        label.set_fontweight(_weight(colours[name]))
    axis.tick_params(length=0)
    for side in ("top", "right", "bottom"):
        axis.spines[side].set_visible(False)
    axis.spines["left"].set_color(AXIS)
    axis.spines["left"].set_bounds(-0.5, len(names) - 0.5)
