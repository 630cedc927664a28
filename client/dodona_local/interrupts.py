"""Whose an exception is that came out of the cores: their own, or their caller's.

Owns: that one question. The cores run in their callers' threads, and Python lets signal handlers
raise in the main thread between any two steps: KeyboardInterrupt, or whatever a handler of SIGALRM
throws. Such an exception says nothing about the cores and has to reach the caller. A failed
assertion or write is the cores' own: the caller gets an answer that says so.

Three signs, each of which is enough, since cores call nobody else's code and define what they
raise: it is no `Exception` (KeyboardInterrupt, SystemExit); its class comes from a module that
cores do not use; or it came through a function that was handed the frame it interrupted, as signal
handlers and trace functions are.
Imports nothing of the cores: it knows their modules by name.
"""

import sys
from typing import Final

from dodona_wire.handlers import is_of_handler

CORE_PACKAGES: Final = frozenset(
    {
        *("dodona", "dodona_local", "dodona_oracle", "dodona_server", "dodona_tablets"),
        *("dodona_wire", "lmdb", "msgspec", "pyarrow", "sortedcontainers"),
    }
)


def is_callers_own(error: BaseException) -> bool:
    """Whether an exception was raised for the caller, and not by the cores."""
    return not isinstance(error, Exception) or _is_foreign(type(error)) or is_of_handler(error)


def _is_foreign(kind: type[BaseException]) -> bool:
    root = kind.__module__.partition(".")[0]
    return root not in CORE_PACKAGES and root not in sys.stdlib_module_names and root != "builtins"
