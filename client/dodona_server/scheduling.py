"""How a thread asks the kernel's scheduler to treat it.

Owns: `take_short_turns`. Some threads have little to do each time they wake, and other threads wait
for them. Such a thread should not wait until another one has used up its time slice of some
milliseconds. In Linux 6.12 and later a thread can ask for shorter slices. Then it runs sooner, with
the same share of the processor over time. So it needs no privilege and takes nothing from other
threads. Python has no call for this, so the module uses ctypes. On other systems it does nothing:
only the speed changes.
"""

import ctypes
import logging
import os
import platform
import struct
import sys
from typing import Final

TURN_US: Final = 100
"""The shortest time slice that Linux grants."""

_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""The system call's number, by machine."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
"""`struct sched_attr`: size, policy, flags, nice, priority, runtime (ns), deadline, period."""

_logger: Final = logging.getLogger("dodona.scheduling")


def take_short_turns() -> bool:
    """Make the calling thread run soon and briefly. Threads that it starts inherit that. Return
    whether the kernel accepted it. The thread's priority does not change."""
    number = _SCHED_SETATTR.get(platform.machine()) if sys.platform == "linux" else None
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False  # an unknown machine, or the operator chose otherwise
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(
        _ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, TURN_US * 1000, 0, 0
    )
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, 0, ctypes.c_char_p(attributes), 0) == 0:
        return True
    _logger.info("no short turns: %s", os.strerror(ctypes.get_errno()))
    return False
