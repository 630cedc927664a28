"""Limit the unpacked bodies that YTsaurus's client sends. Pure.

Owns: the limits on bytes and on values, since a short text may stand for many values. The module
`unpacking` unpacks a body.
"""

from collections.abc import Iterable
from typing import Any, Final

from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_ytsaurus.yson import Attributed

BODY_BYTES_MAX: Final = 64 << 20
"""The bytes of an unpacked body."""
VALUES_MAX: Final = 3_000_000
"""The values in the rows of one command, at all levels. Each takes about a hundred bytes of
memory."""


def check_size(size_bytes: int, bytes_max: int = BODY_BYTES_MAX) -> None:
    """Raise LimitExceeded if the body is longer than that."""
    if size_bytes > bytes_max:
        text = f"The body of this command has at most {bytes_max} bytes, unpacked. Send less."
        raise LimitExceeded(text, bytes_max=bytes_max)


def count_values(rows: Iterable[Any]) -> int:
    """Return the number of values in rows, at all levels. Raises InvalidRequest on a value that is
    no row."""
    count = 0
    for row in rows:
        if type(row) is not dict:
            raise InvalidRequest(f"A row must be a map without attributes, not {_kind(row)}.")
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
    """Raise LimitExceeded if there are too many values."""
    if count > VALUES_MAX:
        text = f"The rows of one command have at most {VALUES_MAX} values. Send fewer at a time."
        raise LimitExceeded(text, values_max=VALUES_MAX)
