"""Show a value in the text of an error: there is always a text, and it is never long.

Owns: this text. Python's `repr` does not guarantee that. For an integer of more than 4,300 digits
`repr` raises ValueError. Its text can be as long as the value. For an object of the caller's class,
it runs the caller's code. Use `shown` instead of `repr`, `str` or `!r` for a caller's value in a
message. Imports of Dodona only `handlers`, which says whether a signal handler raised an exception.
"""

import reprlib
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from dodona_wire.handlers import is_of_handler

LENGTH_MAX: Final = 200
TEXT_LENGTH_MAX: Final = 100
"""Length of a text, or of bytes, within a value."""
ITEMS_MAX: Final = 20
DEPTH_MAX: Final = 5
INTEGER_BITS_MAX: Final = 256
"""Bits of an integer that is shown with all its digits."""


class _Shown(reprlib.Repr):
    """Shows values of built-in types. `reprlib` finds a method by the name of the type."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = DEPTH_MAX
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = ITEMS_MAX

    def repr_int(self, value: int, level: int) -> str:
        bits = value.bit_length()
        return repr(value) if bits <= INTEGER_BITS_MAX else f"an int of {bits} bits"

    def repr_str(self, value: str, level: int) -> str:
        return repr(value) if len(value) <= TEXT_LENGTH_MAX else f"{value[:TEXT_LENGTH_MAX]!r}…"

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(value) if len(value) <= TEXT_LENGTH_MAX else f"{value[:TEXT_LENGTH_MAX]!r}…"

    def repr_dict(self, value: Mapping[Any, Any], level: int) -> str:
        """Show a mapping in its own order."""
        if level <= 0:
            return "{...}" if value else "{}"
        pairs = [
            f"{self.repr1(name, level - 1)}: {self.repr1(it, level - 1)}"
            for name, it in islice(value.items(), ITEMS_MAX)
        ]
        more = ["..."] if len(value) > ITEMS_MAX else []
        return "{" + ", ".join([*pairs, *more]) + "}"

    def repr_instance(self, value: Any, level: int) -> str:
        return repr(value)


_shown: Final = _Shown()


def shown(value: object, length_max: int = LENGTH_MAX) -> str:
    """Return the value's `repr`, shortened to the limit; if it fails, the name of the type."""
    try:
        text = _shown.repr(value)
    except Exception as error:  # a caller's class may raise anything
        if is_of_handler(error):
            raise
        text = f"one {type(value).__name__}"
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def named(value: object) -> str:
    """Return a value that must be a name, without quotes."""
    return value[:LENGTH_MAX] if type(value) is str else shown(value)
