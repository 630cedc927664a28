"""Keys in addresses and in fields that people fill in: where a page of rows begins. Pure.

Owns: the two spellings, a JSON list of the key columns' first values, as REST takes it, and a
single value that is plain text, which is the first column's.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.text_format import FORMATTERS, json_of, read_value, value_of_text

LENGTH_MAX: Final = 64 << 10


def format_bound(schema: TableSchema, values: Sequence[Any]) -> str:
    """The leading values of a key as text."""
    formatted = [
        value if value is None else FORMATTERS.get(column.type, _same)(value)
        for column, value in zip(schema.key_columns, values, strict=False)
    ]
    return msgspec.json.encode(formatted).decode()


def read_bound(schema: TableSchema, text: str, what: str) -> list[Any] | None:
    """The leading values of a key; None if there is no text. `what` names the field. Raises
    InvalidRequest, SchemaViolation, LimitExceeded."""
    text = text.strip()
    if not text:
        return None
    if len(text) > LENGTH_MAX:
        raise LimitExceeded(f"{what} has at most {LENGTH_MAX} characters")
    columns = schema.key_columns
    if not text.startswith("["):
        return [value_of_text(columns[0], text)]
    values = json_of(text, what)
    if not isinstance(values, list) or len(values) > len(columns):
        names = ", ".join(it.name for it in columns)
        raise InvalidRequest(
            f"{what} is a value of {columns[0].name}, or a list in brackets with values of {names}"
        )
    return [read_value(column, it) for column, it in zip(columns, values, strict=False)]


def _same(value: Any) -> Any:
    return value
