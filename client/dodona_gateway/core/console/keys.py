"""Keys in addresses and in form fields, which say where a page of rows begins. Pure.

Owns: the two text forms of a key. One is a JSON list of the first values of the key, as in REST.
The other is plain text: a single value, which is that of the first key column.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.text_format import format_value, json_of, read_value, value_of_text

LENGTH_MAX: Final = 64 << 10


def format_bound(schema: TableSchema, values: Sequence[Any]) -> str:
    """Return the leading values of a key as text."""
    formatted = [
        format_value(column, value)
        for column, value in zip(schema.key_columns, values, strict=False)
    ]
    return msgspec.json.encode(formatted).decode()


def read_bound(schema: TableSchema, text: str, what: str) -> list[Any] | None:
    """Parse the leading values of a key; None if there is no text. `what` names the field in
    errors. Raises InvalidRequest, SchemaViolation, LimitExceeded."""
    text = text.strip()
    if not text:
        return None
    if len(text) > LENGTH_MAX:
        raise LimitExceeded(f"The field {what!r} has at most {LENGTH_MAX} characters. Shorten it.")
    columns = schema.key_columns
    if not text.startswith("["):
        return [value_of_text(columns[0], text)]
    values = json_of(text, what)
    if not isinstance(values, list) or len(values) > len(columns):
        names = ", ".join(it.name for it in columns)
        raise InvalidRequest(
            f"The field {what!r} takes a value of {columns[0].name}, or a list in brackets with "
            f"values of {names}."
        )
    return [read_value(column, it) for column, it in zip(columns, values, strict=False)]
