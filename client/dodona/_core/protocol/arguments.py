"""Check the arguments of users before the client uses or sends them. Pure.

Owns: the checks of all arguments but the values of rows, which values attributes may have, and
their packing.
Attributes take the values of JSON, so that every language and the REST interface can show them.
Messages contain them as MessagePack. The master limits their length and decides which names exist.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, tee
from math import isfinite
from typing import Any, Final

import msgspec

from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.rows.nested_values import is_numpy_array
from dodona_wire.rows.values import NESTING_DEPTH_MAX
from dodona_wire.shown import shown

DEPTH_MAX: Final = 32
COPIED_DEPTH_MAX: Final = 2 * NESTING_DEPTH_MAX + 2
"""A row holds values of type any, which may be nested in lists and structs."""
INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 64) - 1

Row = Mapping[str, Any]
Parameters = Mapping[str, Any] | Sequence[Any]
"""The values of a query's parameters: by name, for `$name`, or in order, for `?` and `$1`."""


def repeatable(rows: Iterable[Row]) -> Iterable[Row]:
    """Return rows that can be iterated more than once. For an iterator, the result keeps copies of
    all rows that were taken: a generator may yield one dict again and again."""
    if type(rows) is not list and isinstance(rows, Iterator):  # isinstance is the slow check
        return _Kept(rows)
    return rows


def bounded(rows: Iterable[Any], count_max: int) -> Iterable[Any]:
    """Limit the rows to one more than allowed, since an iterator may be endless. Raises
    InvalidRequest."""
    if type(rows) is list:
        return rows
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise InvalidRequest(f"rows are given as a list of dicts, not as one {type(rows).__name__}")
    return islice(rows, count_max + 1)


def check_row(row: object) -> None:
    """Check that a row is a dict, or the like. Raises SchemaViolation."""
    if not isinstance(row, Mapping):
        raise SchemaViolation(f"a row is a dict, not {type(row).__name__}")


def repeatable_names(names: Sequence[str] | None) -> Sequence[str] | None:
    """Return names that can be iterated more than once. The checks of names refuse other values
    later."""
    given: object = names
    return [*given] if isinstance(given, Iterator) else names


class _Kept:
    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows: Iterator[Row] = map(value_as_now, rows)

    def __iter__(self) -> Iterator[Row]:
        given, self._rows = tee(self._rows)
        return given


def value_as_now(value: Any, depth_left: int = COPIED_DEPTH_MAX) -> Any:
    """Return a row, or another value, as it is now: its caller may change it, and the lists and
    dicts in it. Checks refuse a value that is nested more deeply than the copy."""
    if depth_left == 0:
        return value
    if isinstance(value, Mapping):
        return {name: value_as_now(it, depth_left - 1) for name, it in value.items()}
    if isinstance(value, list):
        return [value_as_now(it, depth_left - 1) for it in value]
    if type(value) is tuple:
        return tuple([value_as_now(it, depth_left - 1) for it in value])
    return value.copy() if is_numpy_array(value) else value


def check_path(path: str) -> str:
    """Check that a path is text. Raises InvalidRequest. The master checks the syntax of paths."""
    return check_text(path, "path")


def check_text(value: str, name: str) -> str:
    """Check that a value is Unicode text. Raises InvalidRequest."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} is a str, not {type(value).__name__}")
    if not _is_unicode(value):
        raise InvalidRequest(f"{name} is not Unicode text")
    return value


def check_flag(value: bool, name: str) -> None:
    """Check that a value is a bool. Raises InvalidRequest."""
    if type(value) is not bool:
        raise InvalidRequest(f"{name} is a bool, not {type(value).__name__}")


def check_number(value: int, name: str, least: int, most: int = INTEGER_MAX) -> None:
    """Check that a value is an int from `least` to `most`. Raises InvalidRequest."""
    if type(value) is not int or value < least:
        raise InvalidRequest(f"{name} is a number from {least}, not {shown(value)}")
    if value > most:
        raise InvalidRequest(f"{name} is a number up to {most}, not {shown(value)}")


def check_columns(names: Iterable[str] | None) -> list[str] | None:
    """Return column names as a list, or None for None. Raises InvalidRequest. The schema checks
    whether the columns exist."""
    if names is None:
        return None
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable):
        raise InvalidRequest(
            f"columns are given as a list of names, not as one {type(names).__name__}"
        )
    return [*names]


def check_prefix(values: Sequence[Any], name: str) -> Sequence[Any]:
    """Check that leading key values are a sequence. Raises InvalidRequest. The schema checks the
    values."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence):
        raise InvalidRequest(
            f"{name} is a list of leading key column values, not {type(values).__name__}"
        )
    return values


def pack_map(value: Mapping[str, Any] | None, name: str) -> bytes:
    """Pack a dict of attributes; None is an empty dict. Raises InvalidRequest, with the place."""
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{name} are a dict, not {type(value).__name__}")
    return pack_value(value, name)


def pack_value(value: Any, name: str) -> bytes:
    """Pack any value that JSON has. Raises InvalidRequest, with the place."""
    return msgspec.msgpack.encode(_plain(value, name, 0))


def _plain(value: Any, place: str, depth: int) -> Any:
    """Return the value with built-in types only. `place` is the expression by which the user would
    reach it."""
    if depth > DEPTH_MAX:
        raise InvalidRequest(f"{place} is nested deeper than {DEPTH_MAX}", place=place)
    kind = type(value)
    if value is None or kind is bool or (kind is str and _is_unicode(value)):
        return value
    if (kind is int and INTEGER_MIN <= value <= INTEGER_MAX) or (kind is float and isfinite(value)):
        return value
    if isinstance(value, Mapping):
        return {
            _name(key, place): _plain(it, f"{place}[{shown(key)}]", depth + 1)
            for key, it in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(it, f"{place}[{at}]", depth + 1) for at, it in enumerate(value)]
    raise InvalidRequest(
        f"{place} must be null, a bool, a 64-bit number, text, a list or a dict, not "
        f"{_shown(value)}",
        place=place,
    )


def _name(key: Any, place: str) -> str:
    if type(key) is str and _is_unicode(key):
        return key
    raise InvalidRequest(f"{place} has a key that is not Unicode text: {_shown(key)}", place=place)


def _shown(value: Any) -> str:
    """Return a text for an error: the value, or its type if the value means nothing to people."""
    is_plain = isinstance(value, int | float | str | bytes)
    return shown(value) if is_plain else f"one {type(value).__name__}"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
