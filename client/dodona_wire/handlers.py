"""Tell a signal handler's exceptions from those of the code that the handler interrupted.

Owns: this one question. Python runs signal handlers in the main thread between any two steps, so a
handler may raise within any `try`. Code that catches every `Exception` as the fault of another part
must ask here first. It must raise a handler's exception again, because the exception belongs to the
caller. Imports nothing of Dodona.
"""

from types import FrameType, TracebackType


def is_of_handler(error: BaseException) -> bool:
    """Return whether the error came through a function that received the frame it interrupted."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        if _was_handed(trace.tb_next.tb_frame, trace.tb_frame):
            return True
        trace = trace.tb_next
    return False


def _was_handed(handler: FrameType, interrupted: FrameType) -> bool:
    """Return whether the function received that frame, as an argument or within `*arguments`."""
    return any(
        value is interrupted
        or (type(value) is tuple and any(each is interrupted for each in value))
        for value in handler.f_locals.values()
    )
