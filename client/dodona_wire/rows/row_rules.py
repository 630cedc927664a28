"""Limits of whole rows and keys, and the texts of their refusals.

Owns: these limits, and the errors about whole rows and keys; `values` has those of single values. A
row that does not name a key column is an error everywhere. Otherwise a misspelt name would silently
give the null key. Null must be given as such. Imports no clock and no I/O.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.columns import Column
from dodona_wire.rows.values import size_bytes_of
from dodona_wire.types import Key

KEY_BYTES_MAX: Final = 16 << 20
"""Bytes of a whole key, encoded."""
ROW_BYTES_MAX: Final = 128 << 20
"""Bytes of a row's text and bytes values, key included."""


def missing_key_column(name: str, is_required: bool) -> SchemaViolation:
    """Return the error for a row or a key that does not name one of its key columns."""
    or_null = "" if is_required else ", or null (None in Python)"
    text = f"missing key column {name!r}: give each row a value for it{or_null}"
    return SchemaViolation(text, column=name)


def missing_of(keys: Iterable[tuple[str, Any, bool]], row: Mapping[str, Any]) -> SchemaViolation:
    """Return `missing_key_column` for the first column that the row does not name; there is one. Of
    each key column, the name comes first, and whether it is required last."""
    name, is_required = next((name, it) for name, _, it in keys if name not in row)
    return missing_key_column(name, is_required)


def missing_value(name: str, row: Mapping[str, Any]) -> SchemaViolation:
    """Return the error for a required column that is null, or that the row does not name."""
    what = "null" if name in row else "missing"
    return SchemaViolation(f"required column is {what}", column=name)


def too_long(key: Key) -> SchemaViolation:
    """Return the error for a key of more than `KEY_BYTES_MAX`."""
    return SchemaViolation(f"a key is longer than {KEY_BYTES_MAX} bytes", size_bytes=len(key))


def check_row_size(key: Key, values: Iterable[Any]) -> None:
    """Raise SchemaViolation if a row is longer than `ROW_BYTES_MAX`."""
    size_bytes = len(key) + sum([size_bytes_of(value) for value in values])
    if size_bytes > ROW_BYTES_MAX:
        raise SchemaViolation(f"a row is longer than {ROW_BYTES_MAX} bytes", size_bytes=size_bytes)


def check_update(columns: Iterable[Column], given: Container[str]) -> None:
    """Check the columns that a bulk update sets. Chunks have values, and no changes of aggregates.
    Raises SchemaViolation."""
    names = [it.name for it in columns if it.aggregate is not None and it.name in given]
    if names:
        text = (
            f"a bulk update can't set columns that aggregate, such as {names[0]!r}. Leave them "
            "out, or change them in a transaction: insert_rows(..., update=True, aggregate=True)"
        )
        raise SchemaViolation(text, column=names[0], columns=names)
