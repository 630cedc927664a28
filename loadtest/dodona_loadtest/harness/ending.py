"""End a command that has started other processes, so that none of them stays behind.

Owns: the meaning of SIGTERM (from CI that cancels, or `timeout`). Also owns what happens to a
process after SIGKILL has ended its starter.
"""

import shutil
import signal
from collections.abc import Sequence


def end_in_order() -> None:
    """Make SIGTERM unwind the main thread of a command as Ctrl-C does. So servers end and temporary
    folders are removed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def bound(command: Sequence[str]) -> list[str]:
    """Return the command in a form that the kernel kills once the thread that starts it is gone.
    Without `setpriv` (of util-linux), return the command as it is."""
    setpriv = shutil.which("setpriv")
    return [*command] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--", *command]
