"""Tables as HTML, for notebooks. Pure.

Owns: how much of a table is shown, and that all text in it is escaped. `shown` bounds each value.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from dodona_wire.shown import shown

ROWS_SHOWN_MAX: Final = 20
COLUMNS_SHOWN_MAX: Final = 20
TEXT_LENGTH_MAX: Final = 64


def html_table(
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    notes: Sequence[str] = (),
    *,
    what: str = "row",
    is_plain: bool = False,
) -> str:
    """Return the first rows and columns as a table. A line below it says how many there are, and
    how many are left out. `notes` begin that line. `what` names one row. With `is_plain`,
    text has no quotes."""
    kept = names[:COLUMNS_SHOWN_MAX]
    head = "".join(f"<th>{_text(name)}</th>" for name in kept)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(it, is_plain)}</td>' for it in row[:COLUMNS_SHOWN_MAX])}</tr>"
        for row in rows[:ROWS_SHOWN_MAX]
    )
    counts = [*notes, _count(len(rows), what, ROWS_SHOWN_MAX)]
    if len(names) > COLUMNS_SHOWN_MAX:
        counts.append(_count(len(names), "column", COLUMNS_SHOWN_MAX))
    line = ", ".join(map(_text, counts))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{line}</p>"


def _count(count: int, what: str, shown_max: int) -> str:
    text = f"{count:,} {what}{'' if count == 1 else 's'}"
    return f"{text} ({count - shown_max:,} not shown)" if count > shown_max else text


def _cell(value: Any, is_plain: bool) -> str:
    """Return a value as Python shows it. Null differs from the text null by its style."""
    if value is None:
        return "<i>null</i>"
    return _text(value if is_plain and type(value) is str else shown(value, TEXT_LENGTH_MAX))


def _text(text: str) -> str:
    return escape(text if len(text) <= TEXT_LENGTH_MAX else f"{text[: TEXT_LENGTH_MAX - 1]}…")
