"""Descriptors of this process that its forks must not have.

Owns: their list, and closing the copies in a child as soon as it is forked. A lock of the kernel
(flock) belongs to an open file, which a fork shares: it lasts until the last copy of the descriptor
is closed, in whichever process. The same goes for a pipe whose end is a sign. Programs that are
started (`exec`) have no copies, but for those that are passed to them.
"""

import os
from contextlib import suppress
from typing import Final

_ours: Final[set[int]] = set()


def keep_from_forks(descriptor: int) -> None:
    """Have it closed in every child that is forked from here on, until `close_kept` is called."""
    _ours.add(descriptor)


def close_kept(descriptor: int) -> None:
    """Close a descriptor that was kept from forks. For the process that opened it alone: in a fork
    its number may be that of another file by now."""
    _ours.discard(descriptor)
    os.close(descriptor)


def _close_copies() -> None:
    """In a child."""
    for descriptor in _ours:
        with suppress(OSError):
            os.close(descriptor)
    _ours.clear()


os.register_at_fork(after_in_child=_close_copies)
