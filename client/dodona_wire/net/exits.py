"""What is done at the end of the process, behind all that the program does there.

Owns: `at_last`. `atexit` calls handlers in reverse order, so that one of ours comes before those
that a program registered before it imported us, and these may still use a client. What `atexit`
does after the last handler is to let go of all of them, and of their arguments: so an argument that
is collected there says when. Threads run until then, and not much longer.
"""

import atexit
import sys
from collections.abc import Callable


def at_last(function: Callable[[], object]) -> None:
    """Call this when all handlers of `atexit` have run, while threads still do."""
    atexit.register(_let_go, _Argument(function))


class _Argument:
    """Held by `atexit` alone."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def __del__(self) -> None:
        if not sys.is_finalizing():  # else there are no threads to wait for
            self._function()


def _let_go(_: _Argument) -> None:
    """The handler. What is to be done is done when its argument goes."""
