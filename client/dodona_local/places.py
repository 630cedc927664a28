"""Find the place in a user's program that called Dodona, for errors that name it.

Owns: `calling_place`.
"""

import sys
from types import FrameType
from typing import Final

_OWN: Final = frozenset(
    {
        *("dodona", "dodona_gateway", "dodona_local", "dodona_replication", "dodona_server"),
        *("dodona_wire", "dodona_ytsaurus", "pyspark_dodona"),
    }
)


def calling_place() -> str | None:
    """Return file and line of the code that called Dodona, in this thread or task. Return None if
    there is no such code, as under the command line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _OWN:
            return f"{frame.f_code.co_filename}, line {frame.f_lineno}"
        frame = frame.f_back
    return None
