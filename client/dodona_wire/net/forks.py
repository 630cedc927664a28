"""Close descriptors in forks of this process that must not have them.

Owns: the list of these descriptors, and closing the copies in a child directly after the fork. A
kernel lock (flock) belongs to an open file, which a fork shares. It lasts until the last copy of
the descriptor is closed, in any process. The same is true of a pipe whose end is a signal. A
program that is started (`exec`) has no copies, except those that are passed to it.
"""

import os
from contextlib import suppress
from typing import Final

_ours: Final[set[int]] = set()


def keep_from_forks(descriptor: int) -> None:
    """Close the descriptor in every child that is forked from now on, until `close_kept`."""
    _ours.add(descriptor)


def close_kept(descriptor: int) -> None:
    """Close a descriptor that was kept from forks. Only the process that opened it may call this:
    in a fork the number may belong to another file by now."""
    _ours.discard(descriptor)
    os.close(descriptor)


def _close_copies() -> None:
    """Close the copies in a child."""
    for descriptor in _ours:
        with suppress(OSError):
            os.close(descriptor)
    _ours.clear()


os.register_at_fork(after_in_child=_close_copies)
