"""Measure how wide a text will be, before it is drawn, and break it so that it fits.

Owns: the measuring, in inches, with the same letters that pictures have.
"""

from functools import cache
from typing import Final

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties

DPI: Final = 140


def width_inches(text: str, points: float, *, is_bold: bool = False) -> float:
    """Return the width of one line."""
    font = FontProperties(size=points, weight="bold" if is_bold else "normal")
    width, _, _ = _renderer().get_text_width_height_descent(text, font, ismath=False)  # type: ignore[no-untyped-call]
    return float(width) / DPI


def wrap(
    text: str, inches: float, points: float, *, is_bold: bool = False, between: str = " "
) -> list[str]:
    """Return lines of at most that width, broken between words. A longer word has its own line."""
    lines: list[str] = []
    for word in text.split(between):
        longer = f"{lines[-1]}{between}{word}" if lines else word
        if lines and width_inches(longer, points, is_bold=is_bold) <= inches:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@cache
def _renderer() -> RendererAgg:
    return RendererAgg(1, 1, DPI)  # type: ignore[no-untyped-call]
