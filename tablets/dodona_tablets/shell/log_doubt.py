"""A commit to a log's file whose very last write failed: made or not, it is made again.

Owns: what the two commits that a file remembers say of each other. LMDB takes a failed last write
back in two of its fields; all others stay. A commit that was made looks like that too, after
damage to its number, and somebody may have been told of it: to make it again is right always. Its
group is where those are that no head tells of (see `log_tail`).

No sum covers what is looked at here. But each commit to a file is one group's, so that its number
is that of the groups there are with it.
"""

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from dodona_wire.errors import DataCorrupted

_COMMIT: Final = struct.Struct("=120xQ16xQ")
"""The page that every other commit writes: how many values there are with it, and its number."""


class _Commit(NamedTuple):
    group_count: int
    number: int


def is_last_commit_in_doubt(path: Path, page_bytes: int) -> bool:
    """Whether one was made, or nearly, that no head tells of. Raises DataCorrupted if the commits
    contradict each other."""
    with path.open("rb") as file:
        pages = [os.pread(file.fileno(), _COMMIT.size, at) for at in (0, page_bytes)]
    even, odd = (_Commit(*_COMMIT.unpack(page)) for page in pages)
    last, other = (odd, even) if odd.number > even.number else (even, odd)
    is_last_in_place = last.number % 2 == (last is odd)
    is_first = last.number == other.number == 0
    if is_last_in_place and last.group_count == last.number:
        if other.group_count == other.number and (is_first or other.number == last.number - 1):
            return False
        if other.group_count == last.number + 1 and (is_first or other.number == last.number - 1):
            return True
    text = "the last commits to a file of the log contradict each other"
    raise DataCorrupted(text, path=str(path))
