"""What YSON has and Python has not: unsigned integers, and attributes on any value.

Owns: the two classes for them, and the names of the choices that reading and writing leave. All
other values are Python's own: int (int64), float, bool, None (`#`), bytes or str, list and dict.
Imports nothing of Dodona.
"""

from typing import Any, Final, Literal

import msgspec

Format = Literal["binary", "text", "pretty"]
"""How to write. Readers need not be told: the forms may even be mixed."""

Kind = Literal["node", "list_fragment", "map_fragment"]
"""One value, the inside of a list, or the inside of a map."""

Strings = Literal["bytes", "text"]
"""What strings become: bytes, or str where they are UTF-8 and bytes where not. Either way all that
is read can be written back. The keys of maps are str always."""

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
UINT64_MAX: Final = (1 << 64) - 1


class Uint64(int):
    """An int that is a uint64 in YSON however small it is. Plain ones are int64 where they fit."""

    __slots__ = ()


class Attributed(msgspec.Struct, frozen=True):
    """A value with attributes: `<a=1>value`. Only values that have some are wrapped so."""

    value: Any
    attributes: dict[str, Any]
    """By name; not empty."""
