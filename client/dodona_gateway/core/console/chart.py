"""Lay out small charts of rates over time: the place of each line and label. Pure.

Owns: the scales and the geometry, in the picture's own units. This module makes no markup. The
template draws the picture, and says the same in words and in a table.
"""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Final, NamedTuple

from dodona_gateway.core.console.history import Point
from dodona_gateway.core.console.shown import show_rate

WIDTH: Final = 360
HEIGHT: Final = 116
LEFT: Final = 46
RIGHT: Final = 6
TOP: Final = 8
BOTTOM: Final = 20
STEPS_S: Final = {60: 20, 300: 60, 900: 300}
"""The times that a chart may show, each with the distance between its labels. While there are few
points, a chart shows a shorter time."""
WINDOW_S: Final = max(STEPS_S)
LABELS_MAX: Final = 4
"""The largest number of labels on the time axis before now."""
_NICE: Final = (1.0, 2.0, 5.0, 10.0)


class Tick(NamedTuple):
    """A label, and its place on its axis."""

    at: float
    label: str


class TableRow(NamedTuple):
    """One minute of a chart, as a row of its table."""

    label: str
    mean: str
    most: str


class Chart(NamedTuple):
    """One chart. Paths are those of SVG."""

    name: str
    title: str
    unit: str
    last: str
    summary: str
    """The picture in one sentence."""
    line: str
    area: str
    end: tuple[float, float] | None
    """The place of the newest point; None if its rate is not known."""
    rates: tuple[Tick, ...]
    """The labels of the vertical axis."""
    times: tuple[Tick, ...]
    rows: tuple[TableRow, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    floor: int = HEIGHT - BOTTOM


def chart_of(name: str, title: str, unit: str, points: Sequence[Point]) -> Chart:
    """Return the chart of points, oldest first, which are no older than the longest window."""
    window_s = window_of(points)
    known = [it for it in points if it.rate is not None]
    top = nice_top(max([it.rate or 0.0 for it in known], default=0.0))
    pieces = _pieces(points, top, window_s)
    end = pieces[-1][-1] if pieces and points and points[-1].rate is not None else None
    return Chart(
        name,
        title,
        unit,
        show_rate(points[-1].rate if points else None),
        _summary(title, unit, known),
        " ".join([_line(it) for it in pieces]),
        " ".join([_area(it) for it in pieces]),
        end,
        tuple([Tick(_y(top * it, top), show_rate(top * it)) for it in (0.0, 0.5, 1.0)]),
        _times(window_s),
        _rows(known),
    )


def nice_top(most: float) -> float:
    """Return the end of an axis that includes `most`: 1, 2 or 5 times a power of ten, at least
    1."""
    if most <= 1:
        return 1.0
    power = 10.0 ** floor(log10(most))
    return next(it * power for it in _NICE if it * power >= most)


def window_of(points: Sequence[Point]) -> int:
    """Return the shortest window that includes all points."""
    oldest_s = points[0].age_s if points else 0
    return next((it for it in STEPS_S if it >= oldest_s), WINDOW_S)


def _pieces(points: Sequence[Point], top: float, window_s: int) -> list[list[tuple[float, float]]]:
    """Return the pieces of the line, which is broken where no rate is known."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for it in points:
        if it.rate is not None:
            pieces[-1].append((_x(it.age_s, window_s), _y(it.rate, top)))
        elif pieces[-1]:
            pieces.append([])
    return [it for it in pieces if it]


def _x(age_s: float, window_s: int) -> float:
    share = min(max(age_s, 0), window_s) / window_s
    return round(LEFT + (WIDTH - RIGHT - LEFT) * (1 - share), 1)


def _y(rate: float, top: float) -> float:
    return round(TOP + (HEIGHT - BOTTOM - TOP) * (1 - rate / top), 1)


def _line(piece: Sequence[tuple[float, float]]) -> str:
    if len(piece) == 1:
        ((x, y),) = piece
        return f"M{x - 1:g} {y:g}H{x + 1:g}"
    return "M" + "L".join([f"{x:g} {y:g}" for x, y in piece])


def _area(piece: Sequence[tuple[float, float]]) -> str:
    below = HEIGHT - BOTTOM
    path = "L".join([f"{x:g} {y:g}" for x, y in piece])
    return f"M{piece[0][0]:g} {below}L{path}L{piece[-1][0]:g} {below}Z"


def _times(window_s: int) -> tuple[Tick, ...]:
    ages_s = list(range(window_s, 0, -STEPS_S[window_s]))
    if len(ages_s) > LABELS_MAX:  # the second would overlap the first, which begins at the edge
        del ages_s[1]
    return (*[Tick(_x(it, window_s), _ago(it)) for it in ages_s], Tick(_x(0, window_s), "now"))


def _ago(age_s: int) -> str:
    return f"-{age_s} s" if age_s % 60 else f"-{age_s // 60} min"


def _summary(title: str, unit: str, known: Sequence[Point]) -> str:
    if not known:
        return f"{title}: nothing is known yet."
    last, mean, most = (show_rate(it) for it in (known[-1].rate, _mean(known), _most(known)))
    minutes = ceil(known[0].age_s / 60) or 1
    return (
        f"{title}, {unit}: {last} now, {mean} on average and {most} at most in the last "
        f"{minutes} min."
    )


def _rows(known: Sequence[Point]) -> tuple[TableRow, ...]:
    """Return one row for each minute, the newest first."""
    by_minute: dict[int, list[Point]] = {}
    for it in reversed(known):
        by_minute.setdefault(int(max(it.age_s, 0) // 60), []).append(it)
    return tuple(
        [
            TableRow(
                "this minute" if not minute else f"{minute} min ago",
                show_rate(_mean(points)),
                show_rate(_most(points)),
            )
            for minute, points in by_minute.items()
        ]
    )


def _mean(points: Sequence[Point]) -> float:
    """Return the mean over time, since samples are not equally far apart."""
    seconds = sum([it.seconds for it in points])
    return sum([(it.rate or 0.0) * it.seconds for it in points]) / seconds


def _most(points: Sequence[Point]) -> float:
    return max([it.rate or 0.0 for it in points])
