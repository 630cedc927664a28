"""A value as an error shows it: text that is always there, and never long.

Owns: that text. Python's own `repr` is none of that: of integers of more than 4,300 digits it
raises ValueError, it is as long as the value, and of a caller's own class it does whatever that
does. Whoever puts what a caller gave into a message takes `shown` instead of `repr`, `str`, `!r`.
Imports nothing of Dodona, but whose an exception is.
"""

import reprlib
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from dodona_wire.handlers import is_of_handler

LENGTH_MAX: Final = 200
TEXT_LENGTH_MAX: Final = 100
"""Of a text, or bytes, within a value."""
ITEMS_MAX: Final = 20
DEPTH_MAX: Final = 5
INTEGER_BITS_MAX: Final = 256
"""Of an integer that is shown with all its digits."""


class _Shown(reprlib.Repr):
    """By the built-in types. Methods are found by a type's name."""

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
        """In its own order."""
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
    """As `repr`, if that is short and there is one; else shorter, or what kind of value it is."""
    try:
        text = _shown.repr(value)
    except Exception as error:  # a caller's class may raise anything
        if is_of_handler(error):
            raise
        text = f"one {type(value).__name__}"
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def named(value: object) -> str:
    """What is to be a name, without quotes."""
    return value[:LENGTH_MAX] if type(value) is str else shown(value)
