"""Convert the result of an SQL query to rows of values. Pure.

Owns: how values are converted whose types only SQL has. Whole decimals of 64 bits become integers.
Other decimals become text, so that no digit is lost. Dates, times and intervals become text in the
form of ISO 8601. pyarrow is imported on first use.
"""

import decimal
from collections.abc import Callable
from typing import Any, Final

from dodona_gateway.core.answers import QueryResult
from dodona_gateway.core.json_values import converters
from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.logical_values import text_of_value
from dodona_wire.rows.schema import Column
from dodona_wire.rows.text_format import format_any

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 64) - 1


def query_result(table: Any, *, is_json: bool) -> QueryResult:
    """Return the columns and rows of a `pyarrow.Table`. Raises InvalidRequest on a date outside the
    years 1 to 9999."""
    fields = list(table.schema)
    columns: list[list[Any]] = []
    for column, field in zip(table.columns, fields, strict=True):
        try:
            columns.append(_values(column, field.type, is_json))
        except (OverflowError, ValueError) as error:
            text = "The result has a date or a time that can't be shown. Cast it to text or to int."
            raise InvalidRequest(text, column=field.name) from error
    rows = [list(row) for row in zip(*columns, strict=True)]
    return QueryResult([it.name for it in fields], [str(it.type) for it in fields], rows)


def _values(column: Any, kind: Any, is_json: bool) -> list[Any]:
    import pyarrow

    types = pyarrow.types
    if kind in (pyarrow.timestamp("ns"), pyarrow.time64("ns")):  # Python has no nanoseconds
        texts = column.cast(pyarrow.string()).to_pylist()
        return [None if it is None else it.replace(" ", "T") for it in texts]
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
    return format_any(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if hasattr(value, "isoformat"):  # dates and times: a core does not import their module
        return value.isoformat()
    if hasattr(value, "total_seconds"):
        return text_of_value(value)
    if isinstance(value, dict):
        return {str(name): _plain(it) for name, it in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    return value


def _decimal(value: decimal.Decimal) -> int | str:
    is_whole = value.as_tuple().exponent == 0
    return int(value) if is_whole and INTEGER_MIN <= value <= INTEGER_MAX else f"{value:f}"
