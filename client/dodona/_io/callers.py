"""Show warnings at the place where the user's program called Dodona.

Owns: which line a warning names. Usually the call is still running when Dodona warns, and the line
is on the stack. A call that only begins a task has returned by then, so it leaves its place behind.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final, NamedTuple

from dodona_wire.errors import DodonaWarning
from dodona_wire.messages.attribute_names import warnings_about


class _Place(NamedTuple):
    """The place of a call, as `warnings.warn_explicit` takes it."""

    filename: str
    line_number: int
    module: str
    registry: dict[Any, Any]
    """The warnings that this module has already shown."""


_place: Final[ContextVar[_Place | None]] = ContextVar("dodona_place", default=None)


@contextmanager
def placed(caller: FrameType) -> Iterator[None]:
    """Let the tasks that begin in this block warn at the line where the caller is now."""
    names = caller.f_globals
    registry = names.setdefault("__warningregistry__", {})
    name = names.get("__name__", "<string>")
    token = _place.set(_Place(caller.f_code.co_filename, caller.f_lineno, name, registry))
    try:
        yield
    finally:
        _place.reset(token)


def warn_about(names: object) -> None:
    """Warn about attributes that have no effect, with Python's own warnings: once for each name at
    a place in the program. Only public calls call this, since it looks one call above them."""
    place = _place.get()
    for text in warnings_about(names):
        if place is None:
            warnings.warn(text, DodonaWarning, stacklevel=3)
        else:
            warnings.warn_explicit(text, DodonaWarning, *place)
