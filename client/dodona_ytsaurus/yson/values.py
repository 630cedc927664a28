"""What YSON has and Python lacks: unsigned integers, and attributes on any value.

Owns: the two classes for them, and the names of the options for reading and writing. All other
values are Python's own: int (int64), float, bool, None (`#`), bytes or str, list and dict. Imports
nothing of Dodona.
"""

from typing import Any, Final, Literal

import msgspec

Format = Literal["binary", "text", "pretty"]
"""The form to write. Readers need no form: one input may even mix the forms."""

Kind = Literal["node", "list_fragment", "map_fragment"]
"""One value, the inside of a list, or the inside of a map."""

Strings = Literal["bytes", "text"]
"""What strings become: bytes, or str where they are UTF-8 and bytes where not. In both cases all
values that are read can be written back. The keys of maps are always str."""

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
UINT64_MAX: Final = (1 << 64) - 1


class Uint64(int):
    """An int that is a uint64 in YSON, even if it is small. A plain int is an int64 where it
    fits."""

    __slots__ = ()


class Attributed(msgspec.Struct, frozen=True):
    """A value with attributes: `<a=1>value`. Values without attributes are not wrapped."""

    value: Any
    attributes: dict[str, Any]
    """The attributes by name; not empty."""
