"""Check the values of a query's parameters, and match them with the parameters in its text. Pure.

Owns: which values a parameter may have, the limits of all values together, and the errors that name
a parameter. A checked value has a built-in type that DuckDB takes without loss. `nested_parameters`
has the types of the parts of lists and dicts.
Invariant: a value is never a part of a query's text.
Must not import: duckdb. numpy is used only if the program has imported it.
"""

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final
from uuid import UUID  # noqa: TID251 -- the type of a value: no id is made here

from dodona._core.protocol.arguments import INTEGER_MAX, INTEGER_MIN, Parameters, check_text
from dodona._core.protocol.limits import QueryLimits
from dodona._core.sql.nested_parameters import (
    check_depth,
    check_digits,
    checked_dict,
    of_one_type,
    shown_key,
)
from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.shown import shown

NAMES_SHOWN_MAX: Final = 10
NAME_LENGTH_MAX: Final = 100
VALUE_BYTES: Final = 8
"""What a value other than text and bytes counts."""
_FINER_UNITS: Final = ("ns", "ps", "fs", "as")
"""The units of numpy's times that datetime does not have."""
_TYPES: Final = (
    "None, a bool, an int, a float, a str, bytes, a date, a datetime, a time, a timedelta, "
    "a Decimal, a UUID, a scalar of numpy that converts to one of these, or a list or a dict of "
    "such values"
)
_OFFSET_END: Final = timedelta(hours=16)


def checked_parameters(given: Parameters | None, limits: QueryLimits) -> dict[str, Any]:
    """Return the values by name; values in order have the names 1, 2 and so on. Raises
    InvalidRequest, which names the parameter, and LimitExceeded."""
    named = _named(given)
    if len(named) > limits.parameters_max:
        text = f"A query has at most {limits.parameters_max} parameters, not {len(named)}."
        raise LimitExceeded(f"{text} Pass a list as one parameter.")
    _check_names(named)
    budget = _Budget(limits.parameter_bytes_max)
    return {name: _checked(value, f"Parameter {name}", budget) for name, value in named.items()}


def bound_parameters(names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value for each name that the query has. Case does not count in names, as in all of
    SQL. Raises InvalidRequest if a name has no value, or a value no name."""
    values = {name.lower(): value for name, value in given.items()}
    missing = [it for it in names if it.lower() not in values]
    expected = {it.lower() for it in names}
    unknown = [it for it in given if it.lower() not in expected]
    if missing or unknown:
        raise _mismatch(names, missing, unknown)
    return {it: values[it.lower()] for it in names}


# ---- names


def _named(given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray):
        return {str(place): value for place, value in enumerate(given, start=1)}
    hint = " Pass a timestamp as timestamp=…" if isinstance(given, int) else ""
    raise InvalidRequest(
        "parameters are a mapping of names to values, or a sequence of values, not "
        f"{type(given).__name__}.{hint}"
    )


def _check_names(named: Mapping[Any, Any]) -> None:
    spellings: dict[str, str] = {}
    for name in named:
        check_text(name, "the name of a parameter")
        if len(name) > NAME_LENGTH_MAX:
            text = (
                f"The name of a parameter has at most {NAME_LENGTH_MAX} characters: {shown(name)}"
            )
            raise LimitExceeded(text)
        first = spellings.setdefault(name.lower(), name)
        if first != name:
            raise InvalidRequest(
                f"SQL ignores case, so the parameters {shown(first)} and {shown(name)} are the "
                "same. Pass one of them."
            )


def _mismatch(names: Sequence[str], missing: list[str], unknown: list[str]) -> InvalidRequest:
    """Return the error for values that are not those of the query."""
    sentences = []
    if missing:
        sentences.append(f"No value was given for {_listed([f'${it}' for it in missing])}.")
    if unknown:
        names_shown = [f"${it}" if it.isdecimal() else shown(it) for it in unknown]
        sentences.append(f"The query does not have {_listed(names_shown)}.")
    for name in unknown[:NAMES_SHOWN_MAX]:
        near = difflib.get_close_matches(name.lower(), [it.lower() for it in names], 1)
        if near and not name.isdecimal():
            meant = next(it for it in names if it.lower() == near[0])
            sentences.append(f"Did you mean {meant!r} instead of {shown(name)}?")
    if any(it.isdecimal() for it in missing) and not all(it.isdecimal() for it in unknown):
        sentences.append("Pass the values of ? and $1 as a list.")
    elif missing and any(it.isdecimal() for it in unknown):
        sentences.append("Pass the values of named parameters as a mapping.")
    elif missing and not unknown:
        sentences.append("Pass a value for each parameter of the query.")
    lists = {"missing": missing, "unknown": unknown}
    attributes = {what: _first(names) for what, names in lists.items() if names}
    return InvalidRequest(" ".join(sentences), **attributes)


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(_first(names))
    more = ", …" if len(names) > NAMES_SHOWN_MAX else ""
    return f"the parameter{'s' if len(names) > 1 else ''} {listed}{more}"


def _first(names: Sequence[str]) -> list[str]:
    return [it[:NAME_LENGTH_MAX] for it in names[:NAMES_SHOWN_MAX]]


# ---- values


class _Budget:
    """The bytes that the values of a query may still have."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size_bytes = 0

    def take(self, value: Any) -> None:
        """Count a value. Raises LimitExceeded."""
        self._size_bytes += _size_bytes(value)
        if self._size_bytes > self._bytes_max:
            raise LimitExceeded(
                f"The parameters of a query have at most {self._bytes_max} bytes together. "
                "Write long lists to a table, and join it.",
                parameter_bytes_max=self._bytes_max,
            )


def _size_bytes(value: Any) -> int:
    if isinstance(value, bytes) or (isinstance(value, str) and value.isascii()):
        return len(value)
    return len(value.encode()) if isinstance(value, str) else VALUE_BYTES


def _checked(value: Any, place: str, budget: _Budget) -> Any:
    found = _parts(value, place, budget, 1)
    return of_one_type([found], place)[0] if isinstance(found, list | dict) else found


def _parts(value: Any, place: str, budget: _Budget, depth: int) -> Any:
    """Return a value whose parts have built-in types, which may still differ."""
    is_list = isinstance(value, list | tuple) or (_is_numpy(value, "ndarray") and value.ndim == 1)
    if not is_list and not isinstance(value, Mapping):
        return _scalar(value, place, budget)
    check_depth(depth, place)
    if depth > 1:
        budget.take(None)
    if is_list:
        return [_parts(it, f"{place}[{at}]", budget, depth + 1) for at, it in enumerate(value)]
    keys = [_scalar(it, f"A key of {_lowered(place)}", budget) for it in value]
    values = [
        _parts(it, f"{place}.{shown_key(key)}", budget, depth + 1) for key, it in value.items()
    ]
    return checked_dict(keys, values, place)


def _lowered(place: str) -> str:
    return place[0].lower() + place[1:]


def _scalar(value: Any, place: str, budget: _Budget) -> Any:
    plain = _of_numpy(value, place) if _is_numpy(value, "generic") else value
    if plain is not None and not isinstance(plain, bool):
        plain = _plain(plain, value, place)
    budget.take(plain)
    return plain


def _plain(plain: Any, given: Any, place: str) -> Any:
    """Return the value with a built-in type. Classes of the caller may inherit from these types."""
    for kind, convert in _CONVERSIONS:
        if isinstance(plain, kind):
            return convert(plain, place)
    reason = ", which converts to none of these" if _is_numpy(given, "generic") else ""
    raise InvalidRequest(f"{place} is {_TYPES}, not {type(given).__name__}{reason}.")


def _integer(value: int, place: str) -> int:
    if INTEGER_MIN <= value <= INTEGER_MAX:
        return int(value)
    raise InvalidRequest(
        f"{place} is {shown(value)}, and an int is from {INTEGER_MIN} to {INTEGER_MAX}. "
        "Pass a Decimal."
    )


def _text(value: str, place: str) -> str:
    plain = str.__str__(value)
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{place} is not Unicode text. Pass bytes.") from error
    return plain


def _datetime(value: datetime, place: str) -> datetime | None:
    """Return the moment in UTC, or a datetime without a time zone as it is. pandas has a null that
    is a datetime."""
    if value != value:
        return None
    _check_nanoseconds(getattr(value, "nanosecond", 0), place)
    day, at = date(value.year, value.month, value.day), value.timetz()
    plain = datetime.combine(day, at)
    if plain.utcoffset() is None:
        return plain.replace(tzinfo=None, fold=0)
    try:
        return plain.astimezone(UTC)
    except OverflowError as error:
        raise InvalidRequest(f"{place} is not in the years 1 to 9999 of UTC.") from error


def _time(value: time, place: str) -> time:
    plain = time(value.hour, value.minute, value.second, value.microsecond)
    if value.tzinfo is None:
        return plain
    offset = value.utcoffset()
    if offset is None:
        raise InvalidRequest(
            f"{place} has a time zone without one offset for all dates. Pass a fixed offset."
        )
    if not timedelta(0) <= offset < _OFFSET_END or offset.microseconds:
        raise InvalidRequest(
            f"{place} has the offset {timezone(offset)}. DuckDB takes offsets of whole seconds "
            "from UTC+00:00 to UTC+15:59:59. For others, pass a text such as '12:00:00-05:00', and "
            "write $name::timetz."
        )
    return plain.replace(tzinfo=timezone(offset))


def _timedelta(value: timedelta, place: str) -> timedelta:
    _check_nanoseconds(getattr(value, "nanoseconds", 0), place)
    return timedelta(value.days, value.seconds, value.microseconds)


def _check_nanoseconds(nanoseconds: int, place: str) -> None:
    if nanoseconds:
        raise InvalidRequest(f"{place} has nanoseconds. Round it to microseconds.")


def _decimal(value: Decimal, place: str) -> Decimal:
    if not value.is_finite():
        raise InvalidRequest(f"{place} is {value}, which no DECIMAL is. Pass a float.")
    plain = Decimal(value)
    check_digits([plain], place)
    return plain


_CONVERSIONS: Final[tuple[tuple[Any, Callable[[Any, str], Any]], ...]] = (
    (int, _integer),
    (str, _text),
    (float, lambda value, _: float(value)),
    ((bytes, bytearray, memoryview), lambda value, _: bytes(memoryview(value))),
    (datetime, _datetime),
    (date, lambda value, _: date(value.year, value.month, value.day)),
    (time, _time),
    (timedelta, _timedelta),
    (Decimal, _decimal),
    (UUID, lambda value, _: UUID(int=value.int)),
)
"""By type, in this order: a datetime is a date, too."""


# ---- numpy


def _is_numpy(value: Any, kind: str) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, kind, ()))


def _of_numpy(value: Any, place: str) -> Any:
    """Return a scalar of numpy as a value of Python. Without a time, NaT is null."""
    import numpy

    # Those of characters are str and bytes. `item` would lose the zeros at their end.
    if isinstance(value, numpy.void | numpy.character):
        return value
    if not isinstance(value, numpy.datetime64 | numpy.timedelta64):
        return value.item()
    if numpy.isnat(value):
        return None
    if numpy.datetime_data(value.dtype)[0] not in _FINER_UNITS:
        found = value.item()
        return value if isinstance(found, int) else found
    rounded = value.astype(f"{type(value).__name__}[us]")
    _check_nanoseconds(rounded != value, place)
    return rounded.item()
