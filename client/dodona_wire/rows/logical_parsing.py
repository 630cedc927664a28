"""Read texts of logical types: in JSON, in CSV and on the command line. Pure.

Owns: which texts stand for a value of each type that is not nested. `logical_values` checks the
values, and makes the texts.
"""

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import msgspec

from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.logical_values import KINDS_MAX, Convert, misread, no_zone, uuid_of

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MOMENT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
    r"(Z|z|[+-][0-9]{2}:[0-9]{2})?",
    re.ASCII,
)
_DURATION: Final = re.compile(
    r"[+-]?P(?=.)([0-9]{1,10}D)?"
    r"(T(?=.)([0-9]{1,12}H)?([0-9]{1,12}M)?([0-9]{1,14}(\.[0-9]{1,6})?S)?)?",
    re.ASCII,
)
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)
_DECIMAL_LENGTH_MAX: Final = 200


@lru_cache(KINDS_MAX)
def parse_of(kind: LogicalType) -> Convert:
    """Return the function that makes a user's value of its JSON form, or of a text of CSV."""
    match kind.form:
        case "date":
            return _parse_date
        case "seconds" | "microseconds":
            return _parse_moment
        case "interval":
            return _parse_interval
        case "decimal":
            return _parse_decimal
        case "uuid":
            return uuid_of
    return lambda value, _: value


def _parse_date(value: Any, column: str) -> date:
    expected = "a date such as 2024-05-31"
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise misread(value, column, expected)
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise misread(value, column, expected) from None


def _parse_moment(value: Any, column: str) -> datetime:
    expected = "a time such as 2024-05-31T12:30:00Z"
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise misread(value, column, expected)
    if found[2] is None:
        raise no_zone(column)
    try:
        return datetime.fromisoformat(value.upper())
    except ValueError:
        raise misread(value, column, expected) from None


def _parse_interval(value: Any, column: str) -> timedelta:
    expected = "a duration such as P1DT2H30M or PT2.5S"
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise misread(value, column, expected)
    try:
        return msgspec.convert(value, timedelta)
    except msgspec.ValidationError:
        raise misread(value, column, expected) from None


def _parse_decimal(value: Any, column: str) -> Decimal:
    if type(value) is int:
        return Decimal(value)
    is_text = isinstance(value, str) and len(value) <= _DECIMAL_LENGTH_MAX
    if not is_text or not _DECIMAL.fullmatch(value):
        raise misread(value, column, 'a decimal as text, such as "12.50"')
    return Decimal(value)
