"""What an SQL query gave, as rows of values. Pure.

Owns: which values the types that only SQL has become: whole decimals are integers, others text, so
that no digit is lost; dates, times and intervals are text as ISO 8601 has it. pyarrow is imported
on first use.
"""

import datetime
import decimal
from collections.abc import Callable
from typing import Any

from dodona.schema import Column
from dodona_gateway.core.answers import QueryResult
from dodona_gateway.core.json_values import any_to_json, converters


def query_result(table: Any, *, is_json: bool) -> QueryResult:
    """The columns and rows of a `pyarrow.Table`."""
    fields = list(table.schema)
    columns = [
        _values(column, field.type, is_json)
        for column, field in zip(table.columns, fields, strict=True)
    ]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return QueryResult([it.name for it in fields], [str(it.type) for it in fields], rows)


def _values(column: Any, kind: Any, is_json: bool) -> list[Any]:
    import pyarrow

    types = pyarrow.types
    values: list[Any] = column.to_pylist()
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_string(kind):
        return values
    convert: Callable[[Any], Any] = _plain
    if is_json and types.is_binary(kind):
        convert = converters([Column("", "string")])[""]
    elif is_json:
        convert = _plain_json
    elif types.is_binary(kind) or types.is_floating(kind):
        return values
    return [None if it is None else convert(it) for it in values]


def _plain_json(value: Any) -> Any:
    return any_to_json(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _plain(it) for name, it in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    return value
