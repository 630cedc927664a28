"""Find out whose an exception is that came out of the cores: their own, or their caller's.

Owns: that one question. The cores run in their callers' threads. Python lets signal handlers raise
in the main thread between any two steps: KeyboardInterrupt, or the exception of a handler of
SIGALRM. Such an exception says nothing about the cores, and has to reach the caller. A failed
assertion or write is the cores' own: the caller gets an answer that says so.

Three signs show a caller's exception, and each one is enough. Cores call no code of others and
define the exceptions that they raise.

- It is no `Exception` (KeyboardInterrupt, SystemExit).
- Its class comes from a module that cores do not use.
- It came through a function that got the frame that it interrupted, as signal handlers and trace
  functions do.

Must not import: the cores. It knows their modules by name.
"""

import sys
from typing import Final

from dodona_wire.handlers import is_of_handler

CORE_PACKAGES: Final = frozenset(
    {
        *("dodona", "dodona_local", "dodona_oracle", "dodona_replication", "dodona_server"),
        *("dodona_tablets", "dodona_wire", "lmdb", "msgspec", "pyarrow", "sortedcontainers"),
    }
)


def is_callers_own(error: BaseException) -> bool:
    """Return whether an exception was raised for the caller, and not by the cores."""
    return not isinstance(error, Exception) or _is_foreign(type(error)) or is_of_handler(error)


def _is_foreign(kind: type[BaseException]) -> bool:
    root = kind.__module__.partition(".")[0]
    return root not in CORE_PACKAGES and root not in sys.stdlib_module_names and root != "builtins"
