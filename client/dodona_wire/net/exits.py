"""Run a function at the end of the process, after all that the program does there.

Owns: `at_last`. `atexit` calls handlers in reverse order. So a handler of Dodona runs before the
handlers that a program registered before it imported Dodona, and these may still use a client.
After the last handler, `atexit` releases all handlers and their arguments. So the collection of an
argument marks that time. Threads run until then, and not much longer.
"""

import atexit
import sys
from collections.abc import Callable


def at_last(function: Callable[[], object]) -> None:
    """Call the function when all handlers of `atexit` have run, while threads still run."""
    atexit.register(_let_go, _Argument(function))


class _Argument:
    """An argument that only `atexit` refers to. Its collection calls the function."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def __del__(self) -> None:
        if not sys.is_finalizing():  # else there are no threads to wait for
            self._function()


def _let_go(_: _Argument) -> None:
    """Do nothing. The collection of the argument does the work."""
