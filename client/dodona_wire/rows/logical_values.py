"""Convert single values of logical types: to the stored form, back, and to text and back. Pure.

Owns: what a column of each logical type takes, and the refusals. No value is rounded, cut or
guessed, except a `float`: the nearest number of 32 bits is stored, as numpy does it.
A moment is one of UTC. A datetime without a time zone names no moment, so it is refused, in Python,
in text, and in Arrow. Text stands for a value in JSON, CSV and the command line alone. A Python
caller passes values. Only a UUID may be its text.
A stored time is a number of days, seconds or microseconds since 1970. A stored decimal is a whole
number as big-endian bytes, with the sign bit flipped. A stored UUID has its 16 bytes in the order
of its text. Source: YTsaurus's data types.
"""

import re
from collections.abc import Callable
from ctypes import c_float
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID  # noqa: TID251 - the type of values; no id is made

import msgspec

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.json_text import decode_json
from dodona_wire.rows.logical_bytes import (
    load_decimal_of,
    load_uuid,
    plain_decimal_of,
    sign_of,
    unscaled_of,
)
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.nested_values import (
    STORED,
    USER_TO_STORED,
    checked_size,
    converter_of,
    loader_of,
)
from dodona_wire.rows.value_rules import mismatch, plain_number, plain_scalar
from dodona_wire.rows.values import CHECKS, own_copy
from dodona_wire.shown import LENGTH_MAX, shown

Convert = Callable[[Any, str], Any]
"""Takes a value and the name of its column. Raises SchemaViolation."""
Load = Callable[[Any], Any]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
SECOND: Final = timedelta(seconds=1)
MICROSECOND: Final = timedelta(microseconds=1)
DATES_MAX: Final = 1 << 16
"""Dates that are kept: more than the days of type `date`, in about 10 MB."""


class Dates(dict[int, date]):
    """The date of each day, counted from 1970. Each date is made once, and kept: to make one takes
    twice as long as to find it."""

    def __missing__(self, days: int) -> date:
        made = date.fromordinal(days + EPOCH_ORDINAL)
        if len(self) >= DATES_MAX:
            self.clear()
        self[days] = made
        return made


DATES: Final = Dates()
FLOAT_MAX: Final = (2 - 2**-23) * 2.0**127
"""The largest finite number of 32 bits."""
KINDS_MAX: Final = 4096
"""Types whose functions are kept."""
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


# ---- from a user's value to the stored one


@lru_cache(KINDS_MAX)
def store_of(kind: LogicalType) -> Convert:
    """Return the function that makes the stored value of a user's value, which is not None."""
    if kind.is_stored:
        return CHECKS[kind.stored]
    if kind.members:
        return checked_size(converter_of(kind, USER_TO_STORED, store_of))
    made: Convert = _STORING[kind.form](kind)
    return made


def refusal(kind: LogicalType, value: Any, column: str) -> SchemaViolation:
    """Return the error for a value outside the type's range. `value` is a user's."""
    lowest, highest = (text_of(kind, load_of(kind)(it)) for it in (kind.lowest, kind.highest))
    return SchemaViolation(
        f"value does not fit in {kind.name}: column {column!r} takes {lowest} to {highest}",
        column=column,
        value=_text(value),
        lowest=lowest,
        highest=highest,
    )


def _in_range(kind: LogicalType, number: int, value: Any, column: str) -> int:
    if kind.lowest <= number <= kind.highest:
        return number
    raise refusal(kind, value, column)


def _integers(kind: LogicalType) -> Convert:
    def store(value: Any, column: str) -> int:
        number = plain_number(value)
        if type(number) is not int:
            raise mismatch(value, column, "an int")
        return _in_range(kind, number, value, column)

    return store


def _floats(kind: LogicalType) -> Convert:
    check = CHECKS[kind.stored]

    def store(value: Any, column: str) -> float:
        if type(value) is int and single(value) != value:
            text = f"column {column!r} is float, and no float equals {shown(value)}"
            raise SchemaViolation(text, column=column, value=shown(value))
        number: float = check(value, column)
        nearest = single(number)
        if abs(nearest) == float("inf") != abs(number):
            text = f"value does not fit in float: column {column!r} takes up to {FLOAT_MAX}"
            raise SchemaViolation(text, column=column, value=shown(value), highest=FLOAT_MAX)
        return nearest

    return store


def single(number: float) -> float:
    """Return the nearest number of 32 bits; an infinity for a number that is too large."""
    try:
        return c_float(number).value
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _dates(kind: LogicalType) -> Convert:
    def store(value: Any, column: str) -> int:
        value = plain_scalar(value)
        if isinstance(value, datetime) or not isinstance(value, date):
            raise mismatch(value, column, "a datetime.date")
        return _in_range(kind, value.toordinal() - EPOCH_ORDINAL, value, column)

    return store


def _seconds(kind: LogicalType) -> Convert:
    def store(value: Any, column: str) -> int:
        span = checked_moment(value, column) - EPOCH
        if span.microseconds:  # those of the moment: its zone may have a part of a second, too
            text = (
                f"column {column!r} is {kind.name}, which has whole seconds. Round the value, or "
                "use a timestamp column"
            )
            raise SchemaViolation(text, column=column, value=_text(value))
        return _in_range(kind, span // SECOND, value, column)

    return store


def _microseconds(kind: LogicalType) -> Convert:
    def store(value: Any, column: str) -> int:
        moment = checked_moment(value, column)
        return _in_range(kind, (moment - EPOCH) // MICROSECOND, value, column)

    return store


def checked_moment(value: Any, column: str) -> datetime:
    """Return a datetime that names a moment. Raises SchemaViolation."""
    if not isinstance(value, datetime):
        raise mismatch(value, column, "a datetime.datetime with a time zone")
    moment = value if type(value) is datetime else _plain_moment(value, column)
    if moment.utcoffset() is None:
        raise no_zone(column)
    return moment


def _plain_moment(value: Any, column: str) -> datetime:
    """Return the datetime that a subclass stands for, such as that of pandas. Raises
    SchemaViolation if it has nanoseconds, or is no moment at all."""
    if value != value or getattr(value, "nanosecond", 0):
        raise misread(value, column, "a time of whole microseconds")
    day = date(value.year, value.month, value.day)
    return datetime.combine(day, datetime.timetz(value))


def misread(value: Any, column: str, expected: str) -> SchemaViolation:
    """Return the error for a value that can't be read as this."""
    text = f"column {column!r} takes {expected}, not {shown(value)}"
    return SchemaViolation(text, column=column, value=shown(value))


def no_zone(column: str) -> SchemaViolation:
    """Return the error for a time without a time zone."""
    text = f"column {column!r} got a time that has no time zone. Pass one that has a time zone"
    return SchemaViolation(text, column=column)


def _intervals(kind: LogicalType) -> Convert:
    def store(value: Any, column: str) -> int:
        value = plain_scalar(value)
        if not isinstance(value, timedelta):
            raise mismatch(value, column, "a datetime.timedelta")
        span = value if type(value) is timedelta else _plain_span(value, column)
        return _in_range(kind, span // MICROSECOND, value, column)

    return store


def _plain_span(value: Any, column: str) -> timedelta:
    """Return the timedelta that a subclass stands for. Raises SchemaViolation as above."""
    if value != value or getattr(value, "nanoseconds", 0):
        raise misread(value, column, "a duration of whole microseconds")
    return timedelta(value.days, value.seconds, value.microseconds)


def _decimals(kind: LogicalType) -> Convert:
    size, sign, largest = kind.size_bytes, sign_of(kind), 10**kind.precision - 1
    scale, plain = kind.scale, plain_decimal_of(kind)

    def store(value: Any, column: str) -> bytes:
        if type(value) is Decimal and (raw := plain(value)) is not None:
            return raw
        number = plain_number(value)
        if type(number) is int:
            number = Decimal(number)
        if not isinstance(number, Decimal):
            raise mismatch(value, column, "a decimal.Decimal or an int")
        unscaled = unscaled_of(number, scale, kind.precision)
        if unscaled is None or not -largest <= unscaled <= largest:
            raise _unfit_decimal(kind, number, column)
        return (unscaled + sign).to_bytes(size, "big")

    return store


def _unfit_decimal(kind: LogicalType, number: Decimal, column: str) -> SchemaViolation:
    if not number.is_finite():
        text = f"column {column!r} is {kind.name}, which has finite numbers only"
        return SchemaViolation(text, column=column, value=str(number)[:20])
    error = refusal(kind, number, column)
    _, digits, exponent = number.as_tuple()
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if isinstance(exponent, int) and -(exponent + zeros) > kind.scale:
        text = (
            f"value does not fit in {kind.name}: column {column!r} takes {kind.scale} digits "
            "behind the point. Round the value first"
        )
        return SchemaViolation(text, **error.attributes)
    return error


def _uuids(_: LogicalType) -> Convert:
    def store(value: Any, column: str) -> bytes:
        return uuid_of(value, column).bytes

    return store


def uuid_of(value: Any, column: str) -> UUID:
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str):
        raise mismatch(value, column, "a uuid.UUID or its text")
    if not _UUID.fullmatch(value):
        raise misread(value, column, "a UUID such as a3bb189e-8bf9-3888-9912-ace4e6543002")
    return UUID(value)


def _jsons(kind: LogicalType) -> Convert:
    check = CHECKS[kind.stored]

    def store(value: Any, column: str) -> str:
        text: str = check(value, column)
        return check_json(text, column)

    return store


def check_json(text: str, column: str) -> str:
    """Check that a text is one JSON value. Raises SchemaViolation."""
    try:
        decode_json(text)
    except SchemaViolation as error:
        error.attributes["column"] = column
        raise
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        text = f"column {column!r} takes the text of a JSON value: {error}"
        raise SchemaViolation(text, column=column) from error
    return text


_STORING: Final[dict[str, Callable[[LogicalType], Convert]]] = {
    "integer": _integers,
    "float": _floats,
    "date": _dates,
    "seconds": _seconds,
    "microseconds": _microseconds,
    "interval": _intervals,
    "decimal": _decimals,
    "uuid": _uuids,
    "json": _jsons,
}


# ---- from the stored value to a user's


@lru_cache(KINDS_MAX)
def load_of(kind: LogicalType) -> Load:
    """Return the function that makes a user's value of a stored value, which is not None."""
    if kind.members:
        return loader_of(kind, _load_inside)
    match kind.form:
        case "date":
            return DATES.__getitem__
        case "seconds":
            return lambda seconds: EPOCH + seconds * SECOND
        case "microseconds":
            return lambda microseconds: EPOCH + microseconds * MICROSECOND
        case "interval":
            return lambda microseconds: microseconds * MICROSECOND
        case "decimal":
            return load_decimal_of(kind)
        case "uuid":
            return load_uuid
    return lambda value: value


def _load_inside(kind: LogicalType) -> Load | None:
    if kind.name == "any":
        return own_copy
    return load_of(kind) if is_shown_otherwise(kind) else None


def is_shown_otherwise(kind: LogicalType) -> bool:
    """Return whether a user's value differs from the stored one. That of a nested type has lists
    and dicts of its own."""
    return bool(kind.members) or kind.form in (
        "date",
        "seconds",
        "microseconds",
        "interval",
        "decimal",
        "uuid",
    )


# ---- checks of stored values that came from outside


@lru_cache(KINDS_MAX)
def check_of(kind: LogicalType) -> Convert:
    """Return the function that checks a stored value, and returns it in its plain form."""
    check = CHECKS[kind.stored]
    if kind.is_stored:
        return check
    if kind.members:
        return checked_size(converter_of(kind, STORED, _exact_check_of))

    size, lowest, highest, form = kind.size_bytes, kind.lowest, kind.highest, kind.form

    def checked(value: Any, column: str) -> Any:
        found = check(value, column)
        if form == "json":
            return check_json(found, column)
        if form == "float":
            is_fit = found != found or single(found) == found
        else:
            is_fit = not size or len(found) == size
            is_fit = is_fit and (lowest is None or lowest <= found <= highest)
        if not is_fit:
            text = f"stored value does not fit in {kind.name}"
            raise SchemaViolation(text, column=column, value=shown(found))
        return found

    return checked


def _exact_check_of(kind: LogicalType) -> Convert:
    """Return the check of a stored value inside a nested one, which is kept as it came."""
    check = check_of(kind)

    def checked(value: Any, column: str) -> Any:
        found = check(value, column)
        if type(found) is not type(value):
            raise mismatch(value, column, f"the stored form of {kind.name}")
        return found

    return checked


# ---- text: JSON, CSV, words of a command, and errors


def text_of(kind: LogicalType, value: Any) -> Any:
    """Return a user's value in its form for JSON and CSV: text, or a number."""
    match kind.form:
        case "date":
            return value.isoformat()
        case "seconds" | "microseconds":
            return moment_text(value)
        case "interval":
            return msgspec.to_builtins(value)
        case "decimal":
            return f"{value:f}"
        case "uuid":
            return str(value)
    return value


def moment_text(value: datetime) -> str:
    """Return a moment as ISO 8601, in UTC."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _text(value: Any) -> str:
    """Return any value for an error."""
    if isinstance(value, date):
        return value.isoformat()
    return str(value)[:LENGTH_MAX] if isinstance(value, Decimal | timedelta) else shown(value)


def text_of_value(value: Any) -> Any:
    """Return the text of a user's value whose column is not known; any other value as it is."""
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo is None else moment_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return msgspec.to_builtins(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, list | tuple):
        return [text_of_value(it) for it in value]
    if isinstance(value, dict):
        return {text_of_value(name): text_of_value(it) for name, it in value.items()}
    return str(value) if isinstance(value, UUID) else value


def shown_stored(kind: LogicalType, value: Any) -> Any:
    """Return a stored value for an error of a cell, as text or as it is."""
    if value is None or not is_shown_otherwise(kind):
        return value
    return text_of(kind, load_of(kind)(value))
