"""Errors for a table that was altered or replaced while an operation on it was in progress. Pure.

Owns: these errors, which name the table and each difference. Knows no protocol.
"""

from collections.abc import Sequence
from typing import Any

from dodona._core.protocol.routing import TableRoute
from dodona_wire.errors import MetadataChanged
from dodona_wire.rows.schema import Column

NAMED_MAX = 10
"""How many columns an error names, for each kind of difference."""


def error_of_change(before: TableRoute, now: TableRoute, what: str) -> MetadataChanged | None:
    """Return the error if the table was replaced or has other columns, or None."""
    if now.is_another(before.table):
        return replaced_error(now.path, what)
    return error_of_columns(before, now, what)


def error_of_columns(before: TableRoute, now: TableRoute, what: str) -> MetadataChanged | None:
    """Return the error if the table has other columns, or None. A replaced table is no error here:
    a write goes to the table that is at the path now."""
    if before.schema is now.schema or before.schema == now.schema:
        return None
    return altered_error(now.path, before.schema.columns, now.schema.columns, what)


def replaced_error(path: str, what: str) -> MetadataChanged:
    """Return the error that the table was moved or removed since `what` began, as in "this
    read"."""
    text = f"Another table is at {path} since {what} began. To use that table, begin again."
    return MetadataChanged(text, table=path)


def altered_error(
    path: str, before: Sequence[Column], now: Sequence[Column], what: str
) -> MetadataChanged:
    """Return the error that the table's columns have changed since `what` began, as in "this
    read"."""
    old, new = ({it.name: it for it in columns} for columns in (before, now))
    differences: dict[str, list[str]] = {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name, it in new.items() if name in old and old[name] != it],
    }
    found = {kind: names[:NAMED_MAX] for kind, names in differences.items() if names}
    listed = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in found.items())
    text = f"Table {path} was altered since {what} began"
    if listed:
        text += f" (columns {listed})"
    attributes: dict[str, Any] = {"table": path, **found}
    return MetadataChanged(
        f"{text}. Check its columns with db.get_table, then begin again.", **attributes
    )
