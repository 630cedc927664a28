"""The bounds of bodies as YTsaurus's client sends them, unpacked. Pure.

Owns: how many bytes and values there may be: short text may stand for many values. What unpacks a
body is `unpacking`.
"""

from collections.abc import Iterable
from typing import Any, Final

from dodona_gateway.core.yson import Attributed
from dodona_wire.errors import InvalidRequest, LimitExceeded

BODY_BYTES_MAX: Final = 64 << 20
"""Unpacked."""
VALUES_MAX: Final = 3_000_000
"""In the rows of one command, at all levels. Each takes about a hundred bytes of memory."""


def check_size(size_bytes: int, bytes_max: int = BODY_BYTES_MAX) -> None:
    """Raises LimitExceeded."""
    if size_bytes > bytes_max:
        text = f"the body of this command has at most {bytes_max} bytes, unpacked: send less"
        raise LimitExceeded(text, bytes_max=bytes_max)


def count_values(rows: Iterable[Any]) -> int:
    """How many values there are in rows, at all levels. Raises InvalidRequest on what is no row."""
    count = 0
    for row in rows:
        if type(row) is not dict:
            raise InvalidRequest(f"a row is a map without attributes, not {_kind(row)}")
        count += len(row)
        for value in row.values():
            if type(value) in _NESTED:
                count += _count_inside(value)
    return count


_NESTED: Final = (dict, list, Attributed)


def _count_inside(value: Any) -> int:
    if type(value) is Attributed:
        return _count_inside(value.attributes) + _count_inside([value.value])
    inner = value.values() if type(value) is dict else value
    nested = [it for it in inner if type(it) in _NESTED]
    return len(value) + sum(map(_count_inside, nested))


def _kind(value: Any) -> str:
    return "#" if value is None else type(value).__name__


def check_values(count: int) -> None:
    """Raises LimitExceeded."""
    if count > VALUES_MAX:
        text = f"the rows of one command have at most {VALUES_MAX} values: send fewer at a time"
        raise LimitExceeded(text, values_max=VALUES_MAX)
