"""How a command that has started others ends, whoever ends it: none of them may stay behind.

Owns: what SIGTERM means (CI that cancels, `timeout`), and what happens to a process whose starter
is gone by SIGKILL.
"""

import shutil
import signal
from collections.abc import Sequence


def end_in_order() -> None:
    """For the main thread of a command: SIGTERM unwinds it as Ctrl-C does, so that servers end and
    temporary folders go."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def bound(command: Sequence[str]) -> list[str]:
    """The command, in a form in which the kernel kills it once the thread that starts it is gone.
    Where there is no `setpriv` (of util-linux), the command as it is."""
    setpriv = shutil.which("setpriv")
    return [*command] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--", *command]
