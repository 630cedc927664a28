"""Errors and what their tracebacks keep.

Owns: `forget_locals`. A traceback has the frames that its error came through, with their variables;
where the error is one of these, a cycle keeps all of them until the garbage collector comes: also
the caller's frames, and there the client.
"""

from contextlib import suppress
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from typing import Final

from dodona_wire.errors import DodonaError

_OWN: Final = ("dodona.", "dodona_local.", "dodona_server.", "dodona_wire.")
_MAY_WAIT: Final = CO_COROUTINE | CO_ASYNC_GENERATOR


def forget_locals(error: DodonaError) -> None:
    """Of our own frames that the error has come through so far. Those that still run keep theirs;
    the caller's, and those of what the caller handed in, are not touched. Nor are coroutines: one
    that waits, and is to go on with the error, would be ended by it."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        is_own = str(frame.f_globals.get("__name__")).startswith(_OWN)
        if is_own and not frame.f_code.co_flags & _MAY_WAIT:
            with suppress(RuntimeError):  # it runs
                frame.clear()
        trace = trace.tb_next
