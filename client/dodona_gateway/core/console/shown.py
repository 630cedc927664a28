"""Format numbers and values for people. Pure.

Owns: the text of counts, sizes and durations, and how much of a value is shown, and of which kind.
Nothing here is markup: the templates escape every value.
"""

from typing import Any, Final, NamedTuple

import msgspec

from dodona_wire.rows.logical_values import text_of_value
from dodona_wire.rows.text_format import format_any

TEXT_LENGTH_MAX: Final = 160
"""The largest number of characters that are shown of a value."""
BINARY_BYTES_MAX: Final = 32
LESS_THAN_MS: Final = 10_000
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEPS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Shown(NamedTuple):
    """A value for people. `note` adds what the text does not show: how much was left out, or that
    the value is no text."""

    text: str
    kind: str
    """`null`, `number`, `boolean`, `text`, `binary` or `any`."""
    note: str = ""


def show_value(value: Any) -> Shown:
    """Format any value of a row or of a query's result."""
    value = text_of_value(value)
    if value is None:
        return Shown("null", "null")
    if isinstance(value, bool):
        return Shown("true" if value else "false", "boolean")
    if isinstance(value, int | float):
        return Shown(str(value), "number")
    if isinstance(value, bytes):
        return _show_bytes(value)
    if isinstance(value, str):
        return _cut(value, "text", "characters")
    return _cut(msgspec.json.encode(format_any(value)).decode(), "any", "characters")


def _show_bytes(value: bytes) -> Shown:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        shown = value[:BINARY_BYTES_MAX].hex(" ")
        more = " …" if len(value) > BINARY_BYTES_MAX else ""
        return Shown(shown + more, "binary", f"binary, {show_count(len(value), 'byte')}")
    return _cut(text, "text", "characters")


def _cut(text: str, kind: str, unit: str) -> Shown:
    if text == "":
        return Shown("", kind, "empty")
    short = visible(text[:TEXT_LENGTH_MAX])
    if len(text) <= TEXT_LENGTH_MAX:
        return Shown(short, kind)
    return Shown(f"{short}…", kind, f"cut, {len(text):,} {unit}")


def visible(text: str) -> str:
    """Return the text, with escapes for characters that are invisible or change the order of
    others."""
    if text.isprintable():
        return text
    return "".join([it if it.isprintable() else _escaped(it) for it in text])


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def visible_lines(text: str) -> str:
    """Do the same for a text of several lines, which remain separate lines."""
    return "\n".join([visible(it) for it in text.split("\n")])


def cut_text(text: str) -> str:
    """Return the beginning of a text, without a note."""
    return _cut(text, "text", "characters").text


def is_numeric(kind: str) -> bool:
    """Return whether a type, by Arrow's name, is numeric. Numbers are aligned to the right."""
    return kind.startswith(("int", "uint", "double", "float", "decimal"))


def show_count(number: int, noun: str = "", nouns: str = "") -> str:
    """Format a count, such as `1,204 rows`."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def show_bytes(size_bytes: float) -> str:
    """Format a size, such as `3.2 MiB`."""
    for unit in _UNITS[:-1]:
        if size_bytes < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:,.1f} {_UNITS[-1]}"


def show_rate(rate: float | None) -> str:
    """Format a rate per second: one decimal below 10, otherwise none, and a dash for None."""
    if rate is None:
        return "–"
    if rate < 10:
        return f"{rate:.1f}" if rate else "0"
    return f"{rate:,.0f}"


def show_duration(duration_ms: int) -> str:
    """Format a duration, such as `320 ms`, `4.2 s`, `3 min 20 s` or `2 h 5 min`."""
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    if duration_ms < LESS_THAN_MS:
        return f"{duration_ms / 1000:.1f} s"
    seconds = duration_ms // 1000
    for place, (length, unit) in enumerate(_STEPS):
        if seconds >= length:
            first = f"{seconds // length} {unit}"
            if place + 1 == len(_STEPS):
                return first
            length_next, unit_next = _STEPS[place + 1]
            rest = seconds % length // length_next
            return f"{first} {rest} {unit_next}" if rest else first
    raise AssertionError("a duration has a unit")


def show_ratio(ratio: float) -> str:
    """Format a ratio, such as `12 %`. A small ratio has one decimal, so it differs from `0 %`."""
    percent = ratio * 100
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"
