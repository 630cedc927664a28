"""Keep room ahead of the end of a growing file, so that a small write need not grow it.

Owns: the zeros between the content of a file and its end. A commit that makes the file longer also
has to make its new length durable. That is one more operation of the disk. It takes a tenth of the
time of a small commit, and under load it is one more wait. Zeros are really written. If extents
were only allocated, the file system would convert them one by one, which costs the same again.

Invariants:
- Zeros are written behind the end of the file only, so that no content is ever touched.
- They are durable before a write relies on them.
- Without space for zeros, the file grows as it would without this module.

This module does not know what the file is.
"""

import os
from pathlib import Path
from typing import Final

from dodona_server.disk_space import is_no_space

STEP_BYTES: Final = 1 << 20
"""Written at a time, in 1 to 2 ms (a commit takes 0.3 ms), once in a few thousand commits."""
AHEAD_BYTES: Final = 128 << 10
"""If less than this is left, room is made. It is more than a group of small commits takes."""

_ZEROS: Final = bytes(STEP_BYTES)
_LEFT_STEPS_MIN: Final = 16
"""If the disk has less space than so many steps, it is left for the file itself, and for others."""


class Room:
    """The room in one file that another part writes. One thread at a time may use it."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        """Open the file. `bytes_max` is how long it may become."""
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._bytes_max = bytes_max
        self._end = os.fstat(self._file).st_size

    def ensure(self, used_bytes: int) -> None:
        """Make room before a write behind `used_bytes`, if there is little. Raises OSError if the
        disk fails, but not if it is only full."""
        if used_bytes + AHEAD_BYTES <= self._end:
            return
        end = os.fstat(self._file).st_size  # a large write may have made it longer
        wanted = used_bytes + STEP_BYTES
        if end < wanted:
            self._extend(end, min(wanted, self._bytes_max))
        self._end = max(end, wanted)  # also without space: a full disk is not asked every time

    def _extend(self, end: int, wanted: int) -> None:
        try:
            found = os.fstatvfs(self._file)
            if found.f_bfree * found.f_frsize < _LEFT_STEPS_MIN * STEP_BYTES:
                return
            with memoryview(_ZEROS) as zeros:
                os.pwrite(self._file, zeros[: max(0, wanted - end)], end)
            os.fdatasync(self._file)
        except OSError as error:
            if not is_no_space(error):
                raise

    def close(self) -> None:
        """Close the file. Its zeros stay."""
        os.close(self._file)
