"""Free the variables that the traceback of an error keeps.

Owns: `forget_locals`, and which modules are the client's own. A traceback has the frames that its
error passed through, with their variables. If the error is one of these variables, there is a
reference cycle. It keeps all of them until the garbage collector runs: also the frames of the
caller, and the client in them.
"""

from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from typing import Final

from dodona_wire.errors import DodonaError
from dodona_wire.handlers import is_of_handler

OWN: Final = ("dodona.", "dodona_wire.")
"""How the names of the client's own modules begin."""
_MAY_WAIT: Final = CO_COROUTINE | CO_ASYNC_GENERATOR


def forget_locals(error: DodonaError, own: tuple[str, ...] = OWN) -> None:
    """Clear the variables of Dodona's own frames in the traceback of an error. A driver with more
    modules says how their names begin.

    Frames that still run keep their variables. The frames of the caller, and of functions that the
    caller passed, stay as they are. So do coroutines: clearing one that waits for the error would
    end it."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        is_own = str(frame.f_globals.get("__name__")).startswith(own)
        if is_own and not frame.f_code.co_flags & _MAY_WAIT:
            try:
                frame.clear()
            except RuntimeError as running:  # the frame still runs
                if is_of_handler(running):
                    raise
        trace = trace.tb_next
