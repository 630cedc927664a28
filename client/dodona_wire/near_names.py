"""Find the name that a misspelled one most likely stands for. Pure.

Owns: how near two names must be.
Must not import: anything of Dodona.
"""

import difflib
from collections.abc import Iterable
from typing import Final

NEARNESS_MIN: Final = 0.84
"""The nearness of two names, as difflib measures it: one letter in six may be wrong."""
LENGTH_MAX: Final = 64
"""A longer name is no misspelling, however it begins. To compare it would take long."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name of which this is most likely a misspelling, None if it is like none."""
    if len(name) > LENGTH_MAX:
        return None
    near = difflib.get_close_matches(name, known, 1, NEARNESS_MIN)
    return near[0] if near else None
