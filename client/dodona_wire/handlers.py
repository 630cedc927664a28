"""Exceptions that a signal handler raised, told from those of the code that it interrupted.

Owns: that one question. Python runs signal handlers in the main thread between any two steps, so
that one may raise within any `try`. Code that takes every `Exception` for another's fault has to
ask here first, and raise it on: it is the caller's. Imports nothing of Dodona.
"""

from types import FrameType, TracebackType


def is_of_handler(error: BaseException) -> bool:
    """Whether it came through a function that was handed the frame that it interrupted."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        if _was_handed(trace.tb_next.tb_frame, trace.tb_frame):
            return True
        trace = trace.tb_next
    return False


def _was_handed(handler: FrameType, interrupted: FrameType) -> bool:
    """Handlers are called with the frame that they interrupt: by itself, or in `*arguments`."""
    return any(
        value is interrupted
        or (type(value) is tuple and any(each is interrupted for each in value))
        for value in handler.f_locals.values()
    )
