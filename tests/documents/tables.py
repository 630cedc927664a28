"""Tables of Markdown.

Owns: what has to be written otherwise within a cell. Must not import anything of Dodona.
"""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """With a line for each row."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def bounds(least: int | None, most: int | None) -> list[str]:
    """In words, if there are any."""
    if least is not None and most is not None:
        return [f"{least:,} to {most:,}"]
    if least is not None:
        return [f"at least {least:,}"]
    return [] if most is None else [f"at most {most:,}"]


def choices(values: Iterable[object]) -> str:
    """One of these."""
    *others, last = [f"`{it}`" for it in values]
    return f"{', '.join(others)} or {last}" if others else last
