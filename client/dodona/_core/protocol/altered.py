"""What is said of a table that was altered, or replaced by another, while something that was made
for the old one went on. Pure.

Owns: the errors, which name the table and each difference. Knows no protocol.
"""

from collections.abc import Sequence
from typing import Any

from dodona._core.protocol.routing import TableRoute
from dodona_wire.errors import MetadataChanged
from dodona_wire.rows.schema import Column

NAMED_MAX = 10
"""So many columns of each kind are named."""


def error_of_change(before: TableRoute, now: TableRoute, what: str) -> MetadataChanged | None:
    """None if it is the same table with the same columns."""
    if now.is_another(before.table):
        return replaced_error(now.path, what)
    return error_of_columns(before, now, what)


def error_of_columns(before: TableRoute, now: TableRoute, what: str) -> MetadataChanged | None:
    """None if they are the same: what is written goes to the table that is there now."""
    if before.schema is now.schema or before.schema == now.schema:
        return None
    return altered_error(now.path, before.schema.columns, now.schema.columns, what)


def replaced_error(path: str, what: str) -> MetadataChanged:
    """That the table was moved or removed since `what`, such as "this read", began."""
    text = (
        f"another table is at {path} since {what} began: begin anew if it is the one that is meant"
    )
    return MetadataChanged(text, table=path)


def altered_error(
    path: str, before: Sequence[Column], now: Sequence[Column], what: str
) -> MetadataChanged:
    """That the table has other columns now than `what`, such as "this read", began with."""
    old, new = ({it.name: it for it in columns} for columns in (before, now))
    differences: dict[str, list[str]] = {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name, it in new.items() if name in old and old[name] != it],
    }
    found = {kind: names[:NAMED_MAX] for kind, names in differences.items() if names}
    listed = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in found.items())
    text = f"table {path} was altered since {what} began"
    if listed:
        text += f" (columns {listed})"
    attributes: dict[str, Any] = {"table": path, **found}
    return MetadataChanged(f"{text}: look at db.get_table, then begin anew", **attributes)
