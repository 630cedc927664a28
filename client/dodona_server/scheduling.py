"""How a thread asks the kernel's scheduler to treat it.

Owns: `take_short_turns`. A thread that has little to do each time it wakes, and whom others wait
for, should not wait until another thread has used up its turn of some milliseconds. Linux 6.12 and
later let a thread ask for shorter turns and run it sooner in return, with the same share of the
processor over time, so that it needs no privilege and takes nothing from anybody. Python has no
call for it, hence ctypes. Everywhere else this does nothing: it is about speed and no more.
"""

import ctypes
import logging
import os
import platform
import struct
import sys
from typing import Final

TURN_US: Final = 100
"""The shortest that Linux grants."""

_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""The system call's number, by machine."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
"""`struct sched_attr`: size, policy, flags, nice, priority, runtime (ns), deadline, period."""

_logger: Final = logging.getLogger("dodona.scheduling")


def take_short_turns() -> bool:
    """Have the calling thread run soon and briefly; threads that it starts inherit that.
    → whether the kernel took it. The thread's priority stays what it was."""
    number = _SCHED_SETATTR.get(platform.machine()) if sys.platform == "linux" else None
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False  # a machine we don't know, or an operator who chose otherwise
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(
        _ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, TURN_US * 1000, 0, 0
    )
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, 0, ctypes.c_char_p(attributes), 0) == 0:
        return True
    _logger.info("no short turns: %s", os.strerror(ctypes.get_errno()))
    return False
