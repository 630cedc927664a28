"""What users hand to the client, checked before it is used or sent. Pure.

Owns: the checks of arguments that are no rows, and which values attributes may have, and their
packing. They are JSON's, so that every language
and the REST interface can show them; they travel as MessagePack. How long they may be, and which
names there are, is the master's to say.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import tee
from math import isfinite
from typing import Any, Final

import msgspec

from dodona_wire.errors import InvalidRequest
from dodona_wire.shown import shown

DEPTH_MAX: Final = 32
INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 64) - 1


Row = Mapping[str, Any]


def repeatable(rows: Iterable[Row]) -> Iterable[Row]:
    """The same, to be gone through again. Of what can be gone through but once, as much is kept as
    was taken: copies, since a generator may give one dict again and again."""
    if type(rows) is not list and isinstance(rows, Iterator):  # the second question is slow
        return _Kept(rows)
    return rows


class _Kept:
    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows: Iterator[Row] = map(_kept, rows)

    def __iter__(self) -> Iterator[Row]:
        given, self._rows = tee(self._rows)
        return given


def _kept(row: Row) -> Row:
    return row.copy() if type(row) is dict else row


def check_path(path: str) -> str:
    """Raises InvalidRequest; what a path looks like is the master's to say."""
    return check_text(path, "path")


def check_text(value: str, name: str) -> str:
    """Raises InvalidRequest."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} is a str, not {type(value).__name__}")
    if not _is_unicode(value):
        raise InvalidRequest(f"{name} is not Unicode text")
    return value


def check_flag(value: bool, name: str) -> None:
    """Raises InvalidRequest."""
    if type(value) is not bool:
        raise InvalidRequest(f"{name} is a bool, not {type(value).__name__}")


def check_number(value: int, name: str, least: int, most: int = INTEGER_MAX) -> None:
    """Raises InvalidRequest."""
    if type(value) is not int or value < least:
        raise InvalidRequest(f"{name} is a number from {least}, not {shown(value)}")
    if value > most:
        raise InvalidRequest(f"{name} is a number up to {most}, not {shown(value)}")


def check_columns(names: Iterable[str] | None) -> list[str] | None:
    """The names of columns as a list. Raises InvalidRequest; which there are is the schema's to
    say."""
    if names is None:
        return None
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable):
        raise InvalidRequest(
            f"columns are given as a list of names, not as one {type(names).__name__}"
        )
    return [*names]


def check_prefix(values: Sequence[Any], name: str) -> Sequence[Any]:
    """Raises InvalidRequest; which values a key column takes is the schema's to say."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence):
        raise InvalidRequest(
            f"{name} is a list of leading key column values, not {type(values).__name__}"
        )
    return values


def pack_map(value: Mapping[str, Any] | None, name: str) -> bytes:
    """Several attributes, none for None. Raises InvalidRequest, which says where."""
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{name} are a dict, not {type(value).__name__}")
    return pack_value(value, name)


def pack_value(value: Any, name: str) -> bytes:
    """Any value that JSON has. Raises InvalidRequest, which says where."""
    return msgspec.msgpack.encode(_plain(value, name, 0))


def _plain(value: Any, place: str, depth: int) -> Any:
    """The same of the built-in types alone. `place` is how the user would reach it."""
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
        f"{place} is none of null, a bool, a number of 64 bits, text, a list or a dict: "
        f"{_shown(value)}",
        place=place,
    )


def _name(key: Any, place: str) -> str:
    if type(key) is str and _is_unicode(key):
        return key
    raise InvalidRequest(f"{place} has a name that is no text: {_shown(key)}", place=place)


def _shown(value: Any) -> str:
    """For an error: what it is, or, if that says nothing to people, of which type."""
    is_plain = isinstance(value, int | float | str | bytes)
    return shown(value) if is_plain else f"one {type(value).__name__}"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
