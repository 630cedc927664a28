"""Room ahead of the end of a growing file, so that a small write need not grow it.

Owns: the zeros between what a file holds and its end. A commit that makes the file longer also has
to make its new length durable: an input and output of its own, a tenth of the time of a small
commit, and under load another turn to wait for. Zeros are really written, as extents that are only
allocated are converted one by one, which costs the same again.

Invariants: zeros are written behind the end of the file only, so that nothing which is there is
ever touched; they are durable before anybody relies on them. Without space for them the file grows
as it would have without. Knows nothing of what the file is.
"""

import os
from pathlib import Path
from typing import Final

from dodona_server.disk_space import is_no_space

STEP_BYTES: Final = 1 << 20
"""Written at once, in 1 to 2 ms where a commit takes 0.3: every few thousand commits."""
AHEAD_BYTES: Final = 128 << 10
"""With less than this left, room is made: more than a group of small commits takes."""

_ZEROS: Final = bytes(STEP_BYTES)
_LEFT_STEPS_MIN: Final = 16
"""With less space left than so many steps, what is left is for the file itself, and for others."""


class Room:
    """The room in one file that somebody else writes. One thread at a time."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        """`bytes_max` is how long the file may become."""
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._bytes_max = bytes_max
        self._end = os.fstat(self._file).st_size

    def ensure(self, used_bytes: int) -> None:
        """Before a write behind `used_bytes`: make room if there is little. Raises OSError if the
        disk fails, and nothing if it is only full."""
        if used_bytes + AHEAD_BYTES <= self._end:
            return
        end = os.fstat(self._file).st_size  # a large write may have made it longer
        wanted = used_bytes + STEP_BYTES
        if end < wanted:
            self._extend(end, min(wanted, self._bytes_max))
        self._end = max(end, wanted)  # as if there was space: a full disk is not asked every time

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
        """Let go of the file; its zeros stay."""
        os.close(self._file)
